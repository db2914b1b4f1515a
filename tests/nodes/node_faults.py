"""What happens to nodes of a cluster in tests: each fault as data, begun and ended by one function."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from tests.nodes.node_cluster import NodeCluster
from tests.storage_faults.s3 import Way
from tests.storage_faults.store_way import Doubt

LEASE_S = 3

Happens = Callable[[NodeCluster, str, random.Random], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a node, and for how long: between these seconds."""

    happens: Happens
    shortest_s: float
    longest_s: float


@contextmanager
def killed(cluster: NodeCluster, name: str, chance: random.Random) -> Iterator[None]:
    """The node dies, and is started again: it serves once nothing else is wrong."""
    cluster.nodes[name].kill9()
    yield
    cluster.nodes[name].spawn()


@contextmanager
def stopped(cluster: NodeCluster, name: str, chance: random.Random) -> Iterator[None]:
    """The node does nothing for a while, as one whose machine sleeps."""
    process = cluster.nodes[name].process
    assert process is not None
    os.killpg(process.pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGCONT)


@contextmanager
def cut_off(
    cluster: NodeCluster, name: str, chance: random.Random, *, hold: bool = False, everybody: bool = False
) -> Iterator[None]:
    """The store does not answer the node, or none of them; with `hold` what is asked arrives late."""
    ways = list(cluster.ways.values()) if everybody else [cluster.ways[name]]
    for way in ways:
        if hold:
            way.hold()
        else:
            way.cut()
    yield
    for way in ways:
        way.heal()


@contextmanager
def slow(cluster: NodeCluster, name: str, chance: random.Random, *, delay_s: float = 0) -> Iterator[None]:
    """The store takes long to answer the node."""
    cluster.ways[name].delay_s = delay_s or chance.uniform(0.1, 1.5)
    yield
    cluster.ways[name].delay_s = 0.0


@contextmanager
def doubtful(
    cluster: NodeCluster, name: str, chance: random.Random, *, answer: Doubt, everybody: bool = False
) -> Iterator[None]:
    """The store does conditional writes of the node, and does not say so."""
    ways = list(cluster.ways.values()) if everybody else [cluster.ways[name]]
    for way in ways:
        way.share = chance.choice((0.1, 0.5, 1.0))
        way.doubt = answer
    yield
    for way in ways:
        way.heal()


@contextmanager
def links_cut(
    cluster: NodeCluster,
    name: str,
    chance: random.Random,
    *,
    cut: Callable[..., None],
    out: bool = True,
    back: bool = True,
) -> Iterator[None]:
    """Links of the node, with all others, are cut by a method of `Way`, in one direction or both."""
    found = cluster.directions(name, out=out, back=back)
    for way, directions in found:
        cut(way, *directions)
    yield
    for way, _ in found:
        way.heal()


def _refuse(way: Way, *directions: bool) -> None:
    way.refuse()


FAULTS = {
    "kill": Fault(killed, 0, 2.5 * LEASE_S),
    "stop": Fault(stopped, 0, 3 * LEASE_S),
    "store cut off": Fault(cut_off, 0, 3 * LEASE_S),
    "store slow": Fault(slow, 0, 2 * LEASE_S),
    "store says nothing of what it did": Fault(partial(doubtful, answer=Doubt.NOTHING), 1, 3 * LEASE_S),
    "store ends connections of what it did": Fault(partial(doubtful, answer=Doubt.END), 1, 3 * LEASE_S),
    "store says time-out of what it did": Fault(partial(doubtful, answer=Doubt.TIMEOUT), 1, 3 * LEASE_S),
    "links refused": Fault(partial(links_cut, cut=_refuse), 0, 15),
    "links silent": Fault(partial(links_cut, cut=Way.cut), 1, 15),
    "links silent out": Fault(partial(links_cut, cut=Way.cut, back=False), 1, 15),
    "links silent back": Fault(partial(links_cut, cut=Way.cut, out=False), 1, 15),
    "links held": Fault(partial(links_cut, cut=Way.hold), 1, 15),
    "links held out": Fault(partial(links_cut, cut=Way.hold, back=False), 1, 15),
    "links held back": Fault(partial(links_cut, cut=Way.hold, out=False), 1, 15),
}

LONG_FAULTS = {
    **FAULTS,
    "stop 20 s": Fault(stopped, 20, 20),
    "stop for about what a fence lasts": Fault(stopped, 9 * LEASE_S, 12 * LEASE_S),
    "stop 40 s": Fault(stopped, 40, 40),
    "stop 120 s": Fault(stopped, 120, 120),
    "store away 20 s": Fault(partial(cut_off, everybody=True), 20, 20),
    "store held": Fault(partial(cut_off, hold=True), 1, 6 * LEASE_S),
    "store slow 1 s": Fault(partial(slow, delay_s=1), 5, 20),
    "store in doubt for all": Fault(partial(doubtful, answer=Doubt.TIMEOUT, everybody=True), 1, 2 * LEASE_S),
}
