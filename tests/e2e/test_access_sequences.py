"""No sequence of operations reaches a name that the permissions do not cover.

A user who may do anything with names that begin with `ours` tries all it can think of with those of others.
An administrator looks afterwards: their messages are there, no others are, and nothing else was made.
"""

import contextlib

import httpx
import pika
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.access.passwords import hashed
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient

PASSWORD = "pw"
SECRET = b"secret"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
OURS = {"configure": "^ours", "write": "^ours", "read": "^ours"}
THEIRS = ("theirs-q", "theirs-other")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sequences")
    kept = hashed(PASSWORD.encode())
    users = tuple(
        UserSettings(
            name=name, password=kept, tags=tags, permissions=(PermissionSettings(vhost="/", **granted),)
        )
        for name, granted, tags in (("admin", EVERYTHING, ("administrator",)), ("narrow", OURS, ()))
    )
    save_users(directory / "users.yaml", UsersSettings(users=users))
    process = BrokerProcess(
        directory, {"access": {"users_file": str(directory / "users.yaml"), "anonymous": "never"}}
    ).start()
    connection = amqp.connect(process.amqp_port, user="admin", password=PASSWORD)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("theirs-x", "topic", durable=True)
    for queue in THEIRS:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "theirs-x", "#")
        amqp.publish(channel, queue, SECRET)
    channel.queue_bind("theirs-q", "amq.topic", "theirs.#")
    connection.close()
    device = MqttClient(process.mqtt_port, username="admin", password=PASSWORD).connect()
    device.publish("theirs/kept", SECRET, retain=True)
    device.end()
    yield process
    process.kill9()


queues = st.sampled_from(["ours-a", "ours-b", *THEIRS, "made-up", ""])
exchanges = st.sampled_from(["ours-x", "ours-y", "theirs-x", "", "amq.topic", "amq.direct", "amq.fanout"])
keys = st.sampled_from(
    ["ours-a", "theirs-q", "theirs-other", "theirs.kept", "#", "*", "$queue/theirs-q/x", "k"]
)
topics = st.sampled_from(
    ["ours/a", "theirs/kept", "$queue/theirs-q", "$queue/theirs-q/$ack", "$queue/ours-a/x"]
)
filters = st.sampled_from(
    ["#", "+/kept", "theirs/#", "$share/ours/#", "$queue/theirs-q/#", "$share/ours/$queue/theirs-q", "ours/#"]
)


def declare(channel, queue, exchange, key):
    arguments = {"x-dead-letter-exchange": exchange, "x-message-ttl": 1}
    if key != "k":
        arguments["x-dead-letter-routing-key"] = key
    channel.queue_declare(queue, arguments=arguments)


def publish(channel, exchange, key, copy):
    properties = pika.BasicProperties(headers={"CC": [copy], "BCC": [copy]}, reply_to=copy)
    channel.basic_publish(exchange, key, b"intruder", properties)


def alternate(channel, exchange, other):
    channel.exchange_declare(exchange, "fanout", arguments={"alternate-exchange": other})


def look(channel, queue, reply_to):
    properties = pika.BasicProperties(reply_to=reply_to)
    channel.basic_publish("", f"$queue/{queue}/$browse", b"", properties)


def take(channel, queue):
    method, _, body = channel.basic_get(queue)
    assert body != SECRET
    if method is not None:
        channel.basic_reject(method.delivery_tag, requeue=False)


def consume(channel, queue):
    consumer = amqp.Collector(channel, queue)
    assert SECRET not in [delivery.body for delivery in consumer.wait_quiet()]
    consumer.cancel()
    channel.basic_recover(requeue=True)


def transact(channel, key):
    channel.connection.channel().tx_select()
    other = channel.connection.channel()
    other.tx_select()
    other.basic_publish("", key, b"intruder")
    other.tx_commit()


def call_http(url, kind, queue, other, address):
    """What administration and RabbitMQ's API would let somebody reach another's queue by."""
    calls = {
        "declare": ("PUT", f"/api/v1/queues/{queue}", {"dlq": other, "topics": [address], "capture": True}),
        "publish": ("POST", f"/api/v1/queues/{queue}/messages", {"body": "intruder", "topic": address}),
        "move": ("POST", f"/api/v1/queues/{queue}/move", {"to": other}),
        "copy": ("POST", f"/api/v1/queues/{queue}/copy", {"to": other}),
        "purge": ("POST", f"/api/v1/queues/{queue}/purge", None),
        "delete": ("DELETE", f"/api/v1/queues/{queue}", None),
        "redrive": ("POST", f"/api/v1/queues/{queue}/redrive-dead-letters", {"to": None}),
        "bind": ("POST", f"/api/bindings/%2f/e/theirs-x/q/{queue}", {"routing_key": "#"}),
        "look": ("GET", f"/api/v1/queues/{queue}/messages", None),
    }
    method, path, body = calls[kind]
    answer = httpx.request(method, url + path, json=body, auth=("narrow", PASSWORD), trust_env=False)
    assert SECRET.decode() not in answer.text


HTTP_KINDS = st.sampled_from(
    ["declare", "publish", "move", "copy", "purge", "delete", "redrive", "bind", "look"]
)
OPERATIONS = st.one_of(
    st.tuples(st.just(call_http), HTTP_KINDS, queues.filter(bool), queues, filters),
    st.tuples(st.just(declare), queues, exchanges, keys),
    st.tuples(st.just(publish), exchanges, keys, keys),
    st.tuples(st.just(alternate), exchanges, exchanges),
    st.tuples(st.just(look), queues, queues),
    st.tuples(st.just(take), queues),
    st.tuples(st.just(consume), queues.map(lambda name: f"$queue/{name}/#")),
    st.tuples(st.just(consume), queues),
    st.tuples(st.just(transact), keys),
    st.tuples(st.just(lambda c, q: c.queue_delete(q)), queues),
    st.tuples(st.just(lambda c, q: c.queue_purge(q)), queues),
    st.tuples(st.just(lambda c, q, x, k: c.queue_bind(q, x, k)), queues, exchanges, keys),
    st.tuples(st.just(lambda c, q, x, k: c.queue_unbind(q, x, k)), queues, exchanges, keys),
    st.tuples(st.just(lambda c, x: c.exchange_declare(x, "fanout")), exchanges),
    st.tuples(st.just(lambda c, x: c.exchange_delete(x)), exchanges),
    st.tuples(st.just(lambda c, d, s, k: c.exchange_bind(d, s, k)), exchanges, exchanges, keys),
    st.tuples(st.just("publish"), topics, st.booleans()),
    st.tuples(st.just("subscribe"), filters),
    st.tuples(st.just("will"), topics),
)


def run_mqtt(process, device, what, where, retain=False):
    if what == "publish":
        device.publish(where, b"intruder", retain=retain)
    elif what == "subscribe":
        device.subscribe(where)
    else:
        will = {"topic": where, "payload": b"intruder", "qos": 1}
        with contextlib.suppress(Exception):
            MqttClient(process.mqtt_port, username="narrow", password=PASSWORD, will=will).connect().drop()


def run(process, operations):
    connection = amqp.connect(process.amqp_port, user="narrow", password=PASSWORD)
    device = MqttClient(process.mqtt_port, username="narrow", password=PASSWORD).connect()
    channel = None
    for operation, *arguments in operations:
        if operation is call_http:
            call_http(process.http_url, *arguments)
            continue
        if isinstance(operation, str):
            run_mqtt(process, device, operation, *arguments)
            continue
        if connection.is_closed:
            connection = amqp.connect(process.amqp_port, user="narrow", password=PASSWORD)
        if channel is None or not channel.is_open:
            channel = connection.channel()
            channel.confirm_delivery()
        with contextlib.suppress(amqp.AMQPError):
            operation(channel, *arguments)
    while not device.messages.empty():
        message = device.messages.get()
        assert message.payload != SECRET
        assert not message.topic.startswith("theirs")
    amqp.close_quietly(connection)
    device.end()


def found(process):
    """The messages in the queues of others, and the names that there are, as the administrator sees them."""
    connection = amqp.connect(process.amqp_port, user="admin", password=PASSWORD)
    channel = connection.channel()
    bodies = []
    for queue in THEIRS:
        while (got := channel.basic_get(queue))[0] is not None:
            bodies.append((queue, got[2]))
    connection.close()  # which returns them
    with httpx.Client(base_url=process.http_url, auth=("admin", PASSWORD)) as client:
        names = {entry["name"] for entry in client.get("/api/v1/queues").json()["items"]}
        exchanges_there = {entry["name"] for entry in client.get("/api/exchanges").json()}
        bindings = {
            (entry["source"], entry["destination"], entry["routing_key"])
            for entry in client.get("/api/bindings").json()
            if not entry["destination"].startswith("ours")
        }
    return bodies, names, exchanges_there, bindings


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPERATIONS, min_size=4, max_size=14))
@pytest.mark.timeout(300)
def test_no_sequence_of_operations_reaches_what_belongs_to_others(guarded, operations):
    bodies_before, _, exchanges_before, bindings_before = found(guarded)
    run(guarded, operations)
    bodies, names, exchanges_after, bindings = found(guarded)
    assert bodies == bodies_before
    assert {body for _, body in bodies} == {SECRET}
    assert {name for name in names if not name.startswith("ours")} == set(THEIRS)
    assert {name for name in exchanges_after ^ exchanges_before if not name.startswith("ours")} == set()
    assert bindings == bindings_before
