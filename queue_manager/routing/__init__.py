"""From a topic to the queues that take it."""
