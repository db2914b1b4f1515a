"""Front-end for AMQP 1.0, with clients that come in by the port of AMQP 0.9.1."""
