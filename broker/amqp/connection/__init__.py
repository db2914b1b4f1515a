"""An AMQP client and its channels, as the other parts see them: permissions, errors, what waits."""
