"""Nodes are killed, stopped, and cut off from the store and from each other, while clients of all of them
work: what must hold is looked at afterwards, by what clients saw and what the nodes wrote to the store.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from tests.crash.queue_clients import (
    STREAM_OFFSET,
    Ledger,
    clients,
    connected,
    take_rest,
)
from tests.nodes.node_cluster import PATIENCE_S, NodeCluster, node_cluster
from tests.nodes.node_faults import FAULTS, LEASE_S, LONG_FAULTS, Fault
from tests.nodes.story import Story
from tests.waiting import until

pytestmark = [pytest.mark.extension, pytest.mark.timeout(600)]

SEED = int(os.environ.get("CRASH_SEED", "20261127"))
DRAIN_S = 90.0
NAMES = ("a", "b", "c")
STREAMS = ("log", "journal")
BACKLOGS = ("much", "more", "most")
BACKLOG_PER_ROUND = 500
HEARTBEATS_S = (0, 5)
LATE_S_MAX = 1.0
PAUSE_S_MAX = 5.0  # between two messages of a stream that is read to its end
GARBAGE_SOON = {
    "STORE_LEASED_GARBAGE_AGE_MIN_S": 10 * LEASE_S + 1,  # the least that is allowed
    "STORE_GARBAGE_INTERVAL_S": 5,
    "STORE_LEASED_LOG_OBJECTS_MAX": 16,
}


class Run:
    """Clients of a cluster, and the faults that they live through."""

    def __init__(self, cluster: NodeCluster, seed: int) -> None:
        self.ledger = Ledger(STREAMS, BACKLOGS)
        self.lag_s = 0.0
        """How late this process was at most: by so much it may have noted something too late."""
        self.trouble = ""
        """Why the streams could not be read to their ends, when that last was so."""
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._shards: dict[str, int] = {}

    def connect(self) -> pika.BlockingConnection:
        """Connect to a node, patiently or not."""
        port = self._cluster.nodes[random.choice(NAMES)].amqp_port
        return connected(port, heartbeat_s=random.choice(HEARTBEATS_S))

    def declare(self, rounds: int) -> None:
        """Declare each queue and stream at a node, in whose shard it is from then on."""
        owners = self._cluster.owners("a")
        for number, queue in enumerate((*self.ledger.names, *BACKLOGS)):
            name = NAMES[number % len(NAMES)]
            arguments = {"x-queue-type": "stream"} if queue in STREAMS else {}
            with closing(connected(self._cluster.nodes[name].amqp_port)) as connection:
                channel = connection.channel()
                channel.queue_declare(queue, durable=True, arguments=arguments)
                for message in range(BACKLOG_PER_ROUND * rounds * (queue in BACKLOGS)):
                    channel.basic_publish("", queue, b"%d" % message, pika.BasicProperties(delivery_mode=2))
            self._shards[queue] = owners.index(name)

    def go(self, faults: Mapping[str, Fault], rounds: int) -> None:
        """Have so many of the faults happen, some of them two at a time."""
        with self._watched(), clients(self.connect, self.ledger, [("four", "group")]):
            left = rounds
            while left > 0:
                time.sleep(self._chance.uniform(1.0, 4.0))
                left -= self._happen(faults, min(left, self._chance.choice((1, 1, 2))))
            time.sleep(2 * LEASE_S)
        with suppress(AssertionError):  # the ledger tells what is lost
            until(self._is_drained, DRAIN_S)

    def _happen(self, faults: Mapping[str, Fault], count: int) -> int:
        """Have faults happen to as many nodes."""
        with ExitStack() as stack:
            for name in self._chance.sample(NAMES, count):
                kind = self._chance.choice(list(faults))
                for_s = self._chance.uniform(faults[kind].shortest_s, faults[kind].longest_s)
                print(
                    f"{time.strftime('%X')} {time.monotonic():.1f} {name}: {kind} for {for_s:.1f} s",
                    flush=True,
                )
                stack.enter_context(faults[kind].happens(self._cluster, name, self._chance))
                time.sleep(for_s)
        for node in self._cluster.nodes.values():
            node.wait_ready(PATIENCE_S)
        return count

    def _is_drained(self) -> bool:
        """Take what is left in the queues, and read the streams; whether nothing is missing then."""
        take_rest(self.connect, self.ledger)
        return self._reread() and not self.ledger.lost()

    def _reread(self) -> bool:
        """Read the streams from their beginning, by way of each node; whether that came to an end."""
        for name in NAMES:
            try:
                for stream in STREAMS:
                    self._reread_by(name, stream)
            except (AMQPError, OSError) as error:
                self.trouble = f"{stream} at {name}: {error!r}"
                return False
        return True

    def _reread_by(self, name: str, stream: str) -> None:
        with closing(connected(self._cluster.nodes[name].amqp_port)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=200)
            count = channel.queue_declare(stream, passive=True).method.message_count
            found = channel.consume(stream, arguments={STREAM_OFFSET: 0}, inactivity_timeout=PAUSE_S_MAX)
            for expected in range(count):
                method, properties, body = next(found)
                if method is None or body is None:
                    raise OSError(f"{expected} of {count} came")
                offset = properties.headers[STREAM_OFFSET]
                if offset != expected:
                    self.ledger.wrong.append(f"{stream!r} has {offset} behind {expected - 1}")
                    return
                self.ledger.came[stream][body] += 1
                self.ledger.note_offset(stream, STREAM_OFFSET, offset, body)
                channel.basic_ack(method.delivery_tag)
            if count < len(self.ledger.came[stream]):
                raise OSError(f"{count} are there, {len(self.ledger.came[stream])} came before")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Notice how late this process is."""
        stop = threading.Event()

        def watch() -> None:
            began = time.monotonic()
            while not stop.wait(0.02):
                now = time.monotonic()
                self.lag_s = max(self.lag_s, now - began - 0.02)
                began = now

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def check(self) -> None:
        """Find nothing that must not be."""
        ledger = self.ledger
        writes = chain.from_iterable(way.writes for way in self._cluster.ways.values())
        story = Story(writes, LEASE_S)
        late_s, at_s = max(story.late_s(self._shards[each.queue], each) for each in ledger.readings)
        late_confirm_s = max(story.late_confirm_s(self._shards[each.queue], each) for each in ledger.confirms)
        doubted = sum(way.doubted for way in self._cluster.ways.values())
        print(
            f"{len(ledger.confirms)} confirmed, {len(ledger.readings)} consumers, {doubted} answers lost,"
            f" latest delivery {late_s:.2f} s at {at_s:.1f}, confirm {late_confirm_s:.2f} s,"
            f" longest wait {ledger.longest_wait_s:.1f} s, lag {self.lag_s:.2f} s {self.trouble}",
            flush=True,
        )
        assert ledger.lost() == {}, "\n".join([*ledger.about_lost(), *ledger.wrong])
        assert ledger.wrong == []
        assert all(ledger.confirmed.values())
        assert late_s < LATE_S_MAX + self.lag_s
        assert late_confirm_s < LATE_S_MAX + self.lag_s


def run(directory: Path, faults: Mapping[str, Fault], rounds: int, seed: int) -> None:
    print(f"\nCRASH_SEED={seed}", flush=True)
    with node_cluster(directory, shards=3, lease_s=LEASE_S) as cluster:
        cluster.join(NAMES, GARBAGE_SOON)
        cluster.until_owned("a", a=1, b=1, c=1)
        tried = Run(cluster, seed)
        tried.declare(rounds)
        tried.go(faults, rounds)
        tried.check()


def test_what_must_hold_does_whatever_happens_to_nodes(tmp_path: Path) -> None:
    run(tmp_path, FAULTS, 3, SEED)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_what_must_hold_does_in_many_faults(tmp_path: Path, seed: int) -> None:
    run(tmp_path, LONG_FAULTS, 10, seed)
