"""Consumer groups: consumers that share the messages of a queue."""
