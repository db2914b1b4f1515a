"""Messages moved by an administrator: failed ones back into their group, dead letters back, to
another queue.
"""
