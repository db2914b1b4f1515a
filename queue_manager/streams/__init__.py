"""Streams: queues that keep what was read from them, and groups that are positions in them."""
