"""What a publisher's connection keeps of earlier publishes is as a new connection would find it.

Every way to publish is used, so that whatever is kept about it is kept; then something changes; then the
publisher of before and a new one publish. Answers and receivers have to be the same for both.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqcoreListenerSettings,
    MqttListenerSettings,
    QueueManagerSettings,
    Settings,
    StorageSettings,
)
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import V5, V311, MqttClient
from tests.e2e.several_workers import several_workers

Publish = Callable[[str], str]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Served:
    """A broker: queues, subscribers and who changes something are at one worker, publishers at another, if
    there are several. `name_of` makes the identifier of a client that belongs to a worker.
    """

    ports: dict[str, int]
    publishers_ports: dict[str, int]
    name_of: Callable[[bool], str | None] = lambda is_publisher: None


class World:
    """A queue bound to a topic, an exchange with an alternate, and subscribers that come and go."""

    def __init__(self, broker: Served, name: str, stack: contextlib.ExitStack) -> None:
        self.broker = broker
        self.stack = stack
        self.is_full = False
        self.queue, self.other, self.left = name, f"{name}-other", f"{name}-left"
        self.exchange, self.alternate = f"{name}-x", f"{name}-ae"
        self.topic, self.key = f"{name}/t", f"{name}.t"
        self.http = stack.enter_context(
            httpx.Client(
                base_url=f"http://127.0.0.1:{broker.ports['http']}", auth=("guest", "guest"), trust_env=False
            )
        )
        self.admin = self.amqp()
        self.reader = self.admin.connection.channel()
        self.barrier = self.mqtt(is_publisher=True)
        self.subscribers: dict[str, MqttClient] = {}
        channel = self.admin
        for queue in (self.queue, self.other, self.left):
            channel.queue_declare(queue, durable=True)
        channel.queue_bind(self.queue, "amq.topic", self.key)
        channel.exchange_declare(self.alternate, "fanout", durable=True)
        channel.exchange_declare(
            self.exchange, "direct", durable=True, arguments={"alternate-exchange": self.alternate}
        )
        channel.queue_bind(self.queue, self.exchange, "k")
        channel.exchange_bind("amq.topic", self.exchange, "to topics")
        channel.queue_bind(self.queue, self.exchange, "to topics")
        self.subscribe("first")
        self.subscribe("of the exchange", "to topics")

    def amqp(self, *, is_publisher: bool = False) -> amqp.BlockingChannel:
        ports = self.broker.publishers_ports if is_publisher else self.broker.ports
        connection = amqp.connect(ports["amqp"])
        self.stack.callback(amqp.close_quietly, connection)
        return connection.channel()

    def mqtt(self, *, is_publisher: bool = False, **options: Any) -> MqttClient:
        client_id = self.broker.name_of(is_publisher)
        client = MqttClient(self.broker.ports["mqtt"], client_id=client_id, **options).connect()
        self.stack.callback(client.drop)
        return client

    def subscribe(
        self, who: str, topic_filter: str = "{}", qos: int = 1, how: Any = None, **options: Any
    ) -> None:
        client = self.mqtt(**options)
        client.subscribe(f"barrier/{self.queue}/{who}", 1)
        client.subscribe(topic_filter.format(self.topic), qos, **(how or {}))
        self.subscribers[who] = client

    def unsubscribe(self, who: str) -> None:
        self.subscribers[who].unsubscribe(self.topic)

    def received(self) -> list[tuple[str, str]]:
        """Who got what since the last call."""
        found: list[tuple[str, str]] = []
        for queue in (self.queue, self.other, self.left):
            try:
                while (got := self.reader.basic_get(queue, auto_ack=True))[0] is not None:
                    found.append((queue.removeprefix(self.queue), got[2].decode()))
            except amqp.ChannelClosedByBroker:  # there is no such queue any more
                self.reader = self.admin.connection.channel()
        for who, client in self.subscribers.items():
            self.barrier.publish(f"barrier/{self.queue}/{who}", "", 1)
            while not (message := client.take_one()).topic.startswith("barrier/"):
                found.append((who, message.payload.decode()))
        return sorted(found)

    # ways to publish; each makes a publisher of its own, which gives its answer

    def confirmed(self, exchange: str, key: str, *, tx: bool = False, varied: bool = False) -> Publish:
        channel = self.amqp(is_publisher=True)
        returned: list[str] = []
        channel.add_on_return_callback(lambda *got: returned.append("returned"))
        if tx:
            channel.tx_select()
        else:
            channel.confirm_delivery()

        def publish(body: str) -> str:
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(next(_numbers)) if varied else None
            )
            try:
                channel.basic_publish(exchange, key, body, properties, mandatory=not varied)
                if tx:
                    channel.tx_commit()
                    channel.connection.process_data_events(0)
            except pika.exceptions.UnroutableError:
                return "returned"
            except pika.exceptions.NackError:
                return "nack"
            except amqp.ChannelClosedByBroker as error:
                return str(error.reply_code)
            return returned.pop() if returned else "ack"

        return publish

    def device(self, topic: str, version: int = V5, *, retain: bool = False) -> Publish:
        client = self.mqtt(version=version, is_publisher=True)

        def publish(body: str) -> str:
            try:
                return hex(client.publish(topic, body, 1, retain=retain))
            except AssertionError:
                return "connection closed"

        return publish

    def by_http(self, exchange: str, key: str) -> Publish:
        path = f"/api/exchanges/%2F/{exchange}/publish"

        def publish(body: str) -> str:
            message = {
                "routing_key": key,
                "payload": body,
                "payload_encoding": "string",
                "properties": {"delivery_mode": 2},
            }
            answer = self.http.post(path, json=message)
            return f"{answer.status_code} {answer.json().get('routed')}"

        return publish

    def by_mqcore(self) -> Publish:
        url = f"http://127.0.0.1:{self.broker.ports['mqcore']}/{self.queue}/messages"
        client = self.stack.enter_context(httpx.Client(trust_env=False, timeout=20))
        return lambda body: str(client.post(url, content=body).status_code)

    def publishers(self) -> dict[str, Publish]:
        return {
            "queue": self.confirmed("", self.queue),
            "queue varied": self.confirmed("", self.queue, varied=True),
            "queue address": self.confirmed("", f"$queue/{self.queue}/eu"),
            "queue transaction": self.confirmed("", self.queue, tx=True),
            "exchange": self.confirmed(self.exchange, "k"),
            "exchange varied": self.confirmed(self.exchange, "k", varied=True),
            "topic": self.confirmed("amq.topic", self.key),
            "exchange to topics": self.confirmed(self.exchange, "to topics"),
            "topic varied": self.confirmed("amq.topic", self.key, varied=True),
            "topic transaction": self.confirmed("amq.topic", self.key, tx=True),
            "device": self.device(self.topic),
            "device 3.1.1": self.device(self.topic, V311),
            "device to queue": self.device(f"$queue/{self.queue}/eu"),
            "device retaining": self.device(f"{self.topic}", retain=True),
            "http topic": self.by_http("amq.topic", self.key),
            "http queue": self.by_http("amq.default", self.queue),
            "mq-core": self.by_mqcore(),
        }


# changes, each of the world when publishers know it already


def pause(world: World) -> None:
    world.http.post(f"/api/v1/queues/{world.queue}/pause", json={"publish": True}).raise_for_status()


def pause_and_resume(world: World) -> None:
    pause(world)
    world.http.post(f"/api/v1/queues/{world.queue}/resume", json={"publish": True}).raise_for_status()


def delete_queue(world: World) -> None:
    world.admin.queue_delete(world.queue)


def replace_queue(world: World) -> None:
    delete_queue(world)
    world.admin.queue_declare(world.queue, durable=True)


def limit_queue(world: World) -> None:
    settings = {"limits": {"max_depth": 1}, "overflow": "reject-publish"}
    world.http.put(f"/api/v1/queues/{world.queue}", json=settings).raise_for_status()
    world.is_full = True


def limit_by_policy(world: World, kind: str = "policies") -> None:
    definition = {"max-length": 1, "overflow": "reject-publish"}
    policy = {"pattern": f"^{world.queue}$", "definition": definition}
    world.http.put(f"/api/{kind}/%2F/{world.queue}", json=policy).raise_for_status()
    world.is_full = True


def limit_by_policy_no_more(world: World) -> None:
    limit_by_policy(world)
    world.http.delete(f"/api/policies/%2F/{world.queue}").raise_for_status()
    world.is_full = False


def have_another_alternate(world: World) -> None:
    world.admin.exchange_declare(f"{world.queue}-late", "fanout", durable=True)
    world.admin.queue_bind(world.other, f"{world.queue}-late")
    world.admin.exchange_delete(world.exchange)
    world.admin.exchange_declare(world.exchange, "direct", durable=True)
    unrouted = {"pattern": f"^{world.exchange}$", "definition": {"alternate-exchange": f"{world.queue}-late"}}
    world.admin.basic_publish(world.exchange, "k", b"")
    world.http.put(f"/api/policies/%2F/{world.queue}", json=unrouted).raise_for_status()


def bind_other_queue(world: World) -> None:
    world.admin.queue_bind(world.other, "amq.topic", world.key)
    world.admin.queue_bind(world.other, world.exchange, "k")


def bind_and_unbind_other_queue(world: World) -> None:
    bind_other_queue(world)
    world.admin.queue_unbind(world.other, "amq.topic", world.key)
    world.admin.queue_unbind(world.other, world.exchange, "k")


def unbind(world: World) -> None:
    world.admin.queue_unbind(world.queue, "amq.topic", world.key)
    world.admin.queue_unbind(world.queue, world.exchange, "k")


def unbind_with_alternate(world: World) -> None:
    unbind(world)
    world.admin.queue_bind(world.left, world.alternate, "")


def bind_exchange(world: World) -> None:
    world.admin.exchange_bind(world.alternate, "amq.topic", world.key)
    world.admin.exchange_bind(world.alternate, world.exchange, "k")
    world.admin.queue_bind(world.left, world.alternate, "")


def bind_to_topics(world: World) -> None:
    unbind(world)
    world.admin.exchange_bind("amq.topic", world.exchange, "k")
    world.subscribe("of another key", "k")


def unbind_from_topics(world: World) -> None:
    world.admin.exchange_unbind("amq.topic", world.exchange, "to topics")


def delete_exchange(world: World) -> None:
    world.admin.exchange_delete(world.exchange)


def delete_alternate(world: World) -> None:
    unbind_with_alternate(world)
    world.admin.exchange_delete(world.alternate)


def all_unsubscribe(world: World) -> None:
    world.unsubscribe("first")


def nobody_is_left(world: World) -> None:
    all_unsubscribe(world)
    unbind(world)


def unbound_and_joined(world: World, **options: Any) -> None:
    """No queue takes it, and a subscriber of another kind joins."""
    unbind(world)
    world.subscribe("second", **options)


CHANGES: dict[str, Callable[[World], None]] = {
    "nothing": lambda world: None,
    "policy limits": limit_by_policy,
    "operator's policy limits": lambda world: limit_by_policy(world, "operator-policies"),
    "policy limits no more": limit_by_policy_no_more,
    "policy gives an alternate": have_another_alternate,
    "queue paused": pause,
    "queue paused and resumed": pause_and_resume,
    "queue deleted": delete_queue,
    "queue replaced": replace_queue,
    "queue full": limit_queue,
    "other queue bound": bind_other_queue,
    "other queue bound and unbound": bind_and_unbind_other_queue,
    "unbound": unbind,
    "alternate takes over": unbind_with_alternate,
    "exchange bound to exchange": bind_exchange,
    "exchange leads to topics": bind_to_topics,
    "exchange leads to topics no more": unbind_from_topics,
    "exchange deleted": delete_exchange,
    "alternate deleted": delete_alternate,
    "subscriber leaves": all_unsubscribe,
    "nobody left": nobody_is_left,
    "subscriber joins": lambda world: world.subscribe("second"),
    "subscriber of 3.1.1 joins": lambda world: world.subscribe("second", version=V311),
    "subscriber of QoS 0 joins": lambda world: world.subscribe("second", qos=0),
    "wildcard joins": lambda world: world.subscribe("second", world.queue + "/#"),
    "identifier joins": lambda world: world.subscribe("second", how={"identifier": 3}),
    "share joins": lambda world: world.subscribe("second", "$share/g/{}"),
    "session joins": lambda world: world.subscribe("second", clean=False, SessionExpiryInterval=60),
    "unbound, subscriber of 3.1.1 joins": lambda world: unbound_and_joined(world, version=V311),
    "unbound, identifier joins": lambda world: unbound_and_joined(world, how={"identifier": 3}),
    "unbound, share joins": lambda world: unbound_and_joined(world, topic_filter="$share/g/{}"),
    "unbound, session joins": lambda world: unbound_and_joined(world, clean=False, SessionExpiryInterval=60),
}

OF_SUBSCRIBERS = [change for change in CHANGES if change.endswith(("joins", "leaves")) and "," not in change]


@contextlib.contextmanager
def one_process(directory: Path) -> Iterator[Served]:
    config = {"queue_manager": {"auto_create": False}}  # what one publish makes, the next would find
    process = BrokerProcess(directory, config, arguments=["--mqcore", "0"])
    process.start()
    yield Served(process.ports, process.ports)
    assert process.stop() == 0


@contextlib.contextmanager
def two_workers() -> Iterator[Served]:
    settings = Settings(
        storage=StorageSettings(url="memory:"),
        listeners=ListenersSettings(
            mqtt=MqttListenerSettings(port=0),
            amqp=AmqpListenerSettings(port=0),
            http=HttpListenerSettings(port=0),
            mqcore=MqcoreListenerSettings(port=0),
        ),
        queue_manager=QueueManagerSettings(auto_create=False),
    )
    with several_workers(2, settings) as workers:
        here, there = [broker.ports for broker in workers.brokers]
        yield Served(
            here, there, lambda is_publisher: workers.client_of(is_publisher, f"kept{next(_numbers)}")
        )


@pytest.fixture(scope="module", params=["one process", "two workers"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    is_one = request.param == "one process"
    with one_process(tmp_path_factory.mktemp("kept")) if is_one else two_workers() as served:
        yield served


@pytest.fixture
def world(broker: Served, name: str) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        world = World(broker, name, stack)
        yield world
        channel = world.amqp()
        for queue in (world.queue, world.other, world.left):
            channel.queue_delete(queue)
        for exchange in (world.exchange, world.alternate):
            channel.exchange_delete(exchange)


def outcomes(world: World, publishers: dict[str, Publish]) -> dict[str, Any]:
    """The answer and the receivers of a publish by each way."""
    found = {}
    for way, publish in publishers.items():
        if world.is_full:
            amqp.publish(world.admin, world.queue, "full")
        found[way] = publish("x"), world.received()
    return found


@pytest.mark.timeout(120, method="signal")
@pytest.mark.parametrize(
    ("change", "is_bound"),
    [*((change, True) for change in CHANGES), *((change, False) for change in OF_SUBSCRIBERS)],
)
def test_after_a_change_a_publisher_of_before_does_as_a_new_one(
    world: World, change: str, is_bound: bool
) -> None:
    if not is_bound:
        unbind(world)
    before = world.publishers()
    for _ in range(2):  # what is kept is used
        for publish in before.values():
            publish("x")
        world.received()
    CHANGES[change](world)
    world.received()
    kept = outcomes(world, before)
    assert kept == outcomes(world, world.publishers())
