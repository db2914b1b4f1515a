"""Queues with priorities: a lane, which is a queue of its own, for each priority above 0."""
