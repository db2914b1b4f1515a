"""Messages of AMQP 1.0 at consumers of AMQP 0.9.1, and as dead letters, in a whole broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]


def publish(client: RawAmqp10, address: str, payload: bytes) -> None:
    client.begin()
    client.attach_sender(address)
    sent = client.transfer(payload)
    assert client.outcomes(1) == {sent: p.Accepted()}


def taken(channel: amqp.BlockingChannel, queue: str) -> tuple[Any, bytes]:
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None
    return properties, body or b""


def test_a_consumer_of_0_9_1_gets_data_as_the_body_and_properties_as_fields(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    payload = message(b"hello", application={"k": "v"}, message_id=t.ULong(5), reply_to="/queues/answers")
    publish(raw_amqp10(), f"/queues/{queue}", payload)
    properties, body = taken(channel, queue)
    assert body == b"hello"
    assert (properties.message_id, properties.reply_to, properties.delivery_mode) == ("5", "answers", 2)
    assert properties.headers == {"k": "v"}


def test_a_consumer_of_0_9_1_gets_a_value_as_its_section(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    publish(raw_amqp10(), f"/queues/{queue}", message(value="text"))
    properties, body = taken(channel, queue)
    assert properties.type == "amqp-1.0"
    assert body == b"\x00\x53\x77\xa1\x04text"


def test_a_dead_letter_keeps_the_bare_message_and_tells_of_its_death(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str, name: str
) -> None:
    source = f"{name}-source"
    arguments = {
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 1,
    }  # fmt: skip
    channel.queue_declare(source, durable=True, arguments=arguments)
    client = raw_amqp10()
    payload = message(b"hello", durable=False, application={"k": t.Symbol("s")}, message_id="m")
    publish(client, f"/queues/{source}", payload)
    client.attach_receiver(f"/queues/{queue}", credit=2)
    got = client.receive()
    assert got.payload.endswith(payload)
    annotations = got.sections[0x72]
    assert annotations["x-first-death-queue"] == source
    (death,) = annotations["x-opt-deaths"]
    assert (death["queue"], death["reason"], death["count"]) == (source, "expired", 1)
    client.settle(got.transfer.delivery_id or 0, p.Accepted())
    channel.queue_delete(source)
