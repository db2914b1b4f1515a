"""Looking at queues and changing them, past the protocols: in process."""
