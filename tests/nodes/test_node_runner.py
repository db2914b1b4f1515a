"""broker.nodes.node_runner: three nodes, in this process, each with a way of its own to an S3 server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from broker.clock import Clock
from broker.nodes.node_machine import Wish
from broker.nodes.node_runner import NodeRunner
from broker.nodes.shard_map import ShardMap
from config import limits
from storage.lease_clock import lease_clock_s
from storage.object_records import ObjectRecords
from tests.storage_faults.s3 import BUCKET, Way, s3_endpoint
from tests.waiting import until_so

LEASE_S = 3.0
PER_NODE = 2


class Work:
    """Shards that open and close a moment later, and get on."""

    def __init__(self) -> None:
        self.runner: NodeRunner
        self.is_open: dict[int, bool] = {}
        self.end_s = 0.0
        self.map = ShardMap()
        self._loop = asyncio.get_running_loop()

    def open(self, shard: int) -> None:
        assert shard not in self.is_open
        self.is_open[shard] = False
        self._loop.call_later(0.05, self._opened, shard)

    def stop(self, shard: int, *, kill: bool) -> None:
        self._loop.call_later(0.0 if kill else 0.05, self._closed, shard)

    def lease_changed(self, end_s: float) -> None:
        self.end_s = end_s

    def map_changed(self, found: ShardMap) -> None:
        assert found.version >= self.map.version  # a node that joins again reads it anew
        self.map = found

    def serving(self) -> set[int]:
        is_valid = lease_clock_s() < self.end_s
        return {shard for shard, is_open in self.is_open.items() if is_open and is_valid}

    def _opened(self, shard: int) -> None:
        if shard in self.is_open:
            self.is_open[shard] = True
            self.runner.opened(shard)
            self._turn(shard)

    def _turn(self, shard: int) -> None:
        if shard in self.is_open:
            self.runner.turned(shard, lease_clock_s())
            self._loop.call_later(LEASE_S / limits.LEASE_BEATS, self._turn, shard)

    def _closed(self, shard: int) -> None:
        if self.is_open.pop(shard, None) is not None:
            self.runner.closed(shard)


class Node:
    def __init__(self, name: str, endpoint: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.way = Way(endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL", self.way.endpoint)
        self.work = Work()
        self.runner = self.work.runner = NodeRunner(
            ObjectRecords(f"s3://{BUCKET}/{folder}", "cluster", LEASE_S / limits.NODE_REQUESTS_PER_LEASE),
            self.work,
            node=name,
            address=f"{name}:1",
            shards=3 * PER_NODE,
            lease_ms=int(LEASE_S * 1000),
            clock=Clock(),
        )
        self.task = asyncio.create_task(self.runner.run())

    async def kill(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        self.work.is_open = {}


@pytest.fixture
async def nodes(tmp_path, monkeypatch) -> AsyncIterator[list[Node]]:
    with s3_endpoint() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made = [Node(name, environment["AWS_ENDPOINT_URL"], tmp_path.name, monkeypatch) for name in "abc"]
        try:
            await until_so(lambda: all(len(node.work.serving()) == PER_NODE for node in made))
            yield made
        finally:
            for node in made:
                await node.kill()
                node.way.close()


def serving(nodes: list[Node]) -> list[int]:
    return sorted([shard for node in nodes for shard in node.work.serving()])


def members(node: Node) -> list[str]:
    """The nodes of the map as one of them has read it last."""
    return sorted(member.node for member in node.work.map.members.values())


ALL = list(range(3 * PER_NODE))


async def test_shards_of_a_node_that_died_are_taken_within_a_lease_and_two_seconds(nodes):
    loop = asyncio.get_running_loop()
    assert serving(nodes) == ALL
    await nodes[0].kill()
    killed = loop.time()
    await until_so(lambda: serving(nodes) == ALL)
    assert LEASE_S * 0.6 < loop.time() - killed < LEASE_S + 2
    assert [len(node.work.serving()) for node in nodes[1:]] == [3, 3]


async def test_node_cut_off_refuses_within_its_lease_and_joins_again_as_another(nodes):
    loop = asyncio.get_running_loop()
    member = nodes[0].runner.machine.name
    nodes[0].way.cut()
    cut = loop.time()
    await until_so(lambda: not nodes[0].work.serving())
    assert loop.time() - cut < LEASE_S + 0.2
    assert "no answer" in nodes[0].runner.trouble()
    await until_so(lambda: serving(nodes[1:]) == ALL)
    assert loop.time() - cut < LEASE_S + 2
    nodes[0].way.heal()
    await until_so(lambda: nodes[0].runner.machine.name != member and not nodes[0].runner.trouble())
    await until_so(lambda: len(nodes[0].work.serving()) == PER_NODE and serving(nodes) == ALL)


async def test_leaving_node_hands_over_its_shards_and_its_record_goes(nodes):
    nodes[0].runner.tell(Wish.LEAVE)
    await nodes[0].task
    await until_so(lambda: serving(nodes) == ALL)
    assert not nodes[0].work.is_open
    await until_so(lambda: members(nodes[1]) == ["b", "c"])


async def test_node_whose_machine_was_suspended_refuses_at_once(nodes, monkeypatch):
    assert all(node.work.serving() for node in nodes)
    for node in nodes:
        node.way.cut()
    clock_gettime = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clock_gettime(clock) + LEASE_S * is_boot(clock))
    assert not serving(nodes)
    assert all("ended" in node.runner.trouble() for node in nodes)


def is_boot(clock: int) -> bool:
    """Whether a clock goes on in a machine that is suspended."""
    return clock == time.CLOCK_BOOTTIME
