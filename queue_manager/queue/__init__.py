"""Queues: classic, in memory, with priorities, streams."""
