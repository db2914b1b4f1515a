"""Webhooks: what comes into a queue is posted to a receiver, and waits while that is away."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import argon2
import httpx
import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from broker.links.outward_http import AddressRefused, check_address
from broker.network.tls.making import Authority, write_pair
from config.access_settings import UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.waiting import until

pytestmark = [pytest.mark.extension, pytest.mark.timeout(120)]

MakeBroker = Callable[..., BrokerProcess]
Connect = Callable[..., pika.BlockingConnection]
ALLOWED = {"access": {"webhook_networks": ["127.0.0.0/8"]}}
GUEST = ("guest", "guest")


class Receiver:
    """Answers with `answers`, the last of them again and again; keeps what came."""

    def __init__(self) -> None:
        self.answers: list[int] = [204]
        self.wrong = b""  # what has this in it is answered with 422
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.server: ThreadingHTTPServer | None = None
        self.port = 0

    def start(self, context: ssl.SSLContext | None = None) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.came.append(({k.lower(): v for k, v in self.headers.items()}, body))
                answers = receiver.answers
                status = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(422 if receiver.wrong and receiver.wrong in body else status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def messages(self) -> list[dict[str, Any]]:
        return [each for _, body in self.came for each in json.loads(body)["messages"]]

    def bodies(self) -> list[str]:
        return [each["body"] for each in self.messages()]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    made.start()
    yield made
    made.stop()


def put(broker: BrokerProcess, value: dict[str, Any], login: tuple[str, str] = GUEST) -> httpx.Response:
    url = f"{broker.http_url}/api/parameters/webhook/%2F/w"
    return httpx.put(url, json={"value": value}, auth=login, trust_env=False)


def link(broker: BrokerProcess) -> dict[str, Any]:
    (found,) = httpx.get(f"{broker.http_url}/api/v1/links", trust_env=False).json()
    return dict(found)


def running(broker: BrokerProcess) -> None:
    until(lambda: link(broker)["state"] == "running", told=lambda: link(broker))


def confirming(connect: Connect, to: BrokerProcess) -> amqp.BlockingChannel:
    channel = connect(to).channel()
    channel.confirm_delivery()
    return channel


def test_events_wait_while_the_receiver_is_away_and_the_broker_is_killed(
    own_broker: MakeBroker, amqp_connect: Connect, receiver: Receiver
) -> None:
    broker = own_broker(ALLOWED)
    url = f"http://127.0.0.1:{receiver.port}/hook"
    bindings = [{"exchange": "amq.rabbitmq.event", "routing-key": "queue.created"}]
    assert put(broker, {"url": url, "bindings": bindings, "retry-max": 1}).status_code == 201
    running(broker)
    channel = confirming(amqp_connect, broker)
    channel.queue_declare("first", durable=True)
    until(lambda: len(receiver.came) == 1)
    (event,) = receiver.messages()
    assert (event["exchange"], event["routing_key"]) == ("amq.rabbitmq.event", "queue.created")
    assert event["headers"]["name"] == "first"
    receiver.stop()
    for number in range(20):
        channel.queue_declare(f"q{number}", durable=True)
    until(lambda: link(broker)["state"] == "retrying")
    assert link(broker)["reason"]
    broker.kill9()
    broker.start()
    receiver.start()
    expected = {f"q{number}" for number in range(20)}
    until(lambda: {each["headers"]["name"] for each in receiver.messages()} >= expected)
    running(broker)


def test_messages_go_in_batches_signed_and_in_order_and_again_until_they_are_taken(
    own_broker: MakeBroker, amqp_connect: Connect, receiver: Receiver
) -> None:
    broker = own_broker(ALLOWED)
    channel = confirming(amqp_connect, broker)
    channel.queue_declare("work", durable=True)
    receiver.answers = [503, 401, 204]
    properties = pika.BasicProperties(content_type="a/b", message_id="m", headers={"k": [1, b"\xff"]})
    channel.basic_publish("", "work", b"\xff", properties)
    for number in range(99):
        channel.basic_publish("", "work", b"%d" % number)
    key = base64.b64encode(b"0123456789abcdef").decode()
    value = {
        "url": f"http://127.0.0.1:{receiver.port}/",
        "queue": "work",
        "batch-max": 30,
        "headers": {"X-Mine": "yes"},
        "secret": f"whsec_{key}",
        "bearer-token": "t0ken",
        "retry-max": 1,
    }
    assert put(broker, value).status_code == 201
    until(lambda: link(broker)["moved"] == 100, told=lambda: link(broker))
    (first, one), (second, two), *_ = receiver.came
    assert json.loads(one) == json.loads(two)
    assert first["webhook-id"] == second["webhook-id"]
    for headers, body in receiver.came:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(b"0123456789abcdef", signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert (headers["authorization"], headers["x-mine"]) == ("Bearer t0ken", "yes")
    message = json.loads(one)["messages"][0]
    assert (message["body"], message["encoding"]) == ("/w==", "base64")
    assert (message["properties"]["content_type"], message["properties"]["message_id"]) == ("a/b", "m")
    assert message["headers"]["k"] == [1, "/w=="]
    del receiver.came[:2]
    assert receiver.bodies()[1:] == [str(number) for number in range(99)]
    assert all(len(json.loads(body)["messages"]) <= 30 for _, body in receiver.came)
    shown = httpx.get(f"{broker.http_url}/api/v1/parameters/webhook/w", trust_env=False).text
    assert not any(secret in shown + broker.log for secret in (key, "t0ken", '"yes"'))


def test_what_the_receiver_calls_wrong_is_a_dead_letter_alone(
    own_broker: MakeBroker, amqp_connect: Connect, receiver: Receiver
) -> None:
    broker = own_broker(ALLOWED)
    receiver.wrong = b"poison"
    url = f"http://127.0.0.1:{receiver.port}/"
    bindings = [{"exchange": "amq.fanout"}]
    assert put(broker, {"url": url, "bindings": bindings, "batch-max": 10}).status_code == 201
    running(broker)
    channel = confirming(amqp_connect, broker)
    for body in (b"a", b"poison", b"b", b"c"):
        channel.basic_publish("amq.fanout", "k", body)
    until(lambda: link(broker)["moved"] == 3, told=lambda: link(broker))
    assert link(broker)["details"]["rejected"] == 1
    got = until(lambda: channel.basic_get("webhook.w.dead", auto_ack=True)[2])
    assert got == b"poison"

    receiver.wrong = b""
    receiver.answers = [500]
    assert put(broker, {"url": url, "bindings": bindings, "attempts-max": 2}).status_code == 204
    running(broker)
    channel.basic_publish("amq.fanout", "k", b"given up")
    assert until(lambda: channel.basic_get("webhook.w.dead", auto_ack=True)[2]) == b"given up"


def test_raw_messages_go_over_tls_to_who_shows_the_right_certificate(
    own_broker: MakeBroker, amqp_connect: Connect, tmp_path: Path
) -> None:
    authority = Authority.made()
    write_pair(tmp_path, "ca", authority.key, authority.certificate)
    write_pair(tmp_path, "server", *authority.issue("localhost", ["127.0.0.1"], is_server=True))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    receiver = Receiver()
    receiver.start(context)
    broker = own_broker(ALLOWED)
    channel = confirming(amqp_connect, broker)
    channel.queue_declare("work", durable=True)
    properties = pika.BasicProperties(content_type="text/x", delivery_mode=2)
    channel.basic_publish("", "work", b"\x00raw", properties)
    value = {"url": f"https://localhost:{receiver.port}/", "queue": "work", "format": "raw"}
    try:
        assert put(broker, value).status_code == 201
        until(lambda: "CERTIFICATE_VERIFY_FAILED" in link(broker)["reason"], told=lambda: link(broker))
        assert receiver.came == []
        assert put(broker, {**value, "ca-file": str(tmp_path / "ca.crt")}).status_code == 204
        until(lambda: link(broker)["moved"] == 1, told=lambda: link(broker))
    finally:
        receiver.stop()
    ((headers, body),) = receiver.came
    assert body == b"\x00raw"
    assert (headers["content-type"], headers["x-routing-key"]) == ("text/x", "work")


def test_private_addresses_are_refused_unless_they_are_allowed(
    own_broker: MakeBroker, amqp_connect: Connect, receiver: Receiver
) -> None:
    broker = own_broker()
    channel = confirming(amqp_connect, broker)
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"x")
    put(broker, {"url": f"http://localhost:{receiver.port}/", "queue": "work"})
    until(lambda: "is no public address" in link(broker)["reason"])
    assert receiver.came == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.1.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1", "0.0.0.0", "224.0.0.1"],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(address, ["192.168.0.0/16"])
    check_address("192.168.3.4", ["192.168.0.0/16"])
    check_address("1.1.1.1", [])


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"queue": "q"}, 'Key "url" not found'),
        ({"url": "ftp://h", "queue": "q"}, "url should be an http:// or https:// URL"),
        ({"url": "http://u:p@h", "queue": "q"}, "a login or a fragment has no place in a URL"),
        ({"url": "http://h"}, "Must specify 'queue' or 'bindings'"),
        ({"url": "http://h", "queue": "q", "headers": {"Host": "x"}}, "Host is the broker's to say"),
        ({"url": "http://h", "queue": "q", "secret": "***"}, "*** stands for a secret"),
        (
            {"url": "http://h", "queue": "q", "format": "raw", "batch-max": 2},
            "raw posts one message at a time",
        ),
    ],
)
def test_a_webhook_that_cannot_be_is_refused(broker: BrokerProcess, value: dict[str, Any], told: str) -> None:
    answer = put(broker, value)
    assert answer.status_code == 400
    assert told in answer.json()["reason"]


def test_only_administrators_make_webhooks(own_broker: MakeBroker, tmp_path: Path) -> None:
    hash_of = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash
    everything = [{"vhost": "/", "configure": "", "write": "", "read": ""}]
    user = {"name": "m", "password": hash_of("m"), "tags": ["policymaker"], "permissions": everything}
    path = tmp_path / "users.yaml"
    save_users(path, UsersSettings.model_validate({"users": [user]}))
    broker = own_broker({"access": {"users_file": str(path)}})
    answer = put(broker, {"url": "https://example.com", "queue": "q"}, ("m", "m"))
    assert answer.status_code == 401
    assert "only administrators make webhooks" in answer.json()["reason"]


def test_the_command_makes_shows_and_deletes_webhooks(own_broker: MakeBroker) -> None:
    broker = own_broker(ALLOWED)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["webhook", *arguments, "--url", broker.http_url])
        assert done.exit_code == 0, done.output
        return done.stdout

    bindings = json.dumps([{"exchange": "amq.topic", "routing-key": "a.#"}])
    run("add", "w", "url=http://127.0.0.1:1/", f"bindings={bindings}", "secret=hush")
    (shown,) = json.loads(run("ls", "--json"))
    assert (shown["value"]["secret"], shown["value"]["url"]) == ("***", "http://127.0.0.1:1/")
    running(broker)
    run("rm", "w")
    assert json.loads(run("ls", "--json")) == []
