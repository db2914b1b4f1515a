"""Consumer groups that are not in use go, where their queue or their name says so; others stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient
from tests.waiting import until

LIBRARY_S = 5


@pytest.fixture
def timed(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return own_broker({"queue_manager": {"generated_group_expires": f"{LIBRARY_S}s"}}, timed=True)


@pytest.fixture
def api(timed: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{timed.http_url}/api", auth=("guest", "guest"), trust_env=False) as client:
        yield client


def groups(api: httpx.Client, queue: str) -> dict[str, int]:
    """How long the groups of a queue may be unused."""
    return {group["name"]: group["expires_ms"] for group in api.get(f"/v1/queues/{queue}/groups").json()}


def consume(channel: amqp.BlockingChannel, queue: str, group: str) -> amqp.Collector:
    return amqp.Collector(channel, queue, ack=True, arguments={"x-consumer-group": group})


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}])
def test_a_group_that_is_not_in_use_goes_after_the_time_of_its_queue(
    timed: BrokerProcess, api: httpx.Client, name: str, arguments: dict[str, str]
) -> None:
    channel = amqp.connect(timed.amqp_port).channel()
    channel.basic_qos(prefetch_count=10)
    channel.queue_declare(name, durable=True, arguments={**arguments, "x-group-expires": 6_000})
    channel.basic_publish("", name, b"x")
    for group in ("gone", "stays"):
        consume(channel, name, group).wait(1)
    amqp.connect(timed.amqp_port).channel().queue_declare(name, passive=True)
    until(lambda: groups(api, name) == {"gone": 6_000, "stays": 6_000})
    other = amqp.connect(timed.amqp_port).channel()
    other.basic_qos(prefetch_count=10)
    consume(other, name, "stays")
    channel.connection.close()
    timed.pass_time(7)
    until(lambda: groups(api, name) == {"stays": 6_000}, 40)
    assert "group.expired" in timed.log
    assert api.get(f"/v1/queues/{name}/groups/stays").json()["idle_ms"] < 6_000
    other.connection.close()


def test_groups_named_by_libraries_go_after_a_while_and_others_stay(
    timed: BrokerProcess, api: httpx.Client, name: str
) -> None:
    api.put(f"/v1/queues/{name}", json={})
    for client_id in ("mqttjs_0123abcd", "device-7"):
        client = MqttClient(timed.mqtt_port, client_id=client_id).connect()
        client.subscribe(f"$queue/{name}", qos=1)
        client.disconnect()
    assert groups(api, name) == {"mqttjs_0123abcd": LIBRARY_S * 1_000, "device-7": 0}
    timed.pass_time(LIBRARY_S + 1)
    until(lambda: groups(api, name) == {"device-7": 0}, 40)


def test_a_policy_has_groups_go_and_how_long_they_are_unused_is_shown(
    timed: BrokerProcess, api: httpx.Client, name: str
) -> None:
    channel = amqp.connect(timed.amqp_port).channel()
    channel.queue_declare(name, durable=True)
    api.put(f"/v1/queues/{name}/groups/kitchen", json={})
    channel.basic_publish("", name, b"x")
    assert groups(api, name) == {"kitchen": 0}
    definition = {"pattern": name, "definition": {"group-expires": 12_000}}
    assert api.put("/policies/%2F/groups", json=definition).status_code == 201
    assert groups(api, name) == {"kitchen": 12_000}
    timed.pass_time(6)
    ran = CliRunner().invoke(app, ["group", "ls", name, "--url", timed.http_url])
    [row] = [line.split() for line in ran.output.splitlines() if line.startswith("kitchen")]
    assert row[1] == "1"
    assert int(row[-1]) >= 6_000
    metrics = httpx.get(f"{timed.http_url}/metrics", trust_env=False).text
    assert f'sluicemq_group_idle_seconds{{queue="{name}",group="kitchen"}}' in metrics
    timed.pass_time(7)
    until(lambda: groups(api, name) == {}, 40)
    assert channel.queue_declare(name, passive=True).method.message_count == 1, "it is kept for others"
    channel.connection.close()
