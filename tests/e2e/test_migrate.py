"""`sluicemq migrate`: definitions and messages of another broker. The other broker here is one of ours, which
answers as RabbitMQ does; against RabbitMQ 4.3 it was tried by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from broker.commands.queue_mover import EXCHANGE
from broker.network.tls.making import Authority, write_pair
from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerProcess
from tests.e2e.mqtt import V5, MqttClient
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)

MakeBroker = Callable[..., BrokerProcess]
Connect = Callable[..., pika.BlockingConnection]


def command(old: BrokerProcess, new: BrokerProcess, state: Path, *more: str) -> list[str]:
    where = [f"amqp://127.0.0.1:{old.amqp_port}", "--management", old.http_url, "--url", new.http_url]
    return ["migrate", *where, "--state", str(state), *more]


def run(old: BrokerProcess, new: BrokerProcess, state: Path, *more: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, command(old, new, state, "--json", *more))
    assert done.stdout, done.output
    told = json.loads(done.stdout)
    return done.exit_code, {(each["vhost"], each["queue"]): each for each in told["queues"]}


def publisher(connect: Connect, to: BrokerProcess, **options: Any) -> amqp.BlockingChannel:
    channel = connect(to, **options).channel()
    channel.confirm_delivery()
    return channel


def drained(channel: amqp.BlockingChannel, queue: str) -> list[amqp.Delivery]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(amqp.Delivery(*got))
    return found


def test_definitions_and_messages_come_as_they_were(
    own_broker: MakeBroker, amqp_connect: Connect, tmp_path: Path
) -> None:
    old, new = own_broker(), own_broker()
    channel = publisher(amqp_connect, old)
    properties = pika.BasicProperties(
        headers={"n": -5, "deep": {"a": [1, "x", None, True]}, "raw": b"\x00", "CC": ["other"]},
        content_type="a/b",
        message_id="m1",
        correlation_id="c",
        reply_to="r",
        timestamp=1_700_000_000,
        expiration="9000000",
        priority=3,
        delivery_mode=2,
        type="t",
        app_id="a",
        user_id="guest",
    )
    channel.queue_declare("work", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare("other", durable=True)
    channel.exchange_declare("in", "topic", durable=True)
    channel.queue_bind("work", "in", "a.#")
    channel.queue_bind("other", "in", "other")
    channel.basic_publish("in", "a.b", b"first", properties)
    for number in range(50):
        channel.basic_publish("in", f"a.{number}", b"%d" % number)
    channel.basic_publish("", "work", b"large" * 100_000)
    channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 9})
    for number in range(30):
        channel.basic_publish(
            "", "ranked", b"%d" % number, pika.BasicProperties(priority=number % 3, delivery_mode=2)
        )
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(40):
        channel.basic_publish("", "log", b"%d" % number, pika.BasicProperties(headers={"n": number}))

    code, told = run(old, new, tmp_path / "state.json")
    assert code == 0
    moved = {queue: (each["moved"], each["left"]) for (_, queue), each in told.items()}
    assert moved == {"work": (52, 0), "other": (1, 0), "ranked": (30, 0), "log": (40, None)}

    here = publisher(amqp_connect, new)
    first, *rest = drained(here, "work")
    assert first.headers.pop("x-original-user-id") == "guest"
    properties.user_id = None
    assert first.properties == properties
    assert (first.method.routing_key, first.body) == ("a.b", b"first")
    assert [(each.method.routing_key, each.body) for each in rest[:-1]] == [
        (f"a.{number}", b"%d" % number) for number in range(50)
    ]
    assert rest[-1].body == b"large" * 100_000
    assert [each.body for each in drained(here, "other")] == [b"first"]  # CC led there once, at the old one
    ranked = [each.properties.priority for each in drained(here, "ranked")]
    assert ranked == sorted(ranked, reverse=True)
    with pytest.raises(amqp.ChannelClosedByBroker):
        amqp_connect(new).channel().exchange_declare(EXCHANGE, passive=True)
    collector = here.consume("log", arguments={"x-stream-offset": "first"}, inactivity_timeout=5)
    bodies = [next(collector) for _ in range(40)]
    assert [(body, properties.headers["n"]) for _, properties, body in bodies] == [
        (b"%d" % number, number) for number in range(40)
    ]
    here.basic_publish("in", "a.c", b"bound here, too")

    channel.basic_publish("", "log", b"later")
    code, told = run(old, new, tmp_path / "state.json", "--no-definitions")
    assert {queue: each["moved"] for (_, queue), each in told.items()} == {
        "work": 52,
        "other": 1,
        "ranked": 30,
        "log": 41,
    }


def test_a_second_run_goes_on_where_a_killed_one_was(
    own_broker: MakeBroker, amqp_connect: Connect, tmp_path: Path
) -> None:
    old, new = own_broker(), own_broker()
    channel = amqp_connect(old).channel()
    count = 4_000
    for queue, kind in (("stream", "stream"), ("work", "quorum")):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        for number in range(count):
            channel.basic_publish("", queue, b"%d" % number)
    channel.queue_declare("work", passive=True)
    state = tmp_path / "state.json"
    for queue in ("stream", "work"):
        arguments = [sys.executable, "-m", "broker", *command(old, new, state)]
        with subprocess.Popen(
            arguments, stderr=subprocess.PIPE, text=True, cwd=WORKING_DIRECTORY, env=os.environ
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if f" {queue}: " in line:
                    process.kill()
                    break
    assert channel.queue_declare("work", passive=True).method.message_count > 0
    code, told = run(old, new, state)
    assert code == 0
    assert told["/", "work"]["left"] == 0
    assert [told["/", queue]["stopped"] for queue in ("work", "stream")] == ["", ""]
    here = amqp_connect(new).channel()
    here.basic_qos(prefetch_count=1_000)
    for queue in ("stream", "work"):
        arguments_of = {"x-stream-offset": "first"} if queue == "stream" else {}
        seen: list[int] = []
        for method, _, body in here.consume(queue, arguments=arguments_of, inactivity_timeout=3):
            if method is None:
                break
            here.basic_ack(method.delivery_tag)
            seen.append(int(body))
        here.cancel()
        assert set(seen) == set(range(count))
        assert list(dict.fromkeys(seen)) == list(range(count))  # each came first in its order
        assert len(seen) < count + 2_000  # the kill may make some come twice


def test_what_cannot_be_taken_stays_and_is_told(
    own_broker: MakeBroker, amqp_connect: Connect, tmp_path: Path
) -> None:
    old, new = own_broker(), own_broker()
    channel = publisher(amqp_connect, old)
    for queue in ("full", "odd", "held", "closed"):
        channel.queue_declare(queue, durable=True)
        for number in range(5):
            channel.basic_publish("", queue, b"%d" % number)
    here = publisher(amqp_connect, new)
    here.queue_declare("full", durable=True, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    client = MqttClient(old.mqtt_port, version=V5).connect()
    client.publish("$queue/odd", b"no list", qos=1, user=[("CC", "text")])
    client.end()
    channel.basic_publish("", "odd", b"behind it")
    consumer = amqp_connect(old).channel()
    consumer.basic_qos(prefetch_count=0)
    consumer.basic_consume("held", lambda *_: None)
    until(lambda: channel.queue_declare("held", passive=True).method.message_count == 0)
    blocked = amqp_connect(old).channel()
    blocked.basic_consume("closed", lambda *_: None, exclusive=True)
    blocked.connection.process_data_events(0)

    code, told = run(old, new, tmp_path / "state.json")
    assert code == 1
    told = {queue: each for (_, queue), each in told.items()}
    assert (told["full"]["moved"], told["full"]["left"]) == (3, 2)
    assert told["full"]["refused"] == {"the queue here takes no more": 2}
    assert (told["odd"]["moved"], told["odd"]["left"]) == (6, 1)
    assert list(told["odd"]["refused"].values()) == [1]
    assert "CC" in next(iter(told["odd"]["refused"]))
    assert told["held"]["moved"] == 0
    assert "in exclusive use" in told["closed"]["stopped"]
    came = [each.body for each in drained(here, "odd")]  # twice, what was on its way beside the refused one
    assert list(dict.fromkeys(came)) == [b"0", b"1", b"2", b"3", b"4", b"behind it"]
    assert [each.body for each in drained(channel, "full")] == [b"3", b"4"]  # in their places
    assert [each.body for each in drained(channel, "odd")] == [b"no list"]


def test_one_virtual_host_and_what_stands_in_the_way(
    own_broker: MakeBroker, amqp_connect: Connect, tmp_path: Path
) -> None:
    config = {"vhosts": [{"name": "shop"}]}
    old, new = own_broker(config), own_broker()
    channel = publisher(amqp_connect, old, vhost="shop")
    channel.queue_declare("theirs", durable=True)
    channel.basic_publish("", "theirs", b"x")
    publisher(amqp_connect, old).queue_declare("not", durable=True)
    where = [f"amqp://guest:guest@127.0.0.1:{old.amqp_port}/shop", "--management", old.http_url]
    state = ["--state", str(tmp_path / "state.json")]
    done = CliRunner().invoke(app, ["migrate", *where, "--url", new.http_url, *state])
    assert done.exit_code == 0, done.output
    assert [each.body for each in drained(publisher(amqp_connect, new, vhost="shop"), "theirs")] == [b"x"]
    with pytest.raises(amqp.ChannelClosedByBroker):
        publisher(amqp_connect, new).queue_declare("not", passive=True)

    assert "amqp://user@host" in CliRunner().invoke(app, ["migrate", "--help"]).output
    nowhere = CliRunner().invoke(app, ["migrate", "http://127.0.0.1", *state])
    assert (nowhere.exit_code, "amqp://user@host" in nowhere.output) == (2, True)
    wrong = ["migrate", f"amqp://127.0.0.1:{old.amqp_port}", "--management", "http://127.0.0.1:9"]
    refused = CliRunner().invoke(app, [*wrong, "--url", new.http_url, *state])
    assert (refused.exit_code, "http://127.0.0.1:9" in refused.output) == (1, True)
    for text in ("{", '{"old": "another:5672", "queues": []}'):
        (tmp_path / "state.json").write_text(text)
        broken = CliRunner().invoke(app, ["migrate", *where, "--url", new.http_url, *state])
        assert (broken.exit_code, "--state" in broken.output) == (2, True)


def test_definitions_and_messages_come_over_tls(
    own_broker: MakeBroker, amqp_connect: Connect, tmp_path: Path
) -> None:
    authority = Authority.made()
    write_pair(tmp_path, "ca", authority.key, authority.certificate)
    write_pair(tmp_path, "server", *authority.issue("localhost", ["127.0.0.1"], is_server=True))
    tls = {"cert": str(tmp_path / "server.crt"), "key": str(tmp_path / "server.key")}
    listeners = {"amqps": {"port": 0, "tls": tls}, "https": {"port": 0, "tls": tls}}
    old, new = own_broker({"listeners": listeners}), own_broker({"listeners": {"amqps": listeners["amqps"]}})
    channel = publisher(amqp_connect, old)
    channel.queue_declare("work", durable=True)
    count = 1_000
    for number in range(count):
        channel.basic_publish("", "work", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    channel.basic_publish("", "work", b"large" * 100_000)
    where = [f"amqps://localhost:{old.ports['amqps']}", "--url", new.http_url, "--json"]
    where += ["--management", f"https://localhost:{old.ports['https']}", "--state", str(tmp_path / "s")]
    where += ["--amqp", f"amqps://localhost:{new.ports['amqps']}"]
    refused = CliRunner().invoke(app, ["migrate", *where])
    assert refused.exit_code != 0
    assert "CERTIFICATE_VERIFY_FAILED" in refused.output
    done = CliRunner().invoke(app, ["migrate", *where, "--ca-file", str(tmp_path / "ca.crt")])
    assert done.exit_code == 0, done.output
    (account,) = json.loads(done.stdout)["queues"]
    assert (account["moved"], account["left"]) == (count + 1, 0)
    found = drained(publisher(amqp_connect, new), "work")
    assert [each.body for each in found] == [*[b"%d" % n for n in range(count)], b"large" * 100_000]
