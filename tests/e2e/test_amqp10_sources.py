"""AMQP 1.0: which messages a link gives, by groups, patterns, filters, streams, and from other protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]


def described(name: Any, value: Any) -> t.Described:
    return t.Described(t.Symbol(name) if isinstance(name, str) else t.ULong(name), value)


def ready(raw_amqp10: Connect, address: str, *payloads: bytes, **options: Any) -> RawAmqp10:
    """A client with a session, after it has published these."""
    client = raw_amqp10(**options)
    client.begin()
    client.attach_sender(address)
    for payload in payloads:
        client.transfer(payload)
    if payloads:
        told = client.outcomes(len(payloads))
        assert set(told.values()) == {p.Accepted()}
    return client


FILTERS = {
    "JMS, by name": (described("apache.org:selector-filter:string", "color = 'red'"), {b"1"}),
    "JMS, by number": (described(0x468C00000004, "size > 5"), {b"2"}),
    "SQL": (described("amqp:sql-filter", "properties.subject LIKE 'b%'"), {b"2"}),
    "properties": (described("amqp:properties-filter", {t.Symbol("subject"): "&p:a"}), {b"1"}),
    "properties, by type": (
        described("amqp:properties-filter", {t.Symbol("message-id"): t.ULong(7)}),
        {b"2"},
    ),
    "application properties, by type": (
        described("amqp:application-properties-filter", {"size": t.UByte(3), "at": t.Timestamp(1_000)}),
        {b"1"},
    ),
    "application properties": (described("amqp:application-properties-filter", {"size": 9}), {b"2"}),
}


@pytest.mark.parametrize("case", FILTERS)
def test_a_filter_is_taken_and_gives_only_what_matches(raw_amqp10: Connect, queue: str, case: str) -> None:
    wanted, bodies = FILTERS[case]
    client = ready(
        raw_amqp10,
        f"/queues/{queue}",
        message(b"1", subject="abc", application={"color": "red", "size": 3, "at": t.Timestamp(1_000)}),
        message(b"2", subject="bcd", message_id=t.ULong(7), application={"color": "blue", "size": 9}),
    )
    answer = client.attach_receiver(
        f"/queues/{queue}", filter={t.Symbol("wanted"): wanted, t.Symbol("other"): described("x:y", 1)}
    )
    assert answer.source.filter == {t.Symbol("wanted"): wanted}
    client.give_credit(5, drain=True)
    got = set()
    while isinstance((frame := client.read()).body, p.Transfer):  # type: ignore[union-attr]
        assert frame is not None
        got.add(frame.payload[-1:])
    assert got == bodies


def test_a_filter_that_cannot_be_had_refuses_the_link(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    wrong = {t.Symbol("f"): described("apache.org:selector-filter:string", "color = = 'red'")}
    attach = p.Attach(
        "r", 1, c.RECEIVER, source=p.Source(f"/queues/{queue}", filter=wrong), target=p.Target()
    )
    assert client.attach(attach).source is None
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.INVALID_FIELD


def test_groups_have_all_messages_each_and_the_link_says_what_it_took(
    raw_amqp10: Connect, queue: str
) -> None:
    client = raw_amqp10()
    client.begin()
    for handle, group in ((1, "billing"), (2, "audit")):
        properties = {t.Symbol("consumer-group"): group, t.Symbol("unknown"): 1}
        answer = client.attach_receiver(f"/queues/{queue}", handle, properties=properties, credit=1)
        assert answer.properties == {t.Symbol("consumer-group"): group}
    client.attach_sender(f"/queues/{queue}")
    client.transfer(message(b"x"), settled=True)
    assert {client.receive().transfer.handle for _ in range(2)} == {1, 2}


def test_a_pattern_is_in_the_address(raw_amqp10: Connect, name: str) -> None:
    client = raw_amqp10()
    client.begin()
    client.attach_receiver(f"$queue/{name}/eu/#", credit=5)
    client.attach_sender(None)
    client.transfer(message(b"us", to=f"$queue/{name}/us/1"))
    client.transfer(message(b"eu", to=f"$queue/{name}/eu/1"))
    got: list[Any] = []
    while len(got) < 1:
        frame = client.read()
        assert frame is not None
        if isinstance(frame.body, p.Transfer):
            got.append(frame.payload[-2:])
    assert got == [b"eu"]


def test_a_stream_is_read_from_an_offset_that_each_message_tells(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    client = ready(raw_amqp10, f"/queues/{name}", *(message(b"%d" % number) for number in range(4)))
    for handle in (1, 2):
        start = described("rabbitmq:stream-offset-spec", t.ULong(2))
        answer = client.attach_receiver(
            f"/queues/{name}", handle, credit=2, filter={t.Symbol("start"): start}
        )
        assert answer.source.distribution_mode == "copy"
        got = [client.receive() for _ in range(2)]
        assert [each.body for each in got] == [b"2", b"3"]
        assert [each.sections[0x72]["x-stream-offset"] for each in got] == [2, 3]


def test_a_drained_reader_is_given_what_has_to_be_read_from_the_store(
    own_broker: Callable[..., BrokerProcess],
    raw_amqp10: Connect,
    amqp_connect: Callable[..., pika.BlockingConnection],
) -> None:
    broker = own_broker({})
    arguments = {"x-queue-type": "stream"}
    amqp_connect(broker).channel().queue_declare("events", durable=True, arguments=arguments)
    ready(raw_amqp10, "/queues/events", *(message(b"%d" % number) for number in range(3)), to=broker)
    assert broker.stop() == 0
    broker.start()
    client = raw_amqp10(to=broker)
    client.begin()
    client.attach_receiver("/queues/events")
    client.give_credit(10, drain=True)
    assert [client.receive().body for _ in range(3)] == [b"0", b"1", b"2"]
    assert client.expect(p.Flow).link_credit == 0


def test_a_reader_of_a_stream_is_told_what_it_lost(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", "x-max-length": 3})
    client = ready(raw_amqp10, f"/queues/{name}", message(b"0"))
    client.attach_receiver(f"/queues/{name}", credit=1)
    assert client.receive().body == b"0"
    for number in range(1, 8):
        client.transfer(message(b"%d" % number))
    client.outcomes(7)
    client.give_credit(2, delivery_count=1)
    got = [client.receive().sections for _ in range(2)]
    first, second = (each[0x72] for each in got)
    assert first["x-stream-gap"] == first["x-stream-offset"] - 1 > 0
    assert second["x-stream-offset"] == first["x-stream-offset"] + 1
    assert "x-stream-gap" not in second


def test_what_mqtt_and_amqp_0_9_1_publish_is_received_and_the_other_way_round(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, mqtt: Callable[..., MqttClient], queue: str
) -> None:
    client = ready(raw_amqp10, f"/queues/{queue}", message(b"from 1.0", content_type="text/plain"))
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (properties.content_type, body) == ("text/plain", b"from 1.0")
    channel.basic_publish("", queue, b"from 0.9.1", pika.BasicProperties(message_id="m"))
    client.attach_receiver(f"/queues/{queue}", credit=5)
    got = client.receive()
    assert (got.body, got.sections[0x73][0]) == (b"from 0.9.1", "m")
    mqtt().publish(f"$queue/{queue}", b"from MQTT", qos=1)
    assert client.receive().body == b"from MQTT"


def test_a_virtual_host_has_queues_of_its_own(
    own_broker: Callable[..., BrokerProcess],
    raw_amqp10: Connect,
    amqp_connect: Callable[..., pika.BlockingConnection],
) -> None:
    broker = own_broker({"vhosts": [{"name": "test"}]})
    amqp_connect(broker, vhost="test").channel().queue_declare("jobs", durable=True)
    client = ready(raw_amqp10, "/queues/jobs", message(b"x"), to=broker, hostname="vhost:test")
    client.attach_receiver("/queues/jobs", credit=1)
    got = client.receive()
    assert got.sections[0x72] == {"x-routing-key": "jobs", "x-exchange": ""}
    client.settle(0, p.Released())
    client.give_credit(1, delivery_count=1)
    assert client.receive().body == b"x"
    other = raw_amqp10(broker)
    other.begin()
    target = p.Target("/queues/jobs")
    attach = p.Attach("s", 0, c.SENDER, source=p.Source(), target=target, initial_delivery_count=0)
    assert other.attach(attach).target is None


@pytest.mark.parametrize("capability", ["temporary-queue", "rabbitmq:volatile-queue"])
def test_a_dynamic_source_is_a_queue_that_goes_with_its_link(raw_amqp10: Connect, capability: str) -> None:
    client = raw_amqp10()
    client.begin()
    source = p.Source(dynamic=True, capabilities=(capability,))
    answer = client.attach(p.Attach("own", 1, c.RECEIVER, source=source, target=p.Target()))
    address = answer.source.address
    assert address.startswith("/queues/amq.dyn-own-")
    client.give_credit(1)
    other = raw_amqp10(container="other")
    other.begin()
    other.attach_sender(None)
    other.transfer(message(b"reply", to=address))
    assert other.outcomes(1) == {0: p.Accepted()}
    assert client.receive().body == b"reply"
    client.send(0, p.Detach(1, closed=True))
    client.expect(p.Detach)
    other.transfer(message(b"late", to=address))
    assert other.outcomes(1) == {1: p.Released()}


def test_a_dynamic_target_is_a_queue_of_the_clients_own(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.begin()
    target = p.Target(dynamic=True, capabilities=("temporary-queue",))
    answer = client.attach(p.Attach("own", 0, c.SENDER, target=target, initial_delivery_count=0))
    client.expect(p.Flow)
    client.transfer(message(b"x"))
    client.outcomes(1)
    client.attach_receiver(answer.target.address, credit=1)
    assert client.receive().body == b"x"


def test_a_dynamic_node_that_is_no_queue_is_refused(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.begin()
    source = p.Source(dynamic=True, capabilities=("temporary-file",))
    assert client.attach(p.Attach("own", 1, c.RECEIVER, source=source, target=p.Target())).source is None
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.NOT_IMPLEMENTED
