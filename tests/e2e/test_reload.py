"""SIGHUP: users, permissions, certificates, log level and queues change while clients are served."""

import base64
import json
import os
import signal
import ssl
import threading
import time
from typing import Any

import httpx
import pika
import pytest
import websockets
import websockets.sync.client
import yaml

from broker.access.passwords import hashed
from broker.network.tls.making import Authority, write_pair
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, MqttRefused
from tests.waiting import until

KEPT = hashed(b"pw")
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
WITH_TLS = ("mqtts", "mqtt_wss", "amqps", "https", "mqcores")
USERS = {"boss": EVERYTHING, "worker": EVERYTHING, "gone": EVERYTHING}
TAGS = {"boss": ("administrator",), "gone": ("monitoring",)}


class Guarded:
    """A broker with a users file and a certificate, both of which can be changed."""

    def __init__(self, directory):
        self.directory = directory
        self.users = dict(USERS)
        self.tags = dict(TAGS)
        self.authority = Authority.made()
        write_pair(directory, "ca", self.authority.key, self.authority.certificate)
        self.write_certificate("first")
        self.write_users()
        pem = {"cert": str(directory / "server.crt"), "key": str(directory / "server.key")}
        config = {
            "access": {"users_file": str(directory / "users.yaml"), "anonymous": "never"},
            "listeners": {name: {"port": 0, "tls": pem} for name in WITH_TLS},
            "queues": [{"name": "there"}, {"name": "polled"}],
        }
        self.process = BrokerProcess(directory, config).start()

    def write_users(self):
        users = [
            UserSettings(
                name=name,
                password=KEPT,
                tags=self.tags.get(name, ()),
                permissions=(PermissionSettings(**granted),),
            )
            for name, granted in self.users.items()
        ]
        save_users(self.directory / "users.yaml", UsersSettings(users=tuple(users)))

    def write_certificate(self, name):
        pair = self.authority.issue(name, ["localhost"], is_server=True)
        write_pair(self.directory, "server", *pair)

    def write_config(self):
        self.process.config_file.write_text(yaml.safe_dump(self.process.config), "utf-8")

    def reload(self, told="config.reloaded"):
        """Have the broker reload; gives the line that tells so."""
        before = self.process.log.count(told)
        os.kill(self.process.pid, signal.SIGHUP)
        until(lambda: self.process.log.count(told) > before)
        return [line for line in self.process.log.splitlines() if told in line][-1]

    def amqp(self, user):
        return amqp.connect(self.process.amqp_port, user=user, password="pw")

    def mqtt(self, user):
        return MqttClient(self.process.mqtt_port, username=user, password="pw").connect()


@pytest.fixture
def guarded(tmp_path):
    guarded = Guarded(tmp_path)
    yield guarded
    guarded.process.kill9()


def is_closed(connection):
    if connection.is_closed:
        return True
    try:
        connection.process_data_events(0.05)
    except amqp.AMQPError:
        return True
    return bool(connection.is_closed)


def test_removed_and_narrowed_users_are_sent_away_and_the_others_stay(guarded):
    boss, gone = guarded.amqp("boss"), guarded.amqp("gone")
    staying, narrowed = guarded.amqp("worker"), guarded.amqp("worker")
    device, lost_device = guarded.mqtt("boss"), guarded.mqtt("gone")
    staying.channel().basic_publish("", "allowed", b"x")
    narrowed.channel().basic_publish("", "forbidden", b"x")
    until(lambda: amqp.count(boss.channel(), "there") == 0)  # both were looked at
    narrowed.process_data_events(0.1)
    del guarded.users["gone"]
    guarded.users["worker"] = {**EVERYTHING, "write": "^allowed$"}
    guarded.write_users()
    started = time.monotonic()
    line = guarded.reload()
    assert "connections_ended=3" in line
    until(lambda: is_closed(gone) and is_closed(narrowed) and lost_device.disconnected.is_set())
    assert time.monotonic() - started < 10
    assert lost_device.disconnect_reason.value == 0x87
    assert not is_closed(boss)
    assert not is_closed(staying)
    assert not device.disconnected.is_set()
    channel = staying.channel()
    channel.confirm_delivery()
    with pytest.raises(amqp.ChannelClosedByBroker, match="access to queue 'forbidden'"):
        channel.basic_publish("", "forbidden", b"x")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        guarded.amqp("gone")
    with pytest.raises(MqttRefused):
        guarded.mqtt("gone")
    for connection in (boss, staying):
        amqp.close_quietly(connection)
    device.end()
    lost_device.end()


class Eavesdropper:
    """Reads as `gone` whatever there is, in all the ways there are, with a thread for each that waits."""

    def __init__(self, guarded):
        self.lines: list[Any] = []
        self.polled: list[Any] = []
        self.consumed: list[Any] = []
        self._guarded = guarded
        self._context = ssl.create_default_context(cafile=guarded.directory / "ca.crt")
        self.device = guarded.mqtt("gone")
        assert self.device.subscribe("news") == 1
        self.worker = guarded.amqp("gone")
        self.channel = self.worker.channel()
        self.channel.basic_consume(
            "there", lambda *delivered: self.consumed.append(delivered[3]), auto_ack=True
        )
        calls = (self._follow, self._follow_by_socket, self._poll)
        self._threads = [threading.Thread(target=call, daemon=True) for call in calls]
        self.socket_lines = []
        for thread in self._threads:
            thread.start()

    def _client(self, listener):
        url = f"https://localhost:{self._guarded.process.ports[listener]}"
        return httpx.Client(
            base_url=url, auth=("gone", "pw"), verify=self._context, trust_env=False, timeout=60
        )

    def _follow(self):
        with self._client("https") as client, client.stream("GET", "/api/v1/topics/tail?filter=news") as got:
            self.lines += map(json.loads, got.iter_lines())

    def _follow_by_socket(self):
        headers = {"authorization": "Basic " + base64.b64encode(b"gone:pw").decode()}
        url = f"wss://localhost:{self._guarded.process.ports['https']}/topics/tail?filter=news"
        try:
            with websockets.sync.client.connect(
                url, ssl=self._context, additional_headers=headers, open_timeout=60
            ) as socket:
                self.socket_lines += map(json.loads, socket)
                self.socket_lines.append(socket.close_reason)
        except websockets.ConnectionClosed as closed:
            self.socket_lines.append(closed.rcvd.reason)

    def _poll(self):
        with self._client("mqcores") as client:
            answer = client.get("/polled/messages?wait=60s")
            self.polled.append((answer.status_code, answer.text))

    def wait_for_the_end(self):
        """Of all that was begun: whatever comes before is kept."""
        until(lambda: is_closed(self.worker))
        assert self.device.disconnected.wait(20)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.mark.parametrize("change", ["removed", "narrowed"])
def test_who_was_removed_or_narrowed_gets_nothing_that_is_published_after_the_reload(guarded, change):
    """The bound is one of order, whatever the machine does: the answer to the reload comes after the end of
    what may be no longer.
    """
    boss, device = guarded.amqp("boss").channel(), guarded.mqtt("boss")
    boss.confirm_delivery()
    eavesdropper = Eavesdropper(guarded)
    until(lambda: eavesdropper.lines == [{}])
    url = f"{guarded.process.http_url}/api/v1"
    api = httpx.Client(base_url=url, auth=("boss", "pw"), trust_env=False)
    until(lambda: api.get("/queues/polled").json()["consumers"] == 1)
    until(lambda: device.publish("news", b"before") == 0 and eavesdropper.socket_lines)
    if change == "removed":
        del guarded.users["gone"]
    else:
        guarded.users["gone"] = {"write": ".*"}
        guarded.tags["gone"] = ("management",)
    guarded.write_users()
    told = api.post("/configuration/reload").json()
    for queue in ("there", "polled"):
        amqp.publish(boss, queue, b"after")
    device.publish("news", b"after")
    eavesdropper.wait_for_the_end()
    assert told["connections_ended"] == 5
    assert eavesdropper.consumed == []
    assert "after" not in [message.payload.decode() for message in eavesdropper.device.messages.queue]
    assert eavesdropper.lines[-1]["error"] == "refused"
    assert {line["body"] for line in eavesdropper.lines[1:-1]} <= {"before"}
    assert "user" in eavesdropper.socket_lines[-1]
    assert {line["body"] for line in eavesdropper.socket_lines[:-1]} == {"before"}
    assert eavesdropper.polled[0][0] == 403
    for queue in ("there", "polled"):
        assert amqp.count(boss, queue) == 1
    boss.connection.close()
    device.end()
    eavesdropper.device.end()


def test_messages_are_moved_for_nobody_who_was_removed(guarded):
    boss = guarded.amqp("boss").channel()
    boss.confirm_delivery()
    for number in range(20):
        amqp.publish(boss, "there", b"%d" % number)
    answers = []

    def move():
        url = f"{guarded.process.http_url}/api/v1/queues/there/move"
        wanted = {"to": "polled", "per_second": 1}
        answers.append(httpx.post(url, json=wanted, auth=("gone", "pw"), timeout=60, trust_env=False))

    mover = threading.Thread(target=move, daemon=True)
    mover.start()
    until(lambda: amqp.count(boss, "polled"))
    del guarded.users["gone"]
    guarded.write_users()
    guarded.reload()
    mover.join(20)
    assert answers[0].status_code == 403
    assert answers[0].json()["reason"] == "the user is no longer known"
    moved = amqp.count(boss, "polled")
    assert 0 < moved < 20
    assert amqp.count(boss, "there") == 20 - moved
    boss.connection.close()


def test_a_new_user_comes_in_and_more_permissions_hold_at_once(guarded):
    guarded.users["worker"] = {"read": "^there$"}
    guarded.write_users()
    guarded.reload()
    device = guarded.mqtt("worker")
    assert device.publish("news") == 0x87
    guarded.users["worker"] = EVERYTHING
    guarded.users["new"] = EVERYTHING
    guarded.write_users()
    guarded.reload()
    assert device.publish("news") in (0, 0x10)
    guarded.amqp("new").close()
    device.end()


@pytest.mark.parametrize(
    "breaking", ["users", "certificate", "config"], ids=["users file", "certificate", "configuration"]
)
def test_what_is_invalid_changes_nothing(guarded, breaking):
    connection = guarded.amqp("gone")
    del guarded.users["gone"]
    guarded.write_users()
    if breaking == "users":
        with (guarded.directory / "users.yaml").open("a") as file:
            file.write("  unknown: 1\n")
    elif breaking == "certificate":
        (guarded.directory / "server.crt").write_text("no certificate")
    else:
        guarded.process.config["queue"] = []
        guarded.write_config()
    line = guarded.reload("config.not_reloaded")
    assert "problems=" in line
    assert not is_closed(connection)
    amqp.close_quietly(connection)
    guarded.amqp("gone").close()


def test_it_is_told_what_changed_and_what_waits_for_a_restart(guarded):
    config = guarded.process.config
    config["queues"] = [{"name": "there"}, {"name": "polled"}, {"name": "added"}]
    config["log"] = {"level": "warning", "format": "json"}
    config["queue_manager"] = {"auto_create": False}
    guarded.write_config()
    os.kill(guarded.process.pid, signal.SIGHUP)
    boss = guarded.amqp("boss")

    def is_added():
        try:
            return boss.channel().queue_declare("added", passive=True) is not None
        except amqp.ChannelClosedByBroker:
            return False

    until(is_added)
    boss.close()
    config["log"] = {"level": "info", "format": "json"}
    guarded.write_config()
    line = guarded.reload()
    changed, _, waiting = line.partition("needs_restart=")
    for key in ("log.format", "queue_manager.auto_create"):
        assert key in changed
        assert key in waiting
    assert "log.level" not in waiting


def test_new_connections_get_the_new_certificate_and_nobody_is_dropped(guarded):
    ports = [guarded.process.ports[name] for name in WITH_TLS]

    def connect():
        context = ssl.create_default_context(cafile=guarded.directory / "ca.crt")
        options = pika.SSLOptions(context, "localhost")
        credentials = pika.PlainCredentials("boss", "pw")
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                guarded.process.ports["amqps"],
                ssl_options=options,
                credentials=credentials,
            )
        )

    def shown():
        return [ssl.get_server_certificate(("127.0.0.1", port)) for port in ports]

    connection = connect()
    context = ssl.create_default_context(cafile=guarded.directory / "ca.crt")
    url = f"https://localhost:{guarded.process.ports['mqcores']}"
    client = httpx.Client(base_url=url, auth=("boss", "pw"), verify=context, trust_env=False)
    assert client.get("/there").status_code == 200
    before = shown()
    guarded.write_certificate("second")
    guarded.reload()
    assert not set(shown()) & set(before)
    assert not is_closed(connection)
    stream = client.get("/there").extensions["network_stream"]  # of the connection that was there
    certificate = stream.get_extra_info("ssl_object").getpeercert(True)
    assert certificate == ssl.PEM_cert_to_DER_cert(before[0])
    client.close()
    connect().close()
    connection.close()


def test_reloading_under_load_drops_nobody_and_loses_nothing(guarded):
    boss = guarded.amqp("boss")
    boss.channel().queue_declare("load", durable=True)
    stop = threading.Event()
    published = [0, 0]
    failed = []

    def publish(index):
        try:
            connection = guarded.amqp("worker")
            channel = connection.channel()
            channel.confirm_delivery()
            while not stop.is_set():
                amqp.publish(channel, "load", b"x")
                published[index] += 1
            connection.close()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for number in range(5):
        guarded.users[f"added-{number}"] = EVERYTHING
        guarded.write_users()
        guarded.write_certificate(f"number-{number}")
        guarded.reload()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert amqp.count(boss.channel(), "load") == sum(published) > 0
    boss.close()
