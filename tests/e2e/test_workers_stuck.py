"""A worker whose loop does not turn: clients of others are answered, nothing that was confirmed is lost."""

import os
import signal
import threading
import time
from collections.abc import Callable
from zlib import crc32

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError, UnroutableError

from config import limits
from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.workers import channel_at, pids
from tests.waiting import until

pytestmark = [pytest.mark.extension, pytest.mark.timeout(120)]

SILENT_S = limits.WORKER_SILENT_MS_MAX / 1000
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Stopped:
    """A worker with SIGSTOP; it may go on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@pytest.fixture
def two(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return own_broker({"workers": 2})


def taken(channel: BlockingChannel, queue: str, body: str) -> bool:
    """Whether a publish is confirmed; it may be refused."""
    try:
        channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)
    except (NackError, UnroutableError):
        return False
    return True


def declared(broker: BrokerProcess) -> tuple[BlockingChannel, BlockingChannel]:
    """Channels at both workers, with a queue of its own at each: q0 and q1."""
    channels = channel_at(broker, 0), channel_at(broker, 1)
    for number, channel in enumerate(channels):
        channel.queue_declare(f"q{number}", durable=True)
    return channels


def test_clients_of_others_are_answered_while_a_worker_stands_still_and_it_goes_on_after(two):
    here, there = declared(two)
    confirmed = [body for body in ("before 1", "before 2") if taken(here, "q1", body)]
    assert taken(here, "q0", "held by the other worker's client")
    assert amqp.get(there, "q0", auto_ack=False) is not None
    cancelled: list[str] = []
    here.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    consumer = amqp.Collector(channel_at(two, 0), "q1")
    consumer.wait(2)
    here.basic_consume("q1", lambda *told: None)
    stopped = Stopped(pids(two)[1])
    began = time.monotonic()
    if taken(here, "q1", "meanwhile"):
        confirmed.append("meanwhile")
    assert time.monotonic() - began < SILENT_S + 5, "nobody waits for it any longer"
    assert "worker.silent" in two.log
    until(lambda: here.connection.process_data_events(0) or len(cancelled) == 1)
    assert taken(here, "q0", "beside")
    bodies = [amqp.get(here, "q0"), amqp.get(here, "q0")]
    assert [each and each.body for each in bodies] == [b"held by the other worker's client", b"beside"]
    assert not taken(here, "q1", "too late")
    here.queue_declare(next(name for name in map(str, range(9)) if crc32(name.encode()) % 2 == 0))
    home = next(name for name in map(str, range(9)) if crc32(f"/\x1d{name}".encode()) % 2 == 1)
    client = wire.RawMqtt(two.mqtt_port, version=None)
    client.send_bytes(wire.connect(wire.V5, home))
    stopped.go_on()
    until(lambda: taken(here, "q1", "after"))
    confirmed.append("after")
    assert taken(there, "q0", "from there")
    got = amqp.bodies(amqp.Collector(channel_at(two, 0), "q1", ack=True).wait(len(confirmed)))
    assert set(confirmed) <= set(got)
    assert "worker.stuck" not in two.log
    client.drop()
    assert two.stop() == 0


def test_worker_that_is_busy_for_a_while_keeps_its_links(two):
    here, _ = declared(two)
    stopped = Stopped(pids(two)[1])
    timer = threading.Timer(SILENT_S / 2, stopped.go_on)
    timer.start()
    assert taken(here, "q1", "late")
    timer.join()
    assert "worker.silent" not in two.log
    assert "worker.lost" not in two.log
    assert two.stop() == 0


@pytest.mark.parametrize("number", [0, 1])
def test_worker_that_stands_still_for_long_is_killed_and_started_again(two, number):
    channels = declared(two)
    here, queue = channels[1 - number], f"q{number}"
    confirmed = [body for body in map(str, range(20)) if taken(here, queue, body)]
    before = pids(two)
    Stopped(before[number])
    until(lambda: pids(two) != before, limits.WORKER_STUCK_S_MAX + 30)
    assert pids(two)[1 - number] == before[1 - number]
    (line,) = [line for line in two.log.splitlines() if "worker.stuck" in line]
    assert f"worker={number}" in line
    until(lambda: taken(here, queue, "after"))
    got = amqp.bodies(amqp.Collector(here, queue, ack=True).wait(len(confirmed) + 1))
    assert got[: len(confirmed)] == confirmed
    assert got[-1] == "after"
    assert two.stop() == 0
