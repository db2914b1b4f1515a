"""The AMQP 0.9.1 front-end: between `protocols.amqp091` and the queue manager."""
