"""Front-ends over a client that shows of plans, consumers and claims only what `traffic` states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from pamqp import commands

from broker.app import Broker
from broker.engine import traffic
from queue_manager.claims.claim import Claim, Consumer, CreditPool
from queue_manager.group.group import Group
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from queue_manager.routing.bindings import Route
from queue_manager.routing.plan import PublishPlan
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_mqtt import PUBACK, PUBLISH, SUBACK, RawMqtt, acknowledgement, publish, subscribe

STATED: dict[type, type] = {
    Claim: traffic.Claim,
    Consumer: traffic.Consumer,
    CreditPool: traffic.Credit,
    Group: traffic.Group,
    PublishPlan: traffic.PublishPlan,
    Queue: traffic.Source,
    Route: traffic.Targets,
}
_handles: dict[object, Any] = {}


class Handle:
    """Stands for an object of the core, and lets nothing through that is not stated."""

    def __init__(self, of: Any, stated: type) -> None:
        self._of = of
        self._names = {name for name in dir(stated) if not name.startswith("_")}

    def __bool__(self) -> bool:
        return bool(self._of)

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AssertionError(f"{name} of {type(self._of).__name__} is nothing for front-ends")
        value = getattr(self._of, name)
        return given(value) if not callable(value) else value


def given(value: Any) -> Any:
    """What a front-end gets of a value."""
    if isinstance(value, list | tuple) and value and not isinstance(value[0], Message):
        return type(value)(map(given, value))
    for kind, stated in STATED.items():
        if isinstance(value, kind):
            return _handles.setdefault(value, Handle(value, stated))
    return value


def taken(value: Any) -> Any:
    """What the core gets of what a front-end gives."""
    if isinstance(value, Handle):
        return value._of
    if isinstance(value, list | tuple):
        return type(value)(map(taken, value))
    if hasattr(value, "deliver"):
        return Deliveries(value)
    return taken(list(value)) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else value


class Deliveries:
    """A sink that the core calls, for one that front-ends have."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._sink, name)
        return lambda *arguments: call(*map(given, arguments))


class Foreign:
    """A part of the local client behind handles."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            return given(found(*map(taken, arguments), **{key: taken(value) for key, value in named.items()}))

        return call


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(storage="memory:") as broker:
        client: Any = broker.hub.client
        for name in ("publishing", "consuming"):
            setattr(client, name, Foreign(getattr(client, name)))
        yield broker
    _handles.clear()


async def test_amqp_works_with_what_is_stated(broker: Broker) -> None:
    def client() -> None:
        raw = RawAmqp(broker.ports["amqp"])
        raw.open_channel()
        raw.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
        for body in (b"one", b"two", b"three"):
            raw.publish(1, "q", body)
        raw.call(1, commands.Basic.Qos(prefetch_count=2, global_=True), commands.Basic.QosOk)
        raw.call(1, commands.Basic.Consume(queue="q", consumer_tag="c"), commands.Basic.ConsumeOk)
        assert raw.read_content(commands.Basic.Deliver).body == b"one"
        assert raw.read_content(commands.Basic.Deliver).body == b"two"
        raw.send(1, commands.Basic.Ack(delivery_tag=1))
        assert raw.read_content(commands.Basic.Deliver).body == b"three"
        raw.send(1, commands.Basic.Nack(delivery_tag=2, requeue=True))
        again = raw.read_content(commands.Basic.Deliver)
        assert (again.body, again.method.redelivered) == (b"two", True)
        raw.call(1, commands.Basic.Cancel("c"), commands.Basic.CancelOk)
        raw.send(1, commands.Basic.Ack(delivery_tag=0, multiple=True))
        raw.call(1, commands.Basic.Get(queue="q", no_ack=True), commands.Basic.GetEmpty)
        raw.drop()

    await asyncio.to_thread(client)


async def test_mqtt_works_with_what_is_stated(broker: Broker) -> None:
    def client() -> None:
        device = RawMqtt(broker.ports["mqtt"])
        worker = RawMqtt(broker.ports["mqtt"])
        worker.send_bytes(subscribe("$queue/jobs/#", 1))
        worker.expect(SUBACK)
        device.send_bytes(publish("$queue/jobs/a", b"job", qos=1))
        device.expect(PUBACK)
        delivery = worker.expect(PUBLISH)
        assert delivery.body.endswith(b"job")
        worker.send_bytes(acknowledgement(PUBACK, 1))
        worker.send_bytes(publish("$queue/jobs/b", b"next", qos=1, packet_id=2))
        worker.expect(PUBACK)
        assert worker.expect(PUBLISH).body.endswith(b"next")
        device.drop()
        worker.drop()

    await asyncio.to_thread(client)


async def test_a_stream_is_read_with_what_is_stated(broker: Broker) -> None:
    def client() -> None:
        raw = RawAmqp(broker.ports["amqp"])
        raw.open_channel()
        declare = commands.Queue.Declare(queue="s", durable=True, arguments={"x-queue-type": "stream"})
        raw.call(1, declare, commands.Queue.DeclareOk)
        raw.publish(1, "s", b"one")
        raw.call(1, commands.Basic.Qos(prefetch_count=5), commands.Basic.QosOk)
        consume = commands.Basic.Consume(
            queue="s", consumer_tag="c", arguments={"x-stream-offset": "first", "x-consumer-group": "g"}
        )
        raw.call(1, consume, commands.Basic.ConsumeOk)
        delivery = raw.read_content(commands.Basic.Deliver)
        assert (delivery.body, delivery.properties.properties.headers["x-stream-offset"]) == (b"one", 0)
        raw.drop()

    await asyncio.to_thread(client)
