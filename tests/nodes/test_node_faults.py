"""Nodes are killed, stopped for a while, and cut off from the store, while clients of all of them work."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from tests.crash.queue_clients import QUEUES, Ledger, clients, connected, take_rest
from tests.nodes.node_cluster import NodeCluster, node_cluster
from tests.waiting import until

pytestmark = [pytest.mark.extension, pytest.mark.timeout(600)]

SEED = int(os.environ.get("CRASH_SEED", "20261127"))
LEASE_S = 3
DRAIN_S = 90.0
NAMES = ("a", "b", "c")


def kill(cluster: NodeCluster, name: str, chance: random.Random) -> None:
    """The node dies, and comes back."""
    cluster.nodes[name].kill9()
    time.sleep(chance.uniform(0, 2.5 * LEASE_S))
    cluster.nodes[name].start(60)


def stop(cluster: NodeCluster, name: str, chance: random.Random) -> None:
    """The node does nothing for a while, as one whose machine sleeps."""
    process = cluster.nodes[name].process
    assert process is not None
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0, 3 * LEASE_S))
    os.killpg(process.pid, signal.SIGCONT)


def cut(cluster: NodeCluster, name: str, chance: random.Random) -> None:
    """The store does not answer the node."""
    cluster.ways[name].cut()
    time.sleep(chance.uniform(0, 3 * LEASE_S))
    cluster.ways[name].heal()


def slow(cluster: NodeCluster, name: str, chance: random.Random) -> None:
    """The store takes long to answer the node."""
    cluster.ways[name].delay_s = chance.uniform(0.1, 1.5)
    time.sleep(chance.uniform(0, 2 * LEASE_S))
    cluster.ways[name].delay_s = 0.0


FAULTS: tuple[Callable[[NodeCluster, str, random.Random], None], ...] = (kill, stop, cut, slow)


def run(directory: Path, rounds: int, seed: int) -> Ledger:
    chance = random.Random(seed)
    ledger = Ledger()
    with node_cluster(directory, shards=3, lease_s=LEASE_S) as cluster:
        cluster.start(*NAMES)
        cluster.until_owned("a", a=1, b=1, c=1)

        def connect() -> pika.BlockingConnection:
            return connected(cluster.nodes[random.choice(NAMES)].amqp_port)

        for queue, name in zip(QUEUES, (*NAMES, "a"), strict=True):
            connection = connected(cluster.nodes[name].amqp_port)
            connection.channel().queue_declare(queue, durable=True)
            connection.close()
        with clients(connect, ledger):
            for _ in range(rounds):
                time.sleep(chance.uniform(1.0, 4.0))
                fault, name = chance.choice(FAULTS), chance.choice(NAMES)
                print(f"{time.strftime('%X')} {fault.__name__} {name}", flush=True)
                fault(cluster, name, chance)
            time.sleep(2 * LEASE_S)
        with suppress(AssertionError):  # the ledger tells what is lost
            until(lambda: take_rest(connect, ledger), DRAIN_S)
    return ledger


def check(ledger: Ledger, seed: int) -> None:
    assert ledger.lost() == {}, f"CRASH_SEED={seed}"
    assert ledger.wrong == []
    assert all(ledger.confirmed.values())


def test_nothing_confirmed_is_lost_whatever_happens_to_nodes(tmp_path: Path) -> None:
    check(run(tmp_path, 3, SEED), SEED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_nothing_confirmed_is_lost_in_many_faults(tmp_path: Path, seed: int) -> None:
    check(run(tmp_path, 10, seed), seed)
