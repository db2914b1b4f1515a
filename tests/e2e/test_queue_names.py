"""Names that RabbitMQ's clients give queues, wherever such a name goes: addresses, paths, keys, labels."""

import json
from urllib.parse import quote

import httpx
import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from config.name_rules import queue_level
from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import user_property

NAMES = {
    "a slash": "team/orders",
    "slashes alone": "//",
    "wildcards": "a#b+c*",
    "a wildcard alone": "#",
    "a verb": "$ack",
    "a percent sign": "50%",
    "a code": "a%2Fb",
    "marks": """it's "so" \\ <b>&amp;?x=1;""",
    "other letters": "größe/漢字 #1",
    "a tab": "a\tb",
    "255 bytes": "é/" * 85,
}


@pytest.fixture(params=NAMES.values(), ids=list(NAMES))
def odd(request, name):
    """A name of the test, with something in it."""
    return f"{request.param}{name}" if len(request.param) < 100 else request.param


@pytest.fixture
def http(broker):
    """RabbitMQ's API and ours."""
    with httpx.Client(
        base_url=broker.http_url, trust_env=False, auth=("guest", "guest"), timeout=10
    ) as client:
        yield client


def ok(answer):
    """The answer of a call that went well."""
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def test_a_queue_of_any_name_is_declared_published_to_consumed_bound_and_deleted(channel, odd):
    assert channel.queue_declare(odd).method.queue == odd
    channel.queue_bind(odd, "amq.direct", odd[:100])
    amqp.publish(channel, odd, "by name")
    channel.basic_publish("amq.direct", odd[:100], b"by binding")
    method, _, body = channel.basic_get(odd, auto_ack=True)
    assert (method.routing_key, body) == (odd, b"by name")
    consumer = Collector(channel, odd, ack=True)
    consumer.wait(1)
    assert consumer.bodies() == ["by binding"]
    consumer.cancel()
    amqp.publish(channel, odd, "left")
    assert amqp.count(channel, odd) == 1
    assert channel.queue_delete(odd).method.message_count == 1


def test_dead_letters_go_to_a_queue_of_any_name(channel, odd, queue):
    channel.queue_declare(odd)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": odd}
    channel.queue_declare(f"{queue}-source", arguments=arguments, auto_delete=True)
    amqp.publish(channel, f"{queue}-source", "dead")
    channel.basic_reject(channel.basic_get(f"{queue}-source")[0].delivery_tag, requeue=False)
    _, properties, body = channel.basic_get(odd, auto_ack=True)
    assert (body, properties.headers["x-death"][0]["queue"]) == (b"dead", f"{queue}-source")
    channel.basic_publish("", odd, b"back")
    channel.queue_delete(odd)


@pytest.mark.extension
def test_the_address_of_any_name_has_its_codes_in_mqtt_and_amqp(channel, odd, mqtt):
    address = f"$queue/{queue_level(odd)}"
    channel.queue_declare(odd)
    subscriber = mqtt(manual_ack=True)
    subscriber.subscribe(f"{address}/#", user=[("consumer-group", "readers")])
    amqp.publish(channel, odd, "by name")
    assert mqtt().publish(f"{address}/eu/1", "by address") == 0
    if len(address) < 250:
        amqp.publish(channel, f"{address}/us", "over AMQP")
        first, second, third = subscriber.take(3)
        assert (third.topic, third.payload) == (f"{address}/us", b"over AMQP")
        assert subscriber.settle("ack", third) == 0
    else:
        first, second = subscriber.take(2)
    assert (first.topic, first.payload) == (address, b"by name")
    assert (second.topic, second.payload) == (f"{address}/eu/1", b"by address")
    assert user_property(first, "queue") == odd
    assert subscriber.settle("ack", first) == 0
    assert subscriber.settle("ack", second) == 0
    channel.queue_delete(odd)


@pytest.mark.extension
def test_a_consumer_of_the_address_gets_what_its_pattern_matches(channel, mqtt, name):
    queue = f"team/{name}"
    channel.queue_declare(queue)
    for spelling in ("%2F", "%2f"):
        consumer = Collector(
            channel, f"$queue/team{spelling}{name}/eu/#", arguments={"x-consumer-group": spelling}
        )
        mqtt().publish(f"$queue/team%2F{name}/eu/1", "here")
        mqtt().publish(f"$queue/team%2f{name}/us", "not here")
        assert [delivery.body for delivery in consumer.wait(1)] == [b"here"]
        consumer.cancel()
        channel.queue_purge(queue)
    subscriber = mqtt()
    subscriber.subscribe(f"$queue/team%2f{name}/+/2")
    mqtt().publish(f"$queue/team%2F{name}/eu/2", "spelt otherwise")
    assert subscriber.take_one().topic == f"$queue/team%2f{name}/eu/2"
    channel.queue_delete(queue)


@pytest.mark.extension
def test_no_queue_is_called_like_an_address(channel, amqp_connect):
    for refused in ("$queue", "$queue/a", "a\0b", "a\x1eb", "a\x1fb"):
        with pytest.raises(amqp.ChannelClosedByBroker) as closed:
            amqp_connect().channel().queue_declare(refused)
        assert closed.value.reply_code == 406


@pytest.mark.extension
def test_a_queue_of_any_name_is_found_under_its_path_in_every_api(channel, odd, http):
    channel.queue_declare(odd)
    path = quote(odd, safe="")
    ours, theirs = f"/api/v1/queues/{path}", f"/api/queues/%2F/{path}"
    ok(http.post(f"{ours}/messages", json={"body": "first", "topic": f"$queue/{queue_level(odd)}/eu"}))
    ok(
        http.post(
            "/api/exchanges/%2F/amq.default/publish",
            json={
                "properties": {},
                "routing_key": odd,
                "payload": "second",
                "payload_encoding": "string",
            },
        )
    )
    shown = ok(http.get(ours))
    assert (shown["name"], shown["ready"]) == (odd, 2)
    assert shown["topics"] == [f"$queue/{queue_level(odd)}/#"]
    assert [item["body"] for item in ok(http.get(f"{ours}/messages"))["items"]] == ["first", "second"]
    assert ok(http.get(theirs))["name"] == odd
    got = ok(
        http.post(f"{theirs}/get", json={"count": 2, "ackmode": "ack_requeue_false", "encoding": "auto"})
    )
    assert [message["payload"] for message in got] == ["first", "second"]
    assert odd in [item["name"] for item in ok(http.get("/api/queues/%2F"))]
    page = http.get(f"/queues/{path}")
    assert (page.status_code, "<b>" in page.text.partition("<main")[2][:2000]) == (200, False)
    ok(http.delete(theirs))
    assert http.get(ours).status_code == 404
    ok(http.put(ours, json={}))
    ok(http.delete(ours))


@pytest.mark.extension
def test_a_queue_of_any_name_is_one_line_in_the_metrics(channel, odd, http):
    channel.queue_declare(odd)
    amqp.publish(channel, odd, "x")
    labels = odd.replace("\\", "\\\\").replace('"', '\\"')
    lines = [line for line in http.get("/metrics/detailed").text.splitlines() if f'queue="{labels}"' in line]
    assert any(line.startswith("sluicemq_queue_ready") and line.endswith(" 1") for line in lines), lines
    channel.queue_delete(odd)


@pytest.mark.extension
def test_commands_take_a_queue_of_any_name(broker, odd):
    def run(*arguments):
        done = CliRunner().invoke(app, [*arguments, "--json", "--url", broker.http_url])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    run("queue", "declare", odd)
    run("pub", odd, "tea")
    assert [message["body"] for message in run("queue", "peek", odd)] == ["tea"]
    assert run("queue", "purge", odd) == {"count": 1}
    assert run("queue", "show", odd)["name"] == odd
    run("queue", "rm", odd)


@pytest.mark.extension
def test_mq_core_serves_a_queue_of_any_name(own_broker, amqp_connect):
    broker = own_broker({}, arguments=["--mqcore", "0"])
    channel = amqp_connect(broker).channel()
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.ports['mqcore']}", trust_env=False) as client:
        for odd in NAMES.values():
            path = f"/{quote(odd, safe='')}"
            ok(client.put(path))
            assert client.post(f"{path}/messages", content=b"hello").status_code < 300
            got = client.get(f"{path}/messages")
            assert (got.status_code, got.content) == (200, b"hello")
            message_id = quote(got.headers["x-message-id"], safe="")
            assert client.delete(f"{path}/messages/{message_id}").status_code == 204
            assert amqp.count(channel, odd) == 0
            assert client.delete(path).status_code == 204


def test_durable_queues_of_any_name_with_bindings_and_messages_are_there_after_a_crash(
    own_broker, amqp_connect
):
    broker = own_broker({})
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    for odd in NAMES.values():
        channel.queue_declare(odd, durable=True, arguments={"x-max-priority": 3})
        channel.queue_bind(odd, "amq.fanout")
        amqp.publish(channel, odd, f"for {odd}")
    amqp.publish(channel, "", "no queue")
    channel.basic_publish("amq.fanout", "", b"for all", pika.BasicProperties(delivery_mode=2))
    broker.kill9()
    broker.start()
    channel = amqp_connect(broker).channel()
    for odd in NAMES.values():
        assert [channel.basic_get(odd, auto_ack=True)[2] for _ in range(2)] == [
            f"for {odd}".encode(),
            b"for all",
        ]
        channel.queue_delete(odd)
    assert broker.stop() == 0


@pytest.mark.extension
def test_names_and_addresses_of_another_virtual_host_are_its_own(channel, amqp_connect, http, name):
    ok(http.put(f"/api/vhosts/{name}"))
    queue = f"team/{name}%2F"
    channel.queue_declare(queue)
    there = amqp_connect(vhost=name).channel()
    there.confirm_delivery()
    there.queue_declare(queue)
    there.basic_publish("", f"$queue/{queue_level(queue)}/eu", b"there")
    consumer = Collector(there, f"$queue/{queue_level(queue)}/eu", arguments={"x-consumer-group": "readers"})
    assert [delivery.body for delivery in consumer.wait(1)] == [b"there"]
    shown = ok(http.get(f"/api/v1/vhosts/{name}/queues/{quote(queue, safe='')}"))
    assert (shown["name"], shown["topics"]) == (queue, [f"$queue/{queue_level(queue)}/#"])
    assert amqp.count(channel, queue) == 0
    consumer.cancel()
    channel.queue_delete(queue)
