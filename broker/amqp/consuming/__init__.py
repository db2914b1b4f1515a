"""basic.consume and basic.get: arguments of consumers, deliveries of queues and streams."""
