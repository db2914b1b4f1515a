"""Front-ends, HTTP and administration over a client that gives nothing of the core but what is stated."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import httpx
import pytest
from pamqp import commands

from broker.app import Broker
from broker.engine import session_traffic, traffic
from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqcoreListenerSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from queue_manager.api import ExchangeDeclaration
from queue_manager.claims.claim import Claim, Consumer, CreditPool
from queue_manager.claims.places import Places
from queue_manager.group.group import Group
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from queue_manager.retained_messages import RetainedMessage
from queue_manager.routing.judgement import Judgement
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.route import Route
from queue_manager.sessions.common import Losses
from queue_manager.sessions.filter_log import FilterLog
from queue_manager.sessions.merging import Matched
from queue_manager.sessions.sent import Received, Unfinished
from queue_manager.sessions.session import Delivery, Session
from queue_manager.sessions.session_subscription import SessionSubscription
from queue_manager.sessions.vhost_sessions import KeptWills
from storage.envelope import EnvelopeTemplate
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_mqtt import (
    CONNACK,
    PUBACK,
    PUBLISH,
    SUBACK,
    RawMqtt,
    acknowledgement,
    connect,
    publish,
    subscribe,
)
from tests.unit.broker.distant import Distance, distant_client

STATED: dict[type, type] = {
    Claim: traffic.Claim,
    Consumer: traffic.Consumer,
    CreditPool: traffic.Credit,
    Places: traffic.Places,
    FilterLog: session_traffic.Log,
    Group: traffic.Group,
    KeptWills: KeptWills,
    Matched: session_traffic.Matched,
    Judgement: traffic.Judgement,
    PublishPlan: traffic.PublishPlan,
    Queue: traffic.Source,
    Received: session_traffic.Received,
    Route: traffic.Targets,
    Session: session_traffic.Session,
    SessionSubscription: session_traffic.SessionSubscription,
    Unfinished: session_traffic.Unfinished,
}
VALUES = Message | RetainedMessage | EnvelopeTemplate | Delivery | Losses  # and dataclasses, and named tuples
PARTS = (
    "queues",
    "exchanges",
    "groups",
    "messages",
    "streams",
    "epochs",
    "sessions",
    "retained",
    "publishing",
    "consuming",
    "settling",
)
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
        return foreign(value) if callable(value) else given(value)


def given(value: Any) -> Any:
    """What a front-end gets of a value."""
    if isinstance(value, Deliveries):
        return value._sink
    stated = next((stated for kind, stated in STATED.items() if isinstance(value, kind)), None)
    if stated is not None:
        return _handles.setdefault(id(value), Handle(value, stated))
    if isinstance(value, str | bytes | VALUES) or hasattr(value, "_fields") or is_dataclass(value):
        return value
    if isinstance(value, Mapping):
        return {given(key): given(each) for key, each in value.items()}
    if isinstance(value, Iterator):
        return map(given, value)
    if isinstance(value, Collection):
        return tuple(map(given, value)) if isinstance(value, tuple) else list(map(given, value))
    if type(value).__module__.split(".")[0] in ("queue_manager", "storage"):
        raise AssertionError(f"{type(value).__name__} crosses the client")
    return value


def taken(value: Any) -> Any:
    """What the core gets of what a front-end gives."""
    if isinstance(value, Handle):
        return value._of
    if hasattr(value, "deliver"):
        return _handles.setdefault(id(value), Deliveries(value))
    if inspect.isroutine(value):
        return lambda *arguments: value(*map(given, arguments))
    if isinstance(value, str | bytes | Mapping) or hasattr(value, "_fields") or is_dataclass(value):
        return value
    if isinstance(value, tuple):
        return tuple(map(taken, value))
    return list(map(taken, value)) if isinstance(value, Iterable) else value


class Deliveries:
    """A sink, or the link of a session, that the core calls, for one that front-ends have."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._sink, name)
        return lambda *arguments: call(*map(given, arguments))


def foreign(found: Callable[..., Any]) -> Callable[..., Any]:
    """A call of the core, for front-ends."""

    def call(*arguments: Any, **named: Any) -> Any:
        result = found(*map(taken, arguments), **{key: taken(value) for key, value in named.items()})
        if isinstance(result, Answer):
            return result.map(given)
        return awaited(result) if inspect.iscoroutine(result) else given(result)

    return call


async def awaited(work: Coroutine[Any, Any, Any]) -> Any:
    return given(await work)


class Foreign:
    """A part of the local client behind handles."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        return foreign(found) if callable(found) else given(found)


class ForeignClient(ShardClient):
    """The local client behind handles."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        for name in PARTS:
            setattr(self, name, Foreign(getattr(self, name)))


@pytest.fixture(params=["near", "far", 1, 2])
async def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    client: type[ShardClient] = ForeignClient
    if request.param != "near":
        distance = Distance(None if request.param == "far" else request.param)
        client = distant_client(distance, ForeignClient)
    monkeypatch.setattr("broker.app.ShardClient", client)
    listeners = ListenersSettings(
        mqtt=MqttListenerSettings(port=0),
        amqp=AmqpListenerSettings(port=0),
        http=HttpListenerSettings(port=0),
        mqcore=MqcoreListenerSettings(port=0),
    )
    settings = Settings(storage=StorageSettings(url="memory:"), listeners=listeners)
    async with Broker(settings) as broker:
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


async def test_sessions_work_with_what_is_stated(broker: Broker) -> None:
    def client() -> None:
        never = b"\x11\xff\xff\xff\xff"
        device = RawMqtt(broker.ports["mqtt"])
        reader = RawMqtt(broker.ports["mqtt"], client_id="reader", props=never)
        reader.send_bytes(subscribe("plant/+", 1))
        reader.expect(SUBACK)
        device.send_bytes(publish("plant/a", b"live", qos=0))
        assert reader.expect(PUBLISH).body.endswith(b"live")
        reader.drop()
        for number, retain in enumerate((False, True), 1):
            body = b"kept %d" % number
            device.send_bytes(publish("plant/a", body, qos=1, packet_id=number, retain=retain))
            device.expect(PUBACK)
        back = RawMqtt(broker.ports["mqtt"], version=None)
        back.send_bytes(connect(client_id="reader", flags=0, props=never))
        assert back.expect(CONNACK).body[0] == 1
        deliveries = [back.expect(PUBLISH) for _ in range(2)]
        assert [each.body[-6:] for each in deliveries] == [b"kept 1", b"kept 2"]
        for number in (1, 2):
            back.send_bytes(acknowledgement(PUBACK, number))
        back.drop()
        device.drop()

    await asyncio.to_thread(client)
    assert await broker.admin.queues() == []


async def test_http_and_administration_work_with_what_is_stated(broker: Broker) -> None:
    urls = {name: f"http://127.0.0.1:{broker.ports[name]}" for name in ("http", "mqcore")}
    await broker.admin.declare_exchange(ExchangeDeclaration(name="bids", type="topic"))

    def client() -> None:
        with httpx.Client(base_url=urls["mqcore"], trust_env=False, timeout=20) as mq:
            assert mq.put("/jobs").status_code == 201
            for body in (b"one", b"two"):
                assert mq.post("/jobs/messages", content=body).status_code == 201
            fetched = mq.get("/jobs/messages")
            assert fetched.content == b"one"
            message = fetched.headers["x-message-id"]
            assert mq.delete(f"/jobs/messages/{message}").status_code == 204
        with httpx.Client(base_url=urls["http"], trust_env=False, timeout=20) as api:
            for path in ("queues/jobs", "queues/jobs/groups", "queues/jobs/messages", "queues/jobs/epochs"):
                assert api.get(f"/api/v1/{path}").status_code == 200, path
            for path in (
                "overview",
                "queues",
                "exchanges",
                "bindings",
                "connections",
                "sessions",
                "retained",
            ):
                assert api.get(f"/api/v1/{path}").status_code == 200, path
            assert api.post("/api/v1/queues/jobs/messages", json={"body": "three"}).status_code == 200
            for path in ("/", "/queues", "/queues/jobs", "/exchanges", "/sessions", "/metrics"):
                assert api.get(path).status_code == 200, path

    await asyncio.to_thread(client)
    await broker.admin.declare("copies")
    assert await broker.admin.copy("jobs", "copies") == 2
    assert await broker.admin.move("jobs", "copies") == 2
    assert (await broker.admin.queue("copies")).ready == 4
