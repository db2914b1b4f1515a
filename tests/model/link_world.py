"""Three workers in one process on stores in memory, with links that are late, cut and made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

from broker.engine import lease_loop, sweeper
from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from broker.workers import workers as workers_module
from broker.workers.asking_link import Link
from broker.workers.link_wire import LinkWire
from broker.workers.sharded_client import ShardedClient
from broker.workers.worker_place import WorkerPlace
from broker.workers.workers import Workers
from config import limits
from storage.batch import WriteOps
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, START_MS
from tests.model.seeded_loop import OWNER, SeededLoop
from tests.model.tight_limits import TightLimits

T = TypeVar("T")

COUNT: Final = 3
TIGHT: Final = {
    limits: {
        "LINK_PLANS_MAX": 3,
        "LINK_OUTPUT_BYTES_HIGH": 1_500,
        "OUTBOX_UNCONFIRMED_MAX": 3,
        "TAIL_BYTES_PER_QUEUE_MIN": 2_000,
        "DISPATCHED_PER_TURN_MAX": 9,
        "NO_ACK_BURST_MAX": 6,
    }
}


class LoopClock:
    """The time of a loop."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self.monotonic = loop.time
        self.thread_s = loop.time

    def now_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000)


class SlowStore(MemoryStore):
    """A store whose writes take a while, and may be durable a while before that is known."""

    def __init__(self, chance: Random, rows: Mapping[bytes, bytes] | None = None) -> None:
        super().__init__(rows=rows)
        self._chance = chance

    async def write(self, ops: WriteOps) -> None:
        await asyncio.sleep(self._chance.choice((0, 0, 0.002, 0.02)))
        await super().write(ops)
        await asyncio.sleep(self._chance.choice((0, 0.002)))

    def crash(self) -> SlowStore:
        return SlowStore(self._chance, super().crash()._rows)


class _Quiet:
    """Has the virtual hosts and bans of a worker: there are none."""

    def follow(self, *kept: object) -> None:
        """See `broker.workers.shared_state`."""


async def _read_nothing(by: str) -> None:
    """Read the users, of which there are none."""


class Node:
    """One worker, from a start to its end. `is_ready`: it takes clients."""

    def __init__(self, loop: SeededLoop, number: int, store: SlowStore) -> None:
        self._loop = loop
        self.number = number
        self.store = store
        self.clock: Any = LoopClock(loop)
        self.is_ready = False
        self.is_there = True
        self._is_scheduled = False
        self.shard: Shard
        self.workers: Workers
        self.client: ShardedClient

    def start(self) -> None:
        """Begin to start."""
        self.within(lambda: self._loop.create_task(self._start()))

    async def _start(self) -> None:
        assert OWNER.get() is self
        self.shard = await Shard.open(
            self.store, self.clock, default_policy=DEFAULT_POLICY, auto_create=True, cache_bytes_max=0
        )
        self.shard.start()
        place = WorkerPlace(self.number, COUNT, Path("/nowhere"))
        self.workers = Workers(place, ShardClient(self.shard), self.clock)
        self.client = self.workers.client
        shared = self.workers.shared
        shared.vhosts = shared.bans = _Quiet()
        shared.read_users = _read_nothing
        await self.workers.meet(self.want_settle)
        await self.workers.begin()
        self.is_ready = True

    def within(self, call: Callable[..., T], *arguments: Any) -> T:
        """Do something as this worker, and end its turn."""
        return self._loop.call_within(self, call, *arguments)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """Call whether or not this worker is there then."""
        self._loop.later(delay_s, call)

    def want_settle(self) -> None:
        """See `broker.vhosts.hub.Hub`."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._settle)

    def want_settle_within(self) -> None:
        """End the turn, as this worker."""
        self.within(self.want_settle)

    def _settle(self) -> None:
        self._is_scheduled = False
        self.client.turns.settle()

    @property
    def now_ms(self) -> int:
        return int(self.clock.now_ms())

    def links(self) -> list[Link]:
        """Its links to the others."""
        return [self.workers.link(number) for number in range(COUNT) if number != self.number]


class World:
    """The workers, and what happens to them. `break_count`: how often one of them, or a link, ended."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.loop = SeededLoop(self.chance)
        self.nodes = [Node(self.loop, number, SlowStore(self.chance)) for number in range(COUNT)]
        self.break_count = 0

    async def start(self) -> None:
        """Start all workers, and return once they are there."""
        for node in self.nodes:
            node.start()
        await self.ready()

    async def ready(self) -> None:
        """Return once all workers are there for clients, and linked."""
        for _ in range(10_000):
            self.check()
            if self.is_linked():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("a worker does not come back")

    def is_linked(self) -> bool:
        """Whether all workers are there, with all links."""
        return all(node.is_ready and len(node.workers.links()) == COUNT - 1 for node in self.nodes)

    def check(self) -> None:
        """Raise an error that nobody took."""
        if self.loop.problems:
            problem = self.loop.problems[0]
            raise problem if isinstance(problem, Exception) else AssertionError(problem)

    def cut(self) -> tuple[Node, Node] | None:
        """Cut a link; gives who asked by it, and who was asked."""
        if not self.loop.wires:
            return None
        self.break_count += 1
        wire = self.chance.choice(self.loop.wires)
        self.chance.choice(wire.ends).abort()
        asking, asked = (end.owner for end in wire.ends)
        assert isinstance(asking, Node)
        assert isinstance(asked, Node)
        return asking, asked

    def cut_between(self, asking: Node, asked: Node) -> None:
        """Cut the link that one asks the other by."""
        for wire in self.loop.wires:
            if [end.owner for end in wire.ends] == [asking, asked]:
                wire.ends[0].abort()

    def kill(self, number: int) -> Node:
        """End a worker, and start it again; gives the one that ended."""
        self.break_count += 1
        ended = self.nodes[number]
        ended.is_there = ended.is_ready = False
        self.loop.kill(ended)
        node = self.nodes[number] = Node(self.loop, number, ended.store.crash())
        node.start()
        return ended

    def owner_of(self, name: str) -> Node | None:
        """The worker that has a queue."""
        for node in self.nodes:
            if node.is_ready and name in node.shard.manager.queues:
                return node
        return None


@contextmanager
def world_of(seed: int) -> Iterator[World]:
    """A world with small limits, in which workers are busy at random; links that break are a problem."""
    tight = TightLimits(TIGHT)
    world = World(seed)
    busy_s = 0.0

    def busy() -> float:
        nonlocal busy_s
        busy_s += world.chance.random()
        return busy_s

    def until_beat_s(interval_ms: int) -> float:
        interval_s = interval_ms / 1000
        return max(0.001, interval_s - world.loop.time() % interval_s)

    def broken(wire: LinkWire, error: Exception) -> None:
        world.loop.problems.append(error)

    try:
        with (
            patch.object(LinkWire, "_break", broken),
            patch.object(workers_module, "process_time", busy),
            patch.object(sweeper, "until_beat_s", until_beat_s),
            patch.object(lease_loop, "until_beat_s", until_beat_s),
        ):
            yield world
    finally:
        tight.undo()
        world.loop.close()


def left_over(node: Node) -> list[str]:
    """What a worker keeps of others' queues and for others, where nobody has anything any more."""
    found: list[tuple[str, Any]] = [
        ("gates", node.client.commits._gates),  # type: ignore[attr-defined]
        ("reservations", node.workers.directory._reserved),
        ("first uses", node.workers.directory._held_back),
        ("waiting for a link", [each for each in node.workers._wanted.values() if each]),
    ]
    for link in node.links():
        found += [
            (f"claims of {link.number}", link.claims),
            (f"consumers at {link.number}", link.consumers),
            (f"answers of {link.number}", link._answers),
            (f"waits for {link.number}", link.parts._parts),
            (f"unanswered bytes of {link.number}", link.unanswered_bytes),
        ]
    for served in node.workers._service.served:
        found += [
            (f"claims for {served.number}", served._claims),
            (f"numbers for {served.number}", served._numbers),
            (f"consumers for {served.number}", served._consumers),
            (f"sinks for {served.number}", served._sinks),
            (f"commits for {served.number}", served._waiting_count),
        ]
    return [f"worker {node.number}: {what}: {_shown(value)}" for what, value in found if value]


def _shown(value: Any) -> object:
    return value if isinstance(value, int) else len(value)
