"""A cluster in a simulation: nodes by `broker.nodes.node_machine`, a store, databases that fence, clients.

One seed is one schedule. Requests are late, lost and doubled; clocks drift; nodes, or only what holds their
leases, are paused and killed; ways to the store are cut, in one direction or both. What must hold is checked
with each thing that is done, against what the store really holds.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.nodes import node_machine as m
from broker.nodes.leases import lease_key
from broker.nodes.shard_map import MAP_KEY, ShardMap, decode_map
from config import limits
from storage.object_records import Stored, Tag

LEASE_MS = 5_000
GARBAGE_MS = 15_000  # a write as late as this behind a fence may find its place free
JOINED_MS = 3_000  # a node is a member so soon
USUAL_MS = (3.0, 40.0)  # one way to the store
STOP_MS = 2_000  # a worker that does not stop in time is killed
TIMEOUT_MS = LEASE_MS // limits.NODE_REQUESTS_PER_LEASE
SETTLED_MS = 13_000  # behind the last fault every shard serves: leases end, and those who lost theirs join


ANY = Tag("any", None)  # replaces whatever is there: what nobody may do


class Violation(AssertionError):
    """Something that must hold does not."""


@dataclass(slots=True)
class Faults:
    """How likely what is."""

    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    fails_to_open: float = 0.0


@dataclass(slots=True)
class Database:
    """A shard's: the newest who opened it is its only writer."""

    epoch: int = 0
    fenced_ms: float = 0.0
    log: set[int] = field(default_factory=set)


class Worker:
    """The process that has a shard, on a node."""

    def __init__(self, node: Node, shard: int) -> None:
        self.node, self.shard = node, shard
        self.machine = node.machine
        self.is_alive = True
        self.is_orphan = False
        """Whether the process that started it is gone, and it does not know that yet."""
        self.is_stopping = False
        self.is_stuck = False
        self.is_serving = False
        self.epoch = 0
        self.untold: list[int] = []
        node.sim.after(node.sim.random.uniform(30, 300), self._open)

    def _open(self) -> None:
        """Fence whoever had the database."""
        if self.node.is_paused(self._open) or not self.is_alive:
            return
        sim = self.node.sim
        if sim.random.random() < sim.faults.fails_to_open:
            self.die()
            return
        sim.carry(self.node, self._fence, self._open)

    def _fence(self) -> Callable[[], None]:
        database = self.node.sim.databases.setdefault(self.shard, Database())
        database.epoch += 1
        database.fenced_ms = self.node.sim.now
        return lambda epoch=database.epoch: self._opened(epoch)  # type: ignore[misc]

    def _opened(self, epoch: int) -> None:
        if self.node.is_paused(lambda: self._opened(epoch)) or not self.is_alive or self.is_serving:
            return
        self.epoch, self.is_serving = epoch, True
        self.tell(m.Opened(self.shard))
        self._work()

    def _work(self) -> None:
        """Deliver, and write a commit."""
        if self.node.is_paused(self._work) or not self.is_alive or self.is_stuck:
            return
        sim = self.node.sim
        if self.may_deliver():
            sim.check_delivery(self)
        sim.last_write += 1
        self._write(sim.last_write, self.node.local())

    def _write(self, write: int, begun_ms: int) -> None:
        if self.node.is_paused(lambda: self._write(write, begun_ms)) or not self.is_alive or self.is_stuck:
            return
        self.node.sim.carry(
            self.node, lambda: self._land(write, begun_ms), lambda: self._write(write, begun_ms)
        )

    def _land(self, write: int, begun_ms: int) -> Callable[[], None]:
        sim = self.node.sim
        database = sim.databases[self.shard]
        if database.epoch == self.epoch:
            database.log.add(write)
        elif sim.now - database.fenced_ms < GARBAGE_MS:
            return self.die
        return lambda: self._written(write, begun_ms)

    def _written(self, write: int, begun_ms: int) -> None:
        if self.node.is_paused(lambda: self._written(write, begun_ms)) or not self.is_alive:
            return
        self.tell(m.Turned(self.shard, begun_ms))
        self.untold.append(write)
        if self.may_confirm():
            for known in self.untold:
                self.node.sim.check_confirm(self, known)
            self.untold = []
        if self.is_stopping:
            self.die()
        else:
            self.node.sim.after(self.node.sim.random.uniform(150, 900), self._work)

    def tell(self, event: m.Event) -> None:
        if not self.is_orphan:
            self.node.tell(event)

    def may_deliver(self) -> bool:
        return self.has_lease()

    def may_confirm(self) -> bool:
        """Asked once the write has returned."""
        return self.has_lease()

    def has_lease(self) -> bool:
        """Whether that of its member lasts, by what its keeper knew last."""
        return self.machine.is_valid(self.node.local())

    def stop(self, *, kill: bool) -> None:
        self.is_stopping = True
        if kill or not self.is_serving:
            self.die()
        else:
            self.node.sim.after(STOP_MS, self.die)

    def die(self) -> None:
        self.node.orphans.discard(self)
        if self.is_alive:
            self.is_alive = False
            if self.node.workers.get(self.shard) is self:
                del self.node.workers[self.shard]
                self.node.tell(m.Closed(self.shard))


class Node:
    """A machine with a clock, its member of the cluster, and its workers."""

    def __init__(self, sim: Simulation, name: str, shards: int) -> None:
        self.sim, self.name, self.shards = sim, name, shards
        self.rate = sim.random.choice((0.99, 0.995, 1.0, 1.005, 1.01))
        self.offset = sim.random.randrange(10**6)
        self.is_alive = False
        self.is_cut_up = self.is_cut_down = False
        self.paused_until = self.keeper_paused_until = 0.0
        self.starts = 0
        self.started_ms = 0.0
        self.workers: dict[int, Worker] = {}
        self.orphans: set[Worker] = set()
        self.machine: m.NodeMachine
        self.has_left = False
        self._tick_ms: float | None = None
        self._held_up: list[Callable[[], None]] = []

    def start(self, *, was_draining: bool = False, is_same_process: bool = False) -> None:
        """Be a member, a new one."""
        dead = "" if is_same_process or not self.starts or not self.is_gone() else self.machine.name
        self.starts += 1
        self.started_ms = self.sim.now
        self.is_alive, self.has_left = True, False
        self.machine = m.NodeMachine(
            f"{self.name}.{self.starts}",
            self.name,
            f"{self.name}:1",
            self.shards,
            LEASE_MS,
            was_draining=was_draining,
            dead=dead,
            renewable_leases=GARBAGE_MS // LEASE_MS - 1,
        )
        self._tick_ms = None
        self.step()

    def start_again(self) -> None:
        if not self.is_alive:
            self.start()

    def is_gone(self) -> bool:
        """Whether all processes of the former member have ended, as their lock tells."""
        return not self.orphans

    def kill(self, *, orphaned_ms: float = 0) -> None:
        """End the keeper, and its workers at once or a while later."""
        self.is_alive = False
        for worker in list(self.workers.values()):
            if orphaned_ms:
                worker.is_orphan = True
                self.orphans.add(worker)
                self.sim.after(orphaned_ms, worker.die)
            else:
                worker.is_alive = False
        self.workers = {}

    def local(self) -> int:
        return int(self.offset + self.sim.now * self.rate)

    def is_valid(self) -> bool:
        return self.is_alive and self.machine.is_valid(self.local())

    def is_paused(self, again: Callable[[], None]) -> bool:
        """Whether the node stands still; `again` is called when it does not any more."""
        if self.sim.now < self.paused_until:
            self._held_up.append(again)
            return True
        return False

    def pause(self, ms: float, *, only_keeper: bool = False) -> None:
        """Let the node stand still, or only what holds its lease."""
        if only_keeper:
            self.keeper_paused_until = self.sim.now + ms
        else:
            self.paused_until = self.sim.now + ms
        self.sim.after(ms, self._go_on)

    def go_on(self) -> None:
        self.paused_until = self.keeper_paused_until = self.sim.now
        self._go_on()

    def _go_on(self) -> None:
        held_up, self._held_up = self._held_up, []
        for again in held_up:
            self.sim.after(self.sim.random.uniform(0, 5), again)

    def tell(self, event: m.Event) -> None:
        """Tell the member, a moment later."""
        machine = self.machine
        self.sim.after(self.sim.random.uniform(0, 20), lambda: self.step(event, machine))

    def step(self, event: m.Event | None = None, machine: m.NodeMachine | None = None) -> None:
        if not self.is_alive or (machine is not None and machine is not self.machine):
            return
        if self.sim.now < max(self.paused_until, self.keeper_paused_until):
            self._held_up.append(lambda: self.step(event, machine))
            return
        machine = self.machine
        for action in machine.step(self.local(), event):
            self._do(action)
        if machine is self.machine and self.is_alive:
            due = self.sim.now + max(1.0, (machine.due_ms(self.local()) - self.local()) / self.rate)
            if self._tick_ms is None or due < self._tick_ms:
                self._tick_ms = due
                self.sim.at(due, lambda: self._tick(machine, due))

    def _tick(self, machine: m.NodeMachine, due: float) -> None:
        if machine is self.machine and self._tick_ms == due:
            self._tick_ms = None
            self.step(None, machine)

    def _do(self, action: m.Action) -> None:
        match action:
            case m.Read() | m.Put():
                self.sim.ask(self, action)
            case m.Delete(key):
                self.sim.carry(self, lambda: self.sim.deleted(key), lambda: None)
            case m.Open(shard):
                if not self.is_valid():
                    raise Violation(f"{self.machine.name} opens {shard} without a lease")
                if shard in self.workers:
                    raise Violation(f"{self.machine.name} opens {shard} twice")
                self.workers[shard] = Worker(self, shard)
            case m.Stop(shard, kill):
                worker = self.workers.get(shard)
                if worker is not None:  # else what it waits for is on its way
                    worker.stop(kill=kill)
            case m.Ended(_, is_wanted):
                if self.workers:
                    raise Violation(f"{self.machine.name} ended with shards open")
                self.has_left = is_wanted
                if is_wanted:
                    self.is_alive = False
                    if self.sim.now >= self.sim.calm_ms:
                        self.sim.after(1_000, self.start_again)
                else:
                    self.start(was_draining=self.machine.is_draining, is_same_process=True)


class Simulation:
    """Everything, and its time in ms, which no node knows."""

    def __init__(self, seed: int, *, nodes: int, shards: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.faults = Faults()
        self.is_away = False
        self.calm_ms = math.inf
        """From then on nothing goes wrong."""
        self.latency_ms = self.back_ms = USUAL_MS
        self.objects: dict[str, Stored] = {}
        self.ended: set[str] = set()
        self.databases: dict[int, Database] = {}
        self.confirmed: list[tuple[int, int]] = []
        self.last_confirm_ms: dict[int, float] = {}
        self.deliveries = 0
        self.last_write = 0
        self.moves = 0
        self._last_tag = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._last_event = 0
        self.map: ShardMap | None = None
        self.nodes = [Node(self, "abcdefgh"[number], shards) for number in range(nodes)]

    # time

    def at(self, when: float, do: Callable[[], None]) -> None:
        self._last_event += 1
        heapq.heappush(self._events, (when, self._last_event, do))

    def after(self, delay_ms: float, do: Callable[[], None]) -> None:
        self.at(self.now + delay_ms, do)

    def run(self, until_ms: float) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = until_ms

    def run_until(self, holds: Callable[[], bool], within_ms: float) -> float:
        """Run until something is so; gives how long that took."""
        began = self.now
        while not holds():
            if not self._events or self._events[0][0] > began + within_ms:
                raise Violation(f"not so within {within_ms} ms: {self.describe()}")
            self.now, _, do = heapq.heappop(self._events)
            do()
        return self.now - began

    # the store

    def carry(
        self,
        node: Node,
        do: Callable[[], Callable[[], None] | None],
        unanswered: Callable[[], None],
        *,
        is_heard_once: bool = True,
    ) -> None:
        """Have a request done at the store, perhaps twice or never, and its answer come back, or not."""
        chance = self.random.random
        is_answered = False
        copies = 2 if chance() < self.faults.doubled else 1

        def land() -> None:
            if self.is_away:
                return
            back = do()
            if back is None or node.is_cut_down or chance() < self.faults.lost:
                return
            self.after(self.random.uniform(*self.back_ms), lambda: answer(back))

        def answer(back: Callable[[], None]) -> None:
            nonlocal is_answered
            if not (is_answered and is_heard_once):
                is_answered = True
                back()

        def give_up() -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                unanswered()

        for _ in range(copies):
            if not node.is_cut_up and chance() >= self.faults.lost:
                late_ms = self.random.uniform(0, 12_000) if chance() < self.faults.late else 0
                self.after(self.random.uniform(*self.latency_ms) + late_ms, land)
        self.after(TIMEOUT_MS / node.rate, give_up)

    def ask(self, node: Node, request: m.Read | m.Put) -> None:
        machine = node.machine

        def land() -> Callable[[], None]:
            if isinstance(request, m.Read):
                event: m.Event = m.Found(request.number, self.objects.get(request.key))
            else:
                event = self._put(node, machine, request)
            return lambda: node.step(event, machine)

        unanswered = m.Unanswered(request.number)
        self.carry(node, land, lambda: node.step(unanswered, machine), is_heard_once=False)

    def _put(self, node: Node, machine: m.NodeMachine, put: m.Put) -> m.Event:
        before = self.objects.get(put.key)
        if put.base not in (before and before.tag, ANY):
            return m.Refused(put.number)
        self._last_tag += 1
        self.objects[put.key] = stored = Stored(put.content, Tag(str(self._last_tag), None))
        if put.key == MAP_KEY:
            self._check_map(node, machine, put)
        elif "ended_by" in json.loads(put.content):
            self._check_ended(put.key)
        return m.Written(put.number, stored.tag)

    def deleted(self, key: str) -> None:
        self.objects.pop(key, None)

    # what must hold

    def _check_map(self, node: Node, machine: m.NodeMachine, put: m.Put) -> None:
        before, after = self.map or ShardMap(), decode_map(put.content)
        if after.version != before.version + 1:
            raise Violation(f"version {after.version} behind {before.version}")
        if before.shards and len(after.shards) != len(before.shards):
            raise Violation(f"{len(after.shards)} shards behind {len(before.shards)}")
        for number, (old, new) in enumerate(zip(before.shards, after.shards, strict=False)):
            if old.owner == new.owner:
                continue
            self.moves += 1
            if lease_key(old.owner) in self.ended or old.owner not in before.members:
                continue
            if old.owner != machine.name:
                raise Violation(f"{machine.name} took {number} of {old.owner}, whose lease has not ended")
            if node.machine is machine and number in node.workers:
                raise Violation(f"{machine.name} gave {number} away, and has it open")
        self.map = after

    def _check_ended(self, key: str) -> None:
        self.ended.add(key)
        for node in self.nodes:
            if node.starts and lease_key(node.machine.name) == key and node.is_valid():
                raise Violation(f"the valid lease of {node.machine.name} was ended")
            for worker in node.orphans:
                if lease_key(worker.machine.name) == key and worker.has_lease():
                    raise Violation(f"the lease of {worker.machine.name} was ended, and is valid in a worker")

    def _check_owner(self, worker: Worker, doing: str) -> None:
        name = worker.machine.name
        if self.map is None or self.map.shards[worker.shard].owner != name:
            raise Violation(f"{name} {doing} of {worker.shard}, which it does not own")
        if lease_key(name) in self.ended:
            raise Violation(f"{name} {doing} of {worker.shard}, though its lease has ended")
        if worker.node.workers.get(worker.shard) is not worker and worker not in worker.node.orphans:
            raise Violation(f"{name} {doing} of {worker.shard} by a process that is none")

    def check_delivery(self, worker: Worker) -> None:
        self.deliveries += 1
        self._check_owner(worker, "delivers")

    def check_confirm(self, worker: Worker, write: int) -> None:
        self._check_owner(worker, "confirms")
        self.confirmed.append((worker.shard, write))
        self.last_confirm_ms[worker.shard] = self.now
        self.check_kept(worker.shard, write)

    def check_kept(self, shard: int, write: int) -> None:
        if write not in self.databases[shard].log:
            raise Violation(f"{write} of {shard} was confirmed and is lost")

    # looking

    @property
    def shards(self) -> int:
        return 0 if self.map is None else len(self.map.shards)

    def owner(self, shard: int) -> str:
        assert self.map is not None
        return self.map.shards[shard].owner

    def serves(self, shard: int) -> bool:
        workers = [node.workers[shard] for node in self.nodes if shard in node.workers]
        return any(worker.is_serving and worker.node.is_valid() for worker in workers)

    def has_served(self, since_ms: float) -> bool:
        """Whether every shard has confirmed something since then."""
        return self.shards > 0 and all(
            self.last_confirm_ms.get(shard, -1) > since_ms for shard in range(self.shards)
        )

    def check_settled(self) -> None:
        """Every node that works is a member, and has open what it owns."""
        for node in self.nodes:
            awake_ms = max(node.started_ms, node.paused_until, node.keeper_paused_until)
            if node.is_alive and self.now - awake_ms >= JOINED_MS:
                name = node.machine.name
                if self.map is None or name not in self.map.members:
                    raise Violation(f"{name} has not joined: {self.describe()}")
                for number in node.workers:
                    if self.owner(number) != name:
                        raise Violation(f"{name} has {number} open: {self.describe()}")

    def describe(self) -> Any:
        return self.now, self.map, [
            (node.machine.name, node.is_alive, node.machine.reason, node.machine.trouble(node.local()),
             {number: worker.is_serving for number, worker in node.workers.items()})
            for node in self.nodes if node.starts
        ]  # fmt: skip
