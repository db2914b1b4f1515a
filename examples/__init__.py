"""Programs that use a broker: `python -m sluicemq.examples.amqp_worker` and so on."""
