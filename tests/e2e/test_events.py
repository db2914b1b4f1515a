"""`amq.rabbitmq.event`: what the broker tells of itself, under RabbitMQ's keys and headers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import argon2
import httpx
import pika
import pytest

from config.access_settings import UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.extension
EVENTS = "amq.rabbitmq.event"

Told = list[tuple[str, dict[str, Any]]]


class Watcher:
    """A queue bound to the exchange of events."""

    def __init__(self, channel: amqp.BlockingChannel, key: str = "#", queue: str = "") -> None:
        self.channel = channel
        durable = bool(queue)
        self.queue = channel.queue_declare(queue, exclusive=not durable, durable=durable).method.queue
        channel.queue_bind(self.queue, EVENTS, key)

    def take(self, *keys: str, about: str = "") -> list[dict[str, Any]]:
        """The headers of the next events with these keys, in order; others are passed over, and so are those
        with `about` in no header.
        """
        found: list[dict[str, Any]] = []

        def look() -> bool:
            delivery = amqp.get(self.channel, self.queue)
            if delivery is None:
                return False
            if delivery.method.routing_key == keys[len(found)] and about in str(delivery.headers):
                found.append(delivery.headers)
            return len(found) == len(keys)

        try:
            until(look)
        except AssertionError:
            raise AssertionError(f"no {keys[len(found)]}, only {found}") from None
        return found


@pytest.fixture
def watcher(channel: amqp.BlockingChannel) -> Watcher:
    return Watcher(channel)


def test_a_connection_and_what_it_does_are_told(watcher, amqp_connect, broker, name):
    connection = amqp_connect()
    [success, created] = watcher.take("user.authentication.success", "connection.created")
    assert (success["name"], success["connection_name"]) == ("guest", created["name"])
    assert created["name"].endswith(f" -> 127.0.0.1:{broker.amqp_port}")
    assert (created["user"], created["vhost"], created["protocol"]) == ("guest", "/", "AMQP 0-9-1")
    assert created["client_properties"]["product"].startswith("Pika")
    assert created["timestamp_in_ms"] >= created["connected_at"]
    channel = connection.channel()
    [opened] = watcher.take("channel.created")
    assert (opened["number"], opened["connection"]) == (1, created["pid"])
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 3})
    channel.exchange_declare(f"{name}-x", "topic")
    channel.queue_bind(name, f"{name}-x", "a.#", arguments={"k": 1})
    tag = channel.basic_consume(name, print)
    [queue, exchange, binding, consumer] = watcher.take(
        "queue.created", "exchange.created", "binding.created", "consumer.created"
    )
    assert (queue["name"], queue["durable"], queue["arguments"]) == (name, True, {"x-max-length": 3})
    assert (queue["type"], queue["user_who_performed_action"]) == ("rabbit_classic_queue", "guest")
    assert (exchange["name"], exchange["type"]) == (f"{name}-x", "topic")
    assert (binding["source_name"], binding["destination_name"]) == (f"{name}-x", name)
    assert (binding["routing_key"], binding["arguments"]) == ("a.#", {"k": 1})
    assert (consumer["queue"], consumer["consumer_tag"], consumer["ack_required"]) == (name, tag, True)
    channel.basic_cancel(tag)
    channel.queue_unbind(name, f"{name}-x", "a.#", arguments={"k": 1})
    channel.exchange_delete(f"{name}-x")
    channel.queue_delete(name)
    deleted = watcher.take("consumer.deleted", "binding.deleted", "exchange.deleted", "queue.deleted")
    assert [headers["user_who_performed_action"] for headers in deleted] == ["guest"] * 4
    channel.queue_declare(f"{name}-mine", exclusive=True)
    connection.close()
    [closed] = watcher.take("connection.closed")
    assert (closed["name"], closed["pid"]) == (created["name"], created["pid"])
    [gone] = watcher.take("queue.deleted", about=f"{name}-mine")
    assert gone["user_who_performed_action"] == "rmq-internal"


def test_a_refused_login_is_told(watcher, broker):
    with pytest.raises(amqp.AMQPError):
        amqp.connect(broker.amqp_port, user="mallory", password="wrong")
    [failure] = watcher.take("user.authentication.failure")
    assert (failure["name"], failure["error"]) == ("mallory", "wrong user name or password")


def test_an_mqtt_client_is_told(watcher, mqtt, name):
    device = mqtt(client_id=name)
    [created] = watcher.take("connection.created")
    assert (created["protocol"], created["client_properties"]) == ("MQTT 5", {"client_id": name})
    device.subscribe(f"$queue/{name}", user=[("consumer-group", "g")])
    [consumer] = watcher.take("consumer.created")
    assert (consumer["queue"], consumer["group"]) == (name, "g")
    device.disconnect()
    [closed] = watcher.take("connection.closed")
    assert (closed["client_properties"]["client_id"], closed["reason"]) == (name, "disconnected")


def test_policies_and_virtual_hosts_are_told(watcher, broker, amqp_connect, name):
    with httpx.Client(base_url=f"{broker.http_url}/api", auth=("guest", "guest"), trust_env=False) as http:
        policy = {"pattern": f"^{name}", "definition": {"max-length": 5}, "apply-to": "queues"}
        http.put(f"/policies/%2F/{name}", json=policy).raise_for_status()
        http.delete(f"/policies/%2F/{name}").raise_for_status()
        [made, cleared] = watcher.take("policy.set", "policy.cleared")
        assert (made["name"], made["definition"]) == (name, {"max-length": 5})
        assert (cleared["name"], cleared["vhost"]) == (name, "/")
        http.put(f"/vhosts/{name}", json={"description": "d"}).raise_for_status()
        http.put(f"/vhost-limits/{name}/max-queues", json={"value": 7}).raise_for_status()
        made, bounded = watcher.take("vhost.created", "vhost.limits.set")
        assert (made["name"], made["description"]) == (name, "d")
        assert (bounded["vhost"], bounded["max-queues"]) == (name, 7)
        other = amqp_connect(vhost=name).channel()
        other.queue_declare(name)
        [queue] = watcher.take("queue.created")
        assert (queue["name"], queue["vhost"]) == (name, name)
        http.delete(f"/vhosts/{name}").raise_for_status()
        watcher.take("queue.deleted", "vhost.deleted")


def _save(path: Path, *users: dict[str, Any]) -> None:
    save_users(path, UsersSettings.model_validate({"users": users}))


@pytest.fixture
def with_users(own_broker: Callable[..., BrokerProcess], tmp_path: Path) -> BrokerProcess:
    password = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("pw")
    everything = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    _save(
        tmp_path / "users.yaml",
        {"name": "root", "password": password, "tags": ["administrator"], "permissions": [everything]},
        {"name": "app", "password": password, "permissions": [{**everything, "read": "^app"}]},
    )
    return own_broker({"access": {"users_file": str(tmp_path / "users.yaml")}})


def test_accounts_are_told(with_users, amqp_connect):
    channel = amqp_connect(with_users, user="root", password="pw").channel()
    watcher = Watcher(channel, "*.#")
    address = f"{with_users.http_url}/api/v1/users/ada"
    permission = {"vhost": "/", "configure": "", "write": "^a", "read": ""}

    def change(method: str, **wanted: Any) -> None:
        answer = httpx.request(method, address, json=wanted or None, auth=("root", "pw"), trust_env=False)
        answer.raise_for_status()

    change("PUT", password="p1", tags=["monitoring"], permissions=[permission])
    [created, tags, granted] = watcher.take("user.created", "user.tags.set", "permission.created")
    assert (created["name"], created["user_who_performed_action"]) == ("ada", "root")
    assert tags["tags"] == ["monitoring"]
    assert (granted["user"], granted["vhost"], granted["write"]) == ("ada", "/", "^a")
    change("PUT", password="p2", max_connections=3)
    [changed, bounded] = watcher.take("user.password.changed", "user.limits.set")
    assert (changed["name"], bounded["max-connections"]) == ("ada", 3)
    change("PUT", permissions=[])
    assert watcher.take("permission.deleted")[0]["user"] == "ada"
    change("DELETE")
    assert watcher.take("user.deleted")[0]["name"] == "ada"


def test_events_are_for_who_may_read_the_exchange_and_published_by_nobody(with_users, amqp_connect):
    app = amqp_connect(with_users, user="app", password="pw")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        Watcher(app.channel(), queue="app")
    assert refused.value.reply_code == 403
    root = amqp_connect(with_users, user="root", password="pw")
    channel = root.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_publish(EVENTS, "queue.created", b"")
    assert refused.value.reply_code == 403


def test_events_that_wait_are_there_after_a_kill(own_broker, amqp_connect):
    broker = own_broker()
    channel = amqp_connect(broker).channel()
    Watcher(channel, "queue.*", "audit")
    channel.queue_declare("made", durable=True)
    channel.confirm_delivery()
    amqp.publish(channel, "made", "x")
    broker.kill9()
    broker.start()
    channel = amqp_connect(broker).channel()
    delivery = amqp.get(channel, "audit")
    assert delivery is not None
    assert (delivery.method.routing_key, delivery.headers["name"]) == ("queue.created", "made")
    channel.queue_delete("made")
    until(lambda: amqp.count(channel, "audit") == 1)
    metrics = httpx.get(f"{broker.http_url}/metrics", trust_env=False).text
    assert "sluicemq_events_published_total 1\n" in metrics
    assert "sluicemq_events_dropped_total 0\n" in metrics
