"""Quotas of virtual hosts and users: what is one too many is refused, and told whose quota it is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from typer.testing import CliRunner

from broker.access.passwords import hashed
from broker.cli import app
from config import limits
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from protocols.amqp10 import performatives as p
from queue_manager.errors import LimitReached
from queue_manager.quota_accounts import RETAINED, Quotas
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import V5, MqttClient, MqttRefused
from tests.e2e.raw_amqp10 import RawAmqp10
from tests.waiting import until

PASSWORD = "a-secret-of-this-test"
QUOTA_EXCEEDED = 0x97
FIELDS = ("connections", "channels", "consumers", "queues", "exchanges", "bindings")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("quotas")
    kept = hashed(PASSWORD.encode())
    everything = (PermissionSettings(vhost="*", configure=".*", write=".*", read=".*"),)
    users = [UserSettings(name="boss", password=kept, permissions=everything, tags=("administrator",))]
    users += [
        UserSettings(name=name, password=kept, permissions=everything)
        for name in ("anna", "ben", "carl", "dora")
    ]
    save_users(directory / "users.yaml", UsersSettings(users=tuple(users)))
    access = {"users_file": str(directory / "users.yaml"), "anonymous": "never"}
    process = BrokerProcess(directory, {"access": access}).start()
    yield process
    process.kill9()


@pytest.fixture
def api(process: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{process.http_url}/api", auth=("boss", PASSWORD), trust_env=False, timeout=20
    ) as client:
        yield client


@pytest.fixture
def quota(api: httpx.Client) -> Iterator[Callable[..., None]]:
    """Sets quotas, which are gone after the test: `quota("users/anna", queues=1)`."""
    made: dict[str, set[str]] = {}

    def put(path: str, **quotas: int) -> None:
        made.setdefault(path, set()).update(quotas)
        answer = api.put(f"/v1/{path}", json={f"max_{kind}": most for kind, most in quotas.items()})
        assert answer.status_code == 200, answer.text

    yield put
    for path, kinds in made.items():
        api.put(f"/v1/{path}", json=dict.fromkeys([f"max_{kind}" for kind in kinds], 0))


@pytest.fixture
def enter(process: BrokerProcess) -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Connections of a user: `enter("anna")`."""
    opened: list[pika.BlockingConnection] = []

    def connect(user: str = "anna", **options: Any) -> pika.BlockingConnection:
        opened.append(amqp.connect(process.amqp_port, user=user, password=PASSWORD, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        amqp.close_quietly(connection)


def device(process: BrokerProcess, client_id: str, user: str = "anna", **options: Any) -> MqttClient:
    client = MqttClient(
        process.mqtt_port, client_id=client_id, version=V5, username=user, password=PASSWORD, **options
    )
    return client.connect()


def used(api: httpx.Client, scope: str, name: str) -> dict[str, int]:
    for holder in api.get("/v1/quotas").json():
        if (holder["scope"], holder["name"]) == (scope, name):
            return {quota["quota"]: quota["used"] for quota in holder["quotas"]}
    return {}


def refused_channel(connection: pika.BlockingConnection, act: Callable[[Any], object]) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        act(connection.channel())
    return f"{refused.value.reply_code} {refused.value.reply_text}"


@pytest.mark.parametrize(
    ("scope", "holder"), [("users/anna", "of user 'anna'"), ("vhosts/%2F", "in vhost '/'")]
)
def test_each_quota_refuses_one_too_many_and_says_whose_it_is(
    process: BrokerProcess,
    api: httpx.Client,
    quota: Callable[..., None],
    enter: Callable[..., pika.BlockingConnection],
    name: str,
    scope: str,
    holder: str,
) -> None:
    connection = enter()
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    channel.exchange_declare(f"{name}-x", "topic", durable=True)
    channel.queue_bind(name, f"{name}-x", "a")
    channel.basic_consume(name, lambda *_: None)
    kind, whose = ("user", "anna") if scope == "users/anna" else ("vhost", "/")
    have = used(api, kind, whose)
    quota(scope, **{field: have[field] for field in FIELDS if field not in ("channels", "connections")})
    # what it is about is looked at before; what is there already is no one more
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, f"{name}-x", "a")
    tries: dict[str, Callable[[Any], object]] = {
        "queue": lambda channel: channel.queue_declare(f"{name}-2", durable=True),
        "exchange": lambda channel: channel.exchange_declare(f"{name}-y"),
        "binding": lambda channel: channel.queue_bind(name, f"{name}-x", "b"),
        "consumer": lambda channel: channel.basic_consume(name, lambda *_: None),
    }
    for what, act in tries.items():
        told = refused_channel(connection, act)
        assert told.startswith(f"506 RESOURCE_ERROR - {what} limit {holder} ("), told
    quota(scope, channels=used(api, kind, whose)["channels"])
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=rf"channel limit {holder}"):
        connection.channel()
    quota(scope, channels=0)
    until(lambda: not used(api, kind, whose)["consumers"])
    one = enter()
    quota(scope, connections=used(api, kind, whose)["connections"])
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=rf"connection limit {holder}"):
        enter()
    with pytest.raises(MqttRefused) as refused:
        device(process, name)
    assert refused.value.code.value == QUOTA_EXCEEDED
    quota(scope, connections=0, queues=0, exchanges=0, bindings=0, consumers=0)
    channel = one.channel()
    channel.exchange_delete(f"{name}-x")
    channel.queue_delete(name)
    assert not {"queues", "exchanges", "bindings"} & used(api, "user", "anna").keys()


def test_sessions_of_amqp10_count_as_channels(
    process: BrokerProcess, api: httpx.Client, quota: Callable[..., None]
) -> None:
    quota("users/anna", channels=1)
    client = RawAmqp10(process.amqp_port, user="anna", password=PASSWORD)
    client.begin(0)
    client.begin(1)
    error = client.expect(p.Close).error
    assert error.description == "channel limit of user 'anna' (1) is reached"
    client.drop()


def test_what_was_made_counts_after_a_crash(own_broker: Callable[..., BrokerProcess], name: str) -> None:
    broker = own_broker()
    channel = amqp.connect(broker.amqp_port).channel()
    channel.queue_declare(name, durable=True)
    channel.exchange_declare(name, durable=True)
    channel.queue_bind(name, name)
    client = MqttClient(broker.mqtt_port, client_id=name, SessionExpiryInterval=3600).connect()
    client.subscribe(f"{name}/#", qos=1)
    client.publish(f"{name}/r", b"kept", qos=1, retain=True)
    guest = {"auth": ("guest", "guest"), "trust_env": False, "timeout": 20}
    with httpx.Client(base_url=f"{broker.http_url}/api", **guest) as api:
        assert api.put("/v1/vhosts/%2F", json={"max_queues": 7}).status_code == 200
    broker.restart(kill=True)
    with httpx.Client(base_url=f"{broker.http_url}/api", **guest) as api:
        assert used(api, "user", "guest") == {"queues": 1, "exchanges": 1, "bindings": 1}
        assert used(api, "user", "") == {"sessions": 1, "subscriptions": 1, "retained": 1}
        together = {
            "queues": 1,
            "exchanges": 1,
            "bindings": 1,
            "sessions": 1,
            "subscriptions": 1,
            "retained": 1,
        }
        assert used(api, "vhost", "/") == together
        assert api.get("/v1/vhosts/%2F").json()["max_queues"] == 7


def test_mqtt_quotas_refuse_one_too_many_and_say_whose_they_are(
    process: BrokerProcess, quota: Callable[..., None], name: str
) -> None:
    quota("users/ben", subscriptions=2, sessions=1, retained=1, queues=1, consumers=1)
    first = device(process, f"{name}-1", "ben", SessionExpiryInterval=60)
    with pytest.raises(MqttRefused) as refused:
        device(process, f"{name}-2", "ben", SessionExpiryInterval=60)
    assert refused.value.code.value == QUOTA_EXCEEDED
    second = device(process, f"{name}-3", "ben")
    assert first.subscribe(f"{name}/a", qos=1) == 1
    assert second.subscribe(f"{name}/b", qos=1) == 1
    assert first.subscribe(f"{name}/a", qos=1) == 1, "it is there already"
    for client in (first, second):
        assert client.subscribe(f"{name}/c", qos=1) == QUOTA_EXCEEDED
    second.unsubscribe(f"{name}/b")
    assert second.subscribe(f"$queue/{name}-q", qos=1) == 1
    first.unsubscribe(f"{name}/a")
    assert first.subscribe(f"$queue/{name}-q", qos=1) == QUOTA_EXCEEDED, "another consumer"
    assert first.publish(f"$queue/{name}-other", b"x", qos=1) == QUOTA_EXCEEDED, "another queue"
    first.publish(f"{name}/kept", b"x", qos=1, retain=True)
    first.publish(f"{name}/lost", b"x", qos=1, retain=True)
    first.publish(f"{name}/kept", b"y", qos=1, retain=True)
    reader = device(process, f"{name}-r", "anna")
    reader.subscribe(f"{name}/#", qos=1)
    assert [(m.topic, m.payload) for m in reader.take(1)] == [(f"{name}/kept", b"y")]
    assert reader.quiet()
    assert "retained message limit of user 'ben' (1) is reached" in process.log
    first.publish(f"{name}/kept", b"", qos=1, retain=True)
    for client in (first, second, reader):
        client.disconnect(SessionExpiryInterval=0)


def test_bytes_stored_are_bounded_until_they_are_gone(
    process: BrokerProcess,
    api: httpx.Client,
    quota: Callable[..., None],
    enter: Callable[..., pika.BlockingConnection],
    name: str,
) -> None:
    channel = enter("dora").channel()
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    channel.queue_declare(f"{name}-s", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", name, bytes(600))
    channel.basic_publish("", f"{name}-s", bytes(300))
    quota("users/dora", bytes=1_000)
    until(lambda: used(api, "user", "dora").get("bytes") == 900)
    channel.basic_publish("", name, bytes(200))
    until(lambda: used(api, "user", "dora").get("bytes") == 1_100)
    for queue in (name, f"{name}-s"):
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", queue, b"x")
    assert "byte limit of user 'dora' (1000) is reached" in process.log
    other = enter("ben").channel()
    other.confirm_delivery()
    other.queue_declare(f"{name}-b", durable=True)
    other.basic_publish("", f"{name}-b", bytes(2_000))  # of another user
    client = device(process, name, "dora")
    client.publish(f"{name}/r", b"x", qos=1, retain=True)
    until(lambda: "byte limit of user 'dora' (1000) is reached" in process.log)
    assert not [topic for topic in api.get("/v1/retained").json()["items"] if topic["topic"] == f"{name}/r"]
    channel.queue_purge(name)
    until(lambda: used(api, "user", "dora").get("bytes") == 300)
    channel.basic_publish("", name, b"x")
    for queue in (name, f"{name}-s"):
        channel.queue_delete(queue)
    other.queue_delete(f"{name}-b")
    client.disconnect()


def test_who_publishes_faster_than_a_quota_is_not_read_from(
    process: BrokerProcess,
    api: httpx.Client,
    quota: Callable[..., None],
    enter: Callable[..., pika.BlockingConnection],
    name: str,
) -> None:
    quota("users/anna", messages_in=100)
    blocked: list[str] = []
    connection = enter()
    connection.add_on_connection_blocked_callback(lambda _, frame: blocked.append(frame.method.reason))
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    begun = time.monotonic()
    for number in range(300):
        channel.basic_publish("", name, b"%d" % number)
    assert [amqp.count(channel, name) for _ in range(2)] == [300, 300]
    assert time.monotonic() - begun >= 1.9
    connection.process_data_events(0)
    assert set(blocked) <= {"user 'anna' publishes more than 100 messages a second"}
    mqtt = device(process, name)
    begun = time.monotonic()
    for _ in range(150):
        mqtt.publish(f"$queue/{name}", b"x", qos=0)
    for _ in range(2):
        mqtt.publish(f"$queue/{name}", b"x", qos=1)
    assert time.monotonic() - begun >= 0.4
    quota("users/anna", messages_in=0, bytes_in=10_000)
    begun = time.monotonic()
    channel.basic_publish("", name, bytes(30_000))
    assert [amqp.count(channel, name) for _ in range(2)] == [453, 453]
    assert time.monotonic() - begun >= 1.9
    assert [q for q in api.get("/v1/quotas").json() if q["name"] == "anna"][0]
    channel.queue_delete(name)
    mqtt.disconnect()


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("kind", ["messages_out", "bytes_out"])
def test_who_is_sent_more_than_a_quota_gets_it_later(
    quota: Callable[..., None],
    enter: Callable[..., pika.BlockingConnection],
    name: str,
    kind: str,
    auto_ack: bool,
) -> None:
    channel = enter("ben").channel()
    channel.queue_declare(name, durable=True)
    for _ in range(250):
        channel.basic_publish("", name, bytes(100))
    amqp.count(channel, name)
    quota("users/anna", **{kind: 100 if kind == "messages_out" else 10_000})
    consumer = amqp.Collector(enter().channel(), name, ack=not auto_ack, auto_ack=auto_ack)
    begun = time.monotonic()
    got = consumer.wait(250)
    assert len(got) == 250
    assert time.monotonic() - begun >= 0.9
    channel.queue_delete(name)


def test_plain_messages_beyond_a_quota_are_dropped_for_the_subscriber_alone(
    process: BrokerProcess, quota: Callable[..., None], name: str
) -> None:
    quota("users/ben", messages_out=50)
    slow, quick = device(process, f"{name}-s", "ben"), device(process, f"{name}-q")
    for client in (slow, quick):
        client.subscribe(f"{name}/#", qos=0)
    publisher = device(process, f"{name}-p")
    for number in range(400):
        publisher.publish(f"{name}/t", b"%d" % number, qos=0)
    assert len(quick.take(400)) == 400
    assert slow.take(1)
    assert slow.messages.qsize() < 399
    for client in (slow, quick, publisher):
        client.disconnect()


def test_quotas_over_rabbitmqs_api_and_in_definitions(api: httpx.Client, name: str) -> None:
    described = {"description": "of tests", "tags": ["a", "b"], "default_queue_type": "quorum"}
    assert api.put(f"/vhosts/{name}", json=described).status_code == 201
    assert api.put(f"/vhost-limits/{name}/max-queues", json={"value": 3}).status_code == 204
    assert api.put(f"/vhost-limits/{name}/max-bytes-in", json={"value": 4}).status_code == 204
    wanted = [{"vhost": name, "value": {"max-queues": 3, "max-bytes-in": 4}}]
    assert api.get(f"/vhost-limits/{name}").json() == wanted
    assert api.put("/user-limits/ben/max-channels", json={"value": 5}).status_code == 204
    assert api.get("/user-limits/ben").json() == [{"user": "ben", "value": {"max-channels": 5}}]
    assert {"user": "ben", "value": {"max-channels": 5}} in api.get("/user-limits").json()
    assert api.get("/users/ben").json()["limits"] == {"max-channels": 5}
    assert api.delete("/user-limits/ben/max-channels").status_code == 204
    assert api.get("/user-limits/ben").json() == []
    assert api.put("/user-limits/nobody/max-channels", json={"value": 5}).status_code == 404
    for value, limit in ((0, "max-queues"), ("x", "max-queues"), (1, "max-nothing")):
        assert api.put(f"/vhost-limits/{name}/{limit}", json={"value": value}).status_code == 400
    shown = api.get(f"/vhosts/{name}").json()
    assert {key: shown[key] for key in described} == described

    exported = api.get("/definitions").json()
    kept = {
        key: [each for each in exported[key] if name in each.values()] for key in ("vhosts", "parameters")
    }
    assert api.delete(f"/vhosts/{name}").status_code == 204
    assert api.post("/definitions", json=kept).status_code == 204
    assert api.get(f"/vhost-limits/{name}").json() == wanted
    again = api.get("/definitions").json()
    assert all(each in again[key] for key, entries in kept.items() for each in entries)
    assert api.delete(f"/vhosts/{name}").status_code == 204


def test_the_default_queue_type_of_a_virtual_host_is_that_of_queues_that_name_none(
    process: BrokerProcess, api: httpx.Client, name: str
) -> None:
    api.put(f"/v1/vhosts/{name}", json={"default_queue_type": "quorum"})
    connection = amqp.connect(process.amqp_port, user="anna", password=PASSWORD, vhost=name)
    channel = connection.channel()
    channel.queue_declare("plain", durable=True)
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("own", exclusive=True)
    api.put(f"/queues/{name}/http", json={"durable": True})
    types = {
        view["name"]: view["arguments"].get("x-queue-type") for view in api.get(f"/queues/{name}").json()
    }
    assert types == {"plain": "quorum", "stream": "stream", "own": None, "http": "quorum"}
    connection.close()
    api.delete(f"/v1/vhosts/{name}")


def test_quotas_by_command_on_the_page_and_as_metrics(
    process: BrokerProcess, api: httpx.Client, quota: Callable[..., None]
) -> None:
    where = ["--url", process.http_url, "--user", "boss", "--password-stdin"]

    def run(*arguments: str) -> tuple[int, str]:
        ran = CliRunner().invoke(app, ["quota", *arguments, *where], input=PASSWORD + "\n")
        return ran.exit_code, ran.output

    quota("users/ben", queues=0, bytes=0)
    code, told = run("set", "user", "ben", "queues=12", "bytes=2MiB")
    assert (code, told) == (0, "quotas of user ben: queues=12, bytes=2MiB\n")
    code, told = run("ls")
    assert code == 0
    assert ["user", "ben", "queues", "12"] in [line.split()[:4] for line in told.splitlines()]
    assert run("set", "user", "nobody", "queues=12")[0] == 1
    assert run("set", "user", "ben", "nothing=12")[0] == 2
    root = process.http_url
    auth = ("boss", PASSWORD)
    page = httpx.get(f"{root}/quotas", auth=auth, trust_env=False).text
    assert re.search(r"2\W*097\W*152", page)
    metrics = httpx.get(f"{root}/metrics", auth=auth, trust_env=False).text
    assert 'sluicemq_quota_most{scope="user",name="ben",quota="bytes"} 2097152' in metrics


def test_quotas_of_any_user_stand_in_the_configuration_and_follow_a_reload(
    own_broker: Callable[..., BrokerProcess], name: str
) -> None:
    broker = own_broker({"access": {"quotas": {"max_queues": 1}}})
    channel = amqp.connect(broker.amqp_port).channel()
    channel.queue_declare(name, durable=True)
    told = refused_channel(channel.connection, lambda channel: channel.queue_declare(f"{name}-2"))
    assert "queue limit of user 'guest' (1) is reached" in told
    channel.connection.close()


def test_one_user_cannot_take_all_room_for_retained_messages() -> None:

    quotas = Quotas()
    most = int(limits.RETAINED_MESSAGES_MAX * limits.SHARE_OF_ONE_USER)
    quotas.add(RETAINED, "/", "", most)
    with pytest.raises(LimitReached, match="retained message limit of clients without a user"):
        quotas.check(RETAINED, "/", "")
    quotas.check(RETAINED, "/", "another")
