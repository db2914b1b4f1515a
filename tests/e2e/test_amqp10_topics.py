"""AMQP 1.0: topics as JMS has them, and subscriptions to them, as Qpid JMS asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient
from tests.e2e.raw_amqp10 import RawAmqp10, message
from tests.waiting import until

Connect = Callable[..., RawAmqp10]

DURABLE = {"durable": 2, "expiry_policy": t.Symbol("never"), "distribution_mode": t.Symbol("copy")}

NO_LOCAL = {t.Symbol("no-local"): t.Described(t.Symbol("apache.org:no-local-filter:list"), [])}


def selected(text: str) -> dict[t.Symbol, t.Described]:
    return {t.Symbol("jms-selector"): t.Described(t.Symbol("apache.org:selector-filter:string"), text)}


def kinds(*names: str) -> tuple[t.Symbol, ...]:
    return tuple(t.Symbol(name) for name in ("topic", *names))


def opened(connect: Connect, container: str = "program", to: Any = None) -> RawAmqp10:
    client = connect(to, container=container) if to else connect(container=container)
    client.begin()
    return client


def publisher(client: RawAmqp10, topic: str) -> None:
    target = p.Target(topic, capabilities=kinds())
    attach = p.Attach("p", 0, c.SENDER, source=p.Source(), target=target, initial_delivery_count=0)
    assert client.attach(attach).target is not None
    client.expect(p.Flow)


def publish(client: RawAmqp10, *bodies: bytes, **sections: Any) -> None:
    ids = [client.transfer(message(body, **sections)) for body in bodies]
    assert client.outcomes(len(ids)) == dict.fromkeys(ids, p.Accepted())


def detach(client: RawAmqp10, handle: int, *, closed: bool) -> None:
    client.send(0, p.Detach(handle, closed=closed))
    client.expect(p.Detach)


def durable(
    client: RawAmqp10, topic: str, handle: int = 1, name: str = "sub", *more: str, **source: Any
) -> None:
    client.attach_receiver(topic, handle, name=name, capabilities=kinds(*more), **DURABLE, **source)
    client.give_credit(10, handle)


def is_there(client: RawAmqp10, name: str, handle: int = 9) -> bool:
    """Whether a lookup finds a durable subscription, which it leaves."""
    answer = client.attach(p.Attach(name, handle, c.RECEIVER, source=None, target=p.Target()))
    if answer.source is None:
        error = client.expect(p.Detach).error
        assert error is not None
        assert error.condition == c.NOT_FOUND
        client.send(0, p.Detach(handle, closed=True))
        return False
    assert (answer.source.durable, answer.source.expiry_policy) == (2, "never")
    detach(client, handle, closed=False)
    return True


def test_each_subscriber_of_a_topic_gets_what_is_published(
    raw_amqp10: Connect, mqtt: Callable[..., MqttClient], name: str
) -> None:
    client = opened(raw_amqp10)
    for handle in (1, 2):
        client.attach_receiver(f"{name}.a", handle, capabilities=kinds(), credit=5)
    client.attach_receiver(f"{name}.*", 3, capabilities=kinds(), credit=5)
    client.attach_receiver(f"/exchanges/amq.topic/{name}.a", 4, credit=5)
    other = opened(raw_amqp10, "other")
    publisher(other, f"{name}.a")
    publish(other, b"m")
    assert {client.receive().transfer.handle for _ in range(4)} == {1, 2, 3, 4}
    mqtt().publish(f"{name}/a", b"from MQTT", qos=1)
    assert [client.receive().body for _ in range(4)] == [b"from MQTT"] * 4


def test_a_topic_takes_messages_without_subscribers(raw_amqp10: Connect, name: str) -> None:
    client = opened(raw_amqp10)
    publisher(client, name)
    publish(client, b"1", b"2")
    client.attach_sender(None, 5)
    number = client.transfer(message(b"3", to=name, annotations={"x-opt-jms-dest": t.Byte(1)}), 5)
    assert client.outcomes(1) == {number: p.Accepted()}


def test_the_queue_of_a_subscriber_goes_with_its_link(raw_amqp10: Connect, name: str) -> None:
    client = opened(raw_amqp10)
    publisher(client, name)
    client.attach_receiver(name, capabilities=kinds())
    publish(client, b"kept by nobody")
    detach(client, 1, closed=True)
    client.attach_receiver(name, 2, capabilities=kinds(), credit=1)
    assert client.is_silent()


def test_a_durable_subscription_stays_until_its_link_is_closed(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker({})
    client = opened(raw_amqp10, to=broker)
    durable(client, "news")
    detach(client, 1, closed=False)
    publisher(client, "news")
    publish(client, b"1", b"2")
    assert broker.stop() == 0
    broker.start()
    client = opened(raw_amqp10, to=broker)
    durable(client, "news")
    assert [client.receive().body for _ in range(2)] == [b"1", b"2"]
    client.settle(0, p.Accepted(), 1)
    detach(client, 1, closed=False)
    assert is_there(client, "sub")
    stranger = opened(raw_amqp10, "another program", to=broker)
    assert not is_there(stranger, "sub")
    answer = client.attach(p.Attach("sub", 4, c.RECEIVER, source=None, target=p.Target()))
    assert answer.source.address == "news"
    detach(client, 4, closed=True)
    until(lambda: not is_there(client, "sub"))  # right after a start a deletion waits for what was read


def test_a_subscription_with_a_consumer_is_not_looked_up_and_has_no_second(
    raw_amqp10: Connect, name: str
) -> None:
    client = opened(raw_amqp10, name)
    durable(client, name)
    assert client.attach(p.Attach("sub", 2, c.RECEIVER, source=None, target=p.Target())).source is None
    error = client.expect(p.Detach).error
    assert error is not None
    assert error.condition == c.RESOURCE_LOCKED
    source = p.Source(name, capabilities=kinds(), **DURABLE)  # type: ignore[arg-type]
    assert client.attach(p.Attach("sub", 3, c.RECEIVER, source=source, target=p.Target())).source is None


@pytest.mark.parametrize("change", ["topic", "selector", "no-local"])
def test_a_durable_subscription_to_something_else_ends_the_one_before(
    raw_amqp10: Connect, name: str, change: str
) -> None:
    client, other = opened(raw_amqp10, name), opened(raw_amqp10, f"{name}-2")
    durable(client, name, filter=selected("colour = 'red'"))
    topic = f"{name}.b" if change == "topic" else name
    filters = selected("colour = 'blue'" if change == "selector" else "colour = 'red'")
    if change == "no-local":
        filters |= NO_LOCAL
    source = p.Source(topic, filter=filters, capabilities=kinds(), **DURABLE)  # type: ignore[arg-type]
    attach = p.Attach("sub", 3, c.RECEIVER, source=source, target=p.Target())
    assert client.attach(attach).source is None  # while it has a consumer
    error = client.expect(p.Detach).error
    assert error is not None
    assert error.condition == c.PRECONDITION_FAILED
    client.send(0, p.Detach(3, True))
    detach(client, 1, closed=False)
    publisher(other, name)
    publish(other, b"before", application={"colour": "red"})
    assert client.attach(attach._replace(handle=4)).source is not None
    client.give_credit(10, 4)
    assert client.is_silent()
    other.attach_sender(f"/exchanges/amq.topic/{topic}", 5)
    other.transfer(message(b"after", application={"colour": "blue" if change == "selector" else "red"}), 5)
    assert client.receive().body == b"after"


def test_a_subscriber_that_wants_nothing_local_gets_what_other_containers_publish(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker({})
    client = opened(raw_amqp10, "mine", broker)
    answer = client.attach_receiver("news", 1, capabilities=kinds(), filter=NO_LOCAL, credit=10)
    assert answer.source.filter == NO_LOCAL
    durable(client, "news", 2, filter=NO_LOCAL)
    publisher(client, "news")
    publish(client, b"mine")
    client.transfer(message(b"each", subject="1"), settled=True)
    client.transfer(message(b"differs", subject="2"), settled=True)
    publish(client, b"mine")  # those before it were taken
    other = opened(raw_amqp10, "theirs", broker)
    publisher(other, "news")
    publish(other, b"theirs")
    assert [client.receive().body for _ in range(2)] == [b"theirs"] * 2
    detach(client, 2, closed=False)
    broker.stop()
    broker.start()
    client = opened(raw_amqp10, "mine", broker)
    publisher(client, "news")
    publish(client, b"while nobody receives")
    durable(client, "news", 2, filter=NO_LOCAL)
    assert client.receive().body == b"theirs"  # not settled before
    assert client.is_silent()


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "volatile"])
@pytest.mark.parametrize("is_global", [True, False], ids=["global", "of a container"])
def test_shared_subscriptions_give_each_message_to_one_link(
    raw_amqp10: Connect, name: str, is_durable: bool, is_global: bool
) -> None:
    first, second = opened(raw_amqp10, name), opened(raw_amqp10, f"{name}-2" if is_global else name)
    more = ("shared", "global") if is_global else ("shared",)
    link = f"{name}|{'global' if is_global else ''}{'' if is_durable else '-volatile'}"
    options = DURABLE if is_durable else {}
    for number, client in enumerate((first, second)):
        client.attach_receiver(name, 1, name=f"{link}{number}", capabilities=kinds(*more), **options)
        client.give_credit(1)
    publisher(first, name)
    first.transfer(message(b"1"), settled=True)
    first.transfer(message(b"2"), settled=True)
    assert {first.receive().body, second.receive().body} == {b"1", b"2"}
    for client in (first, second):
        client.settle(0, p.Accepted())
        detach(client, 1, closed=not is_durable)
    first.transfer(message(b"3"), settled=True)
    first.attach_receiver(name, 1, name=f"{link}0", capabilities=kinds(*more), credit=1, **options)
    assert first.is_silent() is not is_durable


def test_what_the_selector_of_a_subscription_leaves_out_is_not_kept(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str
) -> None:
    wanted = selected("colour = 'red'")
    client = opened(raw_amqp10, name)
    durable(client, name, filter=wanted)
    detach(client, 1, closed=False)
    publisher(client, name)
    publish(client, b"blue", application={"colour": "blue"})
    publish(client, b"red", application={"colour": "red"})
    queue = f"amq.sub:{name}:sub"
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
    durable(client, name, filter=wanted)
    assert client.receive().body == b"red"


def test_a_temporary_topic_is_one_of_the_client_s_own(raw_amqp10: Connect) -> None:
    client = opened(raw_amqp10)
    capability = (t.Symbol("temporary-topic"),)
    target = p.Target(dynamic=True, capabilities=capability)
    answer = client.attach(p.Attach("t", 0, c.SENDER, target=target, initial_delivery_count=0))
    client.expect(p.Flow)
    client.attach_receiver(answer.target.address, capabilities=capability, credit=1)
    other = opened(raw_amqp10, "other")
    other.attach_sender(None)
    other.transfer(message(b"answer", to=answer.target.address))
    assert client.receive().body == b"answer"


def test_a_plain_name_is_a_queue_where_the_client_says_so(raw_amqp10: Connect, queue: str) -> None:
    client = opened(raw_amqp10)
    capability = (t.Symbol("queue"),)
    target = p.Target(queue, capabilities=capability)
    attach = p.Attach("s", 0, c.SENDER, source=p.Source(), target=target, initial_delivery_count=0)
    assert client.attach(attach).target is not None
    client.expect(p.Flow)
    publish(client, b"1")
    client.attach_receiver(queue, capabilities=capability, credit=2)
    assert client.receive().body == b"1"
    client.attach_sender(None, 5)
    client.transfer(message(b"2", to=queue, annotations={"x-opt-jms-dest": t.Byte(0)}), 5, settled=True)
    assert client.receive().body == b"2"
