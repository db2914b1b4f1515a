"""`sluicemq store merge`: what the shards of several workers hold is there with one worker, as it was."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerFailed, BrokerProcess, command_line
from tests.e2e.test_encryption import encrypted
from tests.e2e.workers import channel_at, pids
from tests.waiting import until

pytestmark = [pytest.mark.timeout(180), pytest.mark.extension]

LASTING = b"\x11" + struct.pack(">I", 3600)
SCHEDULED_S = 60
STATES = ("ready", "in_flight", "delayed", "scheduled", "failed", "done")


@pytest.fixture
def store() -> Callable[..., Any]:
    """Runs a `sluicemq store` command on the storage of a broker; gives what it printed."""

    def run(broker: BrokerProcess, *arguments: str, code: int = 0) -> Any:
        done = command(broker, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout) if "--json" in arguments else done.stdout + done.stderr

    return run


def command(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("store", *arguments, "--config", str(broker.config_file), "--storage", broker.storage),
        cwd=WORKING_DIRECTORY,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )


# clients at a worker


def client_of(count: int, home: int, name: str) -> str:
    names = (f"{name}-{number}" for number in range(1000))
    return next(each for each in names if crc32(f"/\x1d{each}".encode()) % count == home)


def lasting(broker: BrokerProcess, client_id: str) -> wire.RawMqtt:
    """A client with a session that lasts; `session_present` says whether it was there."""
    client = wire.RawMqtt(broker.mqtt_port, version=None)
    client.send_bytes(wire.connect(wire.V5, client_id, flags=0, props=LASTING))
    client.connack = client.expect(wire.CONNACK)
    assert client.connack.body[1] == 0, client.connack
    return client


def subscribed(client: wire.RawMqtt, topic_filter: str, qos: int) -> None:
    client.send_bytes(wire.subscribe(topic_filter, qos))
    assert client.expect(wire.SUBACK).body[-1] == qos


def published(
    client: wire.RawMqtt, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False
) -> None:
    client.send_bytes(wire.publish(topic, payload, qos=qos, retain=retain))
    client.expect(wire.PUBACK if qos == 1 else wire.PUBREC)
    if qos == 2:
        client.send_bytes(wire.acknowledgement(wire.PUBREL, 1))
        client.expect(wire.PUBCOMP)


class Heard:
    """A PUBLISH that came, with no properties of more than 127 bytes."""

    def __init__(self, received: wire.Packet) -> None:
        body = received.body
        at = 2 + struct.unpack_from(">H", body)[0]
        self.topic = body[2:at].decode()
        self.qos, self.is_repeated = received.flags >> 1 & 3, bool(received.flags & 8)
        self.packet_id = struct.unpack_from(">H", body, at)[0] if self.qos else 0
        at += 2 * bool(self.qos)
        self.payload = body[at + 1 + body[at] :].decode()


def hear(client: wire.RawMqtt, *, timeout_s: float = wire.WAIT_S) -> Heard:
    """Take a PUBLISH and have done with it. Raises TimeoutError."""
    heard = Heard(client.expect(wire.PUBLISH, timeout_s))
    if heard.qos == 1:
        client.send_bytes(wire.acknowledgement(wire.PUBACK, heard.packet_id))
    elif heard.qos == 2:
        client.send_bytes(wire.acknowledgement(wire.PUBREC, heard.packet_id))
        client.expect(wire.PUBREL)
        client.send_bytes(wire.acknowledgement(wire.PUBCOMP, heard.packet_id))
    return heard


def hear_all(client: wire.RawMqtt) -> list[str]:
    """What comes to a client, until nothing does."""
    found = []
    with suppress(TimeoutError):
        while True:
            found.append(hear(client, timeout_s=0.5).payload)
    return found


# what there is


def view(broker: BrokerProcess) -> dict[str, Any]:
    """All that HTTP tells, without what a number stands for or is of one process."""
    with httpx.Client(base_url=broker.http_url + "/api/v1", auth=("guest", "guest"), trust_env=False) as api:

        def get(path: str) -> Any:
            response = api.get(path)
            assert response.is_success, f"{path}: {response.text}"
            document = plain(response.json())
            return document["items"] if isinstance(document, dict) and "items" in document else document

        found: dict[str, Any] = {
            path: get(f"/{path}")
            for path in ("queues", "exchanges", "bindings", "sessions", "retained", "policies")
        }
        found["sessions"] = [each for each in found["sessions"] if each["user"].isprintable()]
        for queue in [each["name"] for each in found["queues"]]:
            found[f"{queue} groups"] = get(f"/queues/{queue}/groups")
            for state in STATES:
                found[f"{queue} {state}"] = get(f"/queues/{queue}/messages?state={state}&limit=100")
    return found


_PASSING = (
    "message_id",
    "worker",
    "memory_bytes",
    "number",
    "ended_at",
    "disconnected_at",
    "away_since",
    "idle_ms",
)


def plain(document: Any) -> Any:
    if isinstance(document, list):
        made = [plain(each) for each in document]
        return sorted(made, key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(document, dict):
        return {
            key: plain(value)
            for key, value in document.items()
            if key not in _PASSING and not key.endswith(("_per_s", "_age_ms", "_deadline_ms"))
        }
    return document


# two and three workers, everything


def fill(broker: BrokerProcess, count: int) -> list[wire.RawMqtt]:
    """Have something of each kind in each shard; gives clients that still hold what they were sent."""
    channels = [channel_at(broker, worker) for worker in range(count)]
    for worker, channel in enumerate(channels):
        fill_queues(channel, worker)
    holding = []
    for worker in range(count):
        member = lasting(broker, client_of(count, worker, "member"))
        subscribed(member, "$share/g/jobs/+", 1)
        member.drop()
        client = lasting(broker, client_of(count, worker, "all"))
        subscribed(client, "news/#", 2)
        subscribed(client, f"own/{worker}", 1)
        holding.append(client)
    publisher = wire.RawMqtt(broker.mqtt_port, client_id="publisher")
    published(publisher, "news/0", b"in flight", qos=2)
    for client in holding:
        assert Heard(client.expect(wire.PUBLISH)).payload == "in flight"
    unreleased = lasting(broker, client_of(count, count - 1, "unreleased"))
    unreleased.send_bytes(wire.publish("own/0", b"once", qos=2, packet_id=7))
    unreleased.expect(wire.PUBREC)
    for number in range(2 * count):
        published(publisher, f"kept/{number}", b"%d" % number, retain=True)
        published(publisher, f"jobs/{number}", b"job %d" % number)
    return [*holding, unreleased, publisher]


def fill_queues(channel: BlockingChannel, worker: int) -> None:
    queue = f"q{worker}"
    channel.exchange_declare("x", "topic", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, "x", f"to.{worker}.#")
    channel.basic_publish("x", f"to.{worker}.a", b"m0", pika.BasicProperties(delivery_mode=2), mandatory=True)
    amqp.publish(channel, queue, *[f"m{number}" for number in range(1, 6)])
    amqp.publish(channel, queue, "scheduled", headers={"x-delay": SCHEDULED_S * 1000})
    amqp.publish(channel, queue, "identified", headers={"x-deduplication-id": "one"})
    first, second = amqp.get(channel, queue, auto_ack=False), amqp.get(channel, queue, auto_ack=False)
    assert first is not None
    assert second is not None
    channel.basic_ack(second.tag)
    channel.basic_reject(first.tag, requeue=True)
    until(lambda: amqp.count(channel, queue) == 6)
    assert amqp.get(channel, queue, auto_ack=False) is not None  # in flight at the end
    levels = f"levels{worker}"
    channel.queue_declare(levels, durable=True, arguments={"x-max-priority": 3})
    for priority in (1, 3, 2):
        amqp.publish(channel, levels, f"p{priority}", priority=priority)
    stream = f"s{worker}"
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    amqp.publish(channel, stream, *[f"r{number}" for number in range(10)])


def check(broker: BrokerProcess, count: int) -> None:
    """Take what `fill` left, as consumers see it."""
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    collectors: list[amqp.Collector] = []
    for worker in range(count):
        queue = f"q{worker}"
        amqp.publish(channel, queue, "identified", headers={"x-deduplication-id": "one"})
        collectors.append(amqp.Collector(channel, queue, ack=True))
        got = collectors[-1].wait(6)
        assert amqp.bodies(got) == ["m0", "m2", "m3", "m4", "m5", "identified"]
        assert got[0].method.redelivered
        got = amqp.Collector(channel, f"levels{worker}", ack=True).wait(3)
        assert amqp.bodies(got) == ["p3", "p2", "p1"]
    streams = connection.channel()
    streams.basic_qos(prefetch_count=100)
    for worker in range(count):
        got = amqp.Collector(streams, f"s{worker}", ack=True, arguments={"x-stream-offset": 3}).wait(7)
        assert [each.headers["x-stream-offset"] for each in got] == list(range(3, 10))
        assert amqp.bodies(got) == [f"r{number}" for number in range(3, 10)]
    for worker in range(count):
        channel.basic_publish("x", f"to.{worker}.b", b"again", mandatory=True)
    for _ in range(9):
        broker.pass_time(SCHEDULED_S / 8)
    for collector in collectors:
        assert sorted(amqp.bodies(collector.wait(8)[6:])) == ["again", "scheduled"]
    connection.close()


def check_sessions(broker: BrokerProcess, count: int) -> None:
    publisher = wire.RawMqtt(broker.mqtt_port, client_id="publisher")
    published(publisher, "news/1", b"new", qos=1)
    for worker in range(count):
        client = lasting(broker, client_of(count, worker, "all"))
        assert client.connack.body[0] == 1
        repeated = Heard(client.expect(wire.PUBLISH))
        assert (repeated.payload, repeated.qos, repeated.is_repeated) == ("in flight", 2, True)
        client.send_bytes(wire.acknowledgement(wire.PUBREC, repeated.packet_id))
        waiting = [hear_or_release(client) for _ in range(3 if worker == 0 else 2)]
        assert [each for each in waiting if each] == (["once", "new"] if worker == 0 else ["new"])
        client.quiet()
        client.drop()
    unreleased = lasting(broker, client_of(count, count - 1, "unreleased"))
    unreleased.send_bytes(wire.publish("own/0", b"once", qos=2, packet_id=7, dup=True))
    unreleased.expect(wire.PUBREC)
    unreleased.send_bytes(wire.acknowledgement(wire.PUBREL, 7))
    unreleased.expect(wire.PUBCOMP)
    again = lasting(broker, client_of(count, 0, "all"))
    again.quiet()
    reader = wire.RawMqtt(broker.mqtt_port, client_id="reader")
    reader.send_bytes(wire.subscribe("kept/#", 1))
    reader.expect(wire.SUBACK)
    assert sorted(hear(reader).payload for _ in range(2 * count)) == sorted(map(str, range(2 * count)))
    members = [lasting(broker, client_of(count, worker, "member")) for worker in range(count)]
    jobs = [job for member in members for job in hear_all(member)]
    assert sorted(jobs) == sorted(f"job {number}" for number in range(2 * count))
    for client in (publisher, unreleased, again, reader, *members):
        client.drop()


def hear_or_release(client: wire.RawMqtt) -> str:
    """Take a PUBLISH, or the PUBREL of one before, which is "", and have done with it."""
    received = client.read()
    assert received is not None
    if received.kind == wire.PUBREL:
        client.send_bytes(wire.acknowledgement(wire.PUBCOMP, struct.unpack(">H", received.body[:2])[0]))
        return ""
    heard = Heard(received)
    if heard.qos == 1:
        client.send_bytes(wire.acknowledgement(wire.PUBACK, heard.packet_id))
        return heard.payload
    client.send_bytes(wire.acknowledgement(wire.PUBREC, heard.packet_id))
    client.expect(wire.PUBREL)
    client.send_bytes(wire.acknowledgement(wire.PUBCOMP, heard.packet_id))
    return heard.payload


@pytest.mark.timed
@pytest.mark.parametrize(("count", "end"), [(2, BrokerProcess.kill9), (3, BrokerProcess.stop)])
def test_everything_is_there_with_one_worker_after_a_merge(own_broker, store, tmp_path, count, end):
    settings = encrypted(tmp_path / "keys", "2026") if count == 3 else {}
    broker = own_broker({"workers": count, **settings}, timed=True)
    clients = fill(broker, count)
    end(broker)
    for client in clients:
        client.drop()
    broker.start()
    before = view(broker)
    broker.stop()
    broker.config = settings
    with pytest.raises(BrokerFailed):
        broker.start()
    assert "or have `sluicemq store merge` bring all into one" in broker.log
    moved = store(broker, "merge", "--json")
    assert [each["shard"] for each in moved] == list(range(1, count))
    assert not list(Path(broker.storage).glob("shard-*"))
    assert "problems" not in store(broker, "verify")
    broker.start()
    after = view(broker)
    for path, found in before.items():
        assert after[path] == found, path
    check(broker, count)
    check_sessions(broker, count)
    broker.restart()
    assert amqp.connect(broker.amqp_port).is_open
    broker.stop()
    assert "problems" not in store(broker, "verify")
    assert "nothing to merge" in store(broker, "merge")


# killed on the way

KILLED_AT = """
import os, shutil, signal, sys

from broker.cli import app
from config import limits
from storage.journal.journaled_store import JournaledStore

writes_left = int(sys.argv.pop(1))
limits.RESTORE_WRITE_BYTES = 4_000
write, remove = JournaledStore.write, shutil.rmtree


def die_if_due():
    global writes_left
    if not writes_left:
        os.kill(os.getpid(), signal.SIGKILL)
    writes_left -= 1


async def written(store, ops):
    die_if_due()
    await write(store, ops)


def removed(path, *options, **named):
    if "shard-" in str(path):
        (path / "lock").unlink(missing_ok=True)  # a part of it
        die_if_due()
    remove(path, *options, **named)


JournaledStore.write, shutil.rmtree = written, removed
app()
"""


def killed_at(broker: BrokerProcess, write: int) -> bool:
    """Merge, with a kill before a write; whether it came so far."""
    arguments = [sys.executable, "-c", KILLED_AT, str(write), "store", "merge", "--storage", broker.storage]
    done = subprocess.run(arguments, cwd=WORKING_DIRECTORY, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def test_merge_that_is_killed_goes_on_when_it_is_run_again_and_no_broker_starts_meanwhile(own_broker, store):
    broker = own_broker({"workers": 2})
    clients = fill(broker, 2)
    broker.stop()
    for client in clients:
        client.drop()
    broker.start()
    before = view(broker)
    broker.stop()
    write = 0
    while killed_at(broker, write):
        if write in (1, 2, 6):
            for workers in (1, 2):
                broker.config = {"workers": workers}
                with pytest.raises(BrokerFailed):
                    broker.start()
            assert "has not come to its end: run `sluicemq store merge` again" in broker.log
        write += 1
    assert write > 6
    assert "problems" not in store(broker, "verify")
    broker.config = {}
    broker.start()
    after = view(broker)
    for path, found in before.items():
        assert after[path] == found, path
    check_sessions(broker, 2)


def test_merge_of_a_broker_that_runs_is_refused(own_broker, store):
    broker = own_broker({"workers": 2})
    assert "in use by process" in store(broker, "merge", code=1)


# what another shard was owed


def test_dead_letters_that_another_shard_was_owed_are_there_once(own_broker, store):
    broker = own_broker({"workers": 2})
    here, there = channel_at(broker, 0), channel_at(broker, 1)
    there.queue_declare("dead", durable=True)
    here.queue_declare("beside", durable=True)
    here.queue_declare(
        "q", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    amqp.publish(here, "q", *map(str, range(6)))

    def reject(count: int) -> None:
        for _ in range(count):
            got = amqp.get(here, "q", auto_ack=False)
            assert got is not None
            here.basic_reject(got.tag, requeue=False)

    reject(2)
    until(lambda: amqp.count(there, "dead") == 2)
    os.kill(pids(broker)[1], signal.SIGSTOP)
    reject(4)
    amqp.publish(here, "beside", "behind them")
    broker.kill9()
    store(broker, "merge")
    broker.config = {}
    broker.start()
    channel = amqp.connect(broker.amqp_port).channel()
    until(lambda: amqp.count(channel, "dead") == 6)
    got = amqp.Collector(channel, "dead", ack=True).wait(6)
    assert amqp.bodies(got) == list(map(str, range(6)))
    until(lambda: not any("outbox" in each["name"] for each in view(broker)["queues"]))
