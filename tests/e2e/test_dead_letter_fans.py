"""Durable queues that dead-letter to all of each other: everybody is served, in this life and the next."""

import pika
import pytest

from tests.e2e import amqp
from tests.waiting import until

QUEUES = 12
TTL_MS = 1_000
NAMES = [f"fan-{number}" for number in range(QUEUES)]


def declare_fan(channel, arguments):
    channel.exchange_declare("fan", "fanout", durable=True)
    for name in NAMES:
        wanted = {"x-dead-letter-exchange": "fan", **arguments}
        channel.queue_declare(name, durable=True, arguments=wanted)
        channel.queue_bind(name, "fan")


@pytest.mark.parametrize("arguments", [{"x-max-length": 1}, {"x-max-length": 1, "x-message-ttl": TTL_MS}])
def test_dead_letters_that_multiply_come_to_an_end_and_hold_up_nobody(own_broker, arguments):
    broker = own_broker()
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        declare_fan(channel, arguments)
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("fan", "", b"x", pika.BasicProperties(delivery_mode=2))
        channel.queue_declare("other")
    broker.restart(kill=True)
    left = 0 if "x-message-ttl" in arguments else 1
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        channel.queue_declare("other")
        until(lambda: {amqp.count(channel, name) for name in NAMES} == {left})
