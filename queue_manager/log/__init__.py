"""The log of a queue: its messages in memory and on the store, who has let go of which, and reading
it back.
"""
