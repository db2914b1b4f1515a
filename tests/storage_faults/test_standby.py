"""Brokers with leases on one prefix of an S3 bucket, as processes of machines with names of their own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pika.exceptions import AMQPError

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.storage_faults.s3 import BUCKET, Way, s3_endpoint
from tests.waiting import pass_time, until

pytestmark = pytest.mark.timeout(240)

LEASE_S = 3
PATIENCE_S = 60.0
ELSEWHERE = Path(__file__).parent / "elsewhere"
Node = tuple[BrokerProcess, Way]


@pytest.fixture
def node(tmp_path) -> Iterator[Callable[[str], Node]]:
    """Makes brokers, not started, each with a way of its own to the store."""
    made: list[Node] = []
    with s3_endpoint() as environment:

        def make(name: str) -> Node:
            way = Way(environment["AWS_ENDPOINT_URL"])
            process = BrokerProcess(
                tmp_path / name,
                {"cluster": {"lease": f"{LEASE_S}s"}},
                storage=f"s3://{BUCKET}/{tmp_path.name}",
                environment=environment
                | {"AWS_ENDPOINT_URL": way.endpoint, "NODE_NAME": name, "PYTHONPATH": str(ELSEWHERE)},
            )
            made.append((process, way))
            return process, way

        yield make
        for process, way in made:
            process.kill9()
            way.close()


def until_logged(process: BrokerProcess, text: str) -> None:
    until(lambda: text in process.log, PATIENCE_S, told=lambda: f"{text}\n{process.log[-3000:]}")


def pair(node: Callable[[str], Node]) -> tuple[Node, Node]:
    """One that serves and one that waits."""
    owner, standby = node("owner"), node("standby")
    owner[0].start(PATIENCE_S)
    standby[0].spawn()
    until_logged(standby[0], f"waiting for process {owner[0].pid} on owner")
    return owner, standby


def channel_of(process: BrokerProcess) -> Any:
    channel = amqp.connect(process.amqp_port).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    return channel


def bodies(process: BrokerProcess) -> list[bytes]:
    """What waits; it is left there."""
    connection = amqp.connect(process.amqp_port)
    channel = connection.channel()
    found = []
    while (got := channel.basic_get("work"))[0] is not None:
        found.append(got[2])
    amqp.close_quietly(connection)
    return found


class Client:
    """Consumes from "work", and publishes to it on a connection of its own, in threads."""

    def __init__(self, process: BrokerProcess) -> None:
        self.delivered: list[bytes] = []
        self._pool = ThreadPoolExecutor(2)
        self._publishing = channel_of(process)
        channel = channel_of(process)
        channel.basic_consume("work", lambda *delivery: self.delivered.append(delivery[3]))
        self.consuming = self._pool.submit(self._consume, channel)

    def _consume(self, channel: Any) -> None:
        try:
            channel.start_consuming()
        except AMQPError:
            pass

    def publish(self, body: bytes) -> Any:
        """Give what becomes of it: whether it was confirmed."""

        def publish() -> bool:
            try:
                amqp.publish(self._publishing, "work", body)
            except AMQPError:
                return False
            return True

        return self._pool.submit(publish)


def test_standby_delivers_what_was_confirmed_soon_after_the_owner_was_killed(node):
    (owner, _), (standby, _) = pair(node)
    channel = channel_of(owner)
    for number in range(10):
        amqp.publish(channel, "work", b"%d" % number)
    pass_time(LEASE_S + 2)
    assert owner.alive, "an idle owner keeps its lease"
    assert "taken over" not in standby.log
    owner.kill9()
    standby.wait_ready(PATIENCE_S)
    assert bodies(standby) == [b"%d" % number for number in range(10)]


def test_owner_that_was_stopped_for_longer_than_its_lease_delivers_and_confirms_nothing(node):
    (owner, _), (standby, _) = pair(node)
    client = Client(owner)
    assert client.publish(b"before").result(PATIENCE_S)
    until(lambda: client.delivered == [b"before"])
    owner.process.send_signal(signal.SIGSTOP)
    late = client.publish(b"late")
    standby.wait_ready(PATIENCE_S)
    amqp.publish(channel_of(standby), "work", b"of the heir")
    owner.process.send_signal(signal.SIGCONT)
    assert owner.wait_exit(PATIENCE_S) == 1
    assert not late.result(PATIENCE_S)
    client.consuming.result(PATIENCE_S)
    assert client.delivered == [b"before"]
    assert "another process has opened this database" in owner.log
    assert set(bodies(standby)) == {b"before", b"of the heir"}


@pytest.mark.long
def test_owner_that_was_stopped_for_longer_than_a_fence_lasts_says_that_its_lease_is_lost(node):
    (owner, _), (standby, _) = pair(node)
    client = Client(owner)
    assert client.publish(b"before").result(PATIENCE_S)
    owner.process.send_signal(signal.SIGSTOP)
    late = client.publish(b"late")
    standby.wait_ready(PATIENCE_S)
    pass_time(10 * LEASE_S)
    owner.process.send_signal(signal.SIGCONT)
    assert owner.wait_exit(PATIENCE_S) == 1
    assert not late.result(PATIENCE_S)
    assert client.delivered in ([b"before"], [])
    assert "too long to be renewed" in owner.log or "another process has opened" in owner.log


def test_owner_that_is_cut_off_from_the_store_refuses_and_says_so_until_another_has_taken_over(node):
    (owner, way), (standby, _) = pair(node)
    client = Client(owner)
    assert client.publish(b"before").result(PATIENCE_S)
    way.cut()
    during = client.publish(b"during")

    def reason() -> str:
        return str(httpx.get(f"{owner.http_url}/api/v1/ready", timeout=PATIENCE_S).json().get("reason", ""))

    assert "was not renewed and ended" in until(
        lambda: reason() if f"the lease of {LEASE_S} s" in reason() else "", PATIENCE_S
    )
    until_logged(owner, "until it is, nothing is delivered or confirmed")
    standby.wait_ready(PATIENCE_S)
    assert bodies(standby)[:1] == [b"before"]
    way.heal()
    assert owner.wait_exit(PATIENCE_S) == 1
    assert not during.result(PATIENCE_S)
    assert "another process has opened this database" in owner.log


def test_store_that_is_away_from_both_for_longer_than_a_lease_changes_no_owner(node):
    (owner, way), (standby, other_way) = pair(node)
    client = Client(owner)
    assert client.publish(b"before").result(PATIENCE_S)
    other_way.cut()
    way.cut()
    during = client.publish(b"during")
    until_logged(owner, f"the lease of {LEASE_S} s")
    pass_time(LEASE_S)
    assert not during.done()
    assert client.delivered.count(b"during") <= 1
    way.heal()
    assert during.result(PATIENCE_S), "the owner has its lease again"
    until(lambda: b"during" in client.delivered, PATIENCE_S)
    other_way.heal()
    pass_time(2 * LEASE_S)
    assert client.publish(b"after").result(PATIENCE_S)
    assert owner.alive
    assert standby.alive
    assert not standby.ports, "it waits as before"


def test_slow_store_costs_no_lease(node):
    (owner, way), (standby, _) = pair(node)
    client = Client(owner)
    way.delay_s = 0.7
    for _ in range(4):
        assert client.publish(b"slow").result(PATIENCE_S)
    pass_time(LEASE_S)
    assert client.publish(b"slow").result(PATIENCE_S)
    assert owner.alive
    assert "the lease of" not in owner.log
    assert not standby.ports


def test_end_in_order_hands_over_at_once(node):
    (owner, _), (standby, _) = pair(node)
    amqp.publish(channel_of(owner), "work", b"kept")
    ready = threading.Thread(target=standby.wait_ready, args=(PATIENCE_S,))
    ready.start()
    assert owner.stop() == 0
    ready.join()
    assert bodies(standby) == [b"kept"]
