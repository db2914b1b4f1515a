"""A worker among the others: its links to them, and theirs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final

import structlog

from broker.clock import Clock
from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.shard_ending import WorkerLost
from broker.workers.asking_link import Link, lost
from broker.workers.far_replies import FarReplies
from broker.workers.far_topics import Topics
from broker.workers.link_greeting import Greeting
from broker.workers.link_values import CODEC
from broker.workers.node_links import NodeListener, connect_link
from broker.workers.outbox import Outbox
from broker.workers.placement import Placement
from broker.workers.serving_link import Served, Service
from broker.workers.sharded_client import ShardedClient
from broker.workers.sharded_queues import HOME
from broker.workers.shared_backups import SharedBackups
from broker.workers.shared_federation import OwnFederation, SharedFederation
from broker.workers.shared_listings import OwnListings, SharedListings
from broker.workers.shared_quotas import QuotaExchange, SharedQuotas
from broker.workers.shared_state import SharedState
from broker.workers.worker_directory import Directory
from broker.workers.worker_place import WorkerPlace
from config import limits
from queue_manager.routing.route import ForeignQueue
from storage.envelope import EnvelopeTemplate
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.workers")


class Workers:
    """The other workers. Implements `broker.workers.neighbours.Neighbours`.

    `client` is the way to all shards. `meet` returns once all workers are there.
    """

    def __init__(self, place: WorkerPlace, local: ShardClient, clock: Clock) -> None:
        self.number = place.number
        self.count = place.count
        self._place = place
        self._loop = asyncio.get_running_loop()
        replies = FarReplies(self)
        self.directory = Directory(local.shard, place.number, self._pass_on, replies)
        self.directory.on_change = self._tell_soon
        self.placement = Placement(place.number)
        self._links = {number: Link(self._loop, number) for number in range(place.count)}
        self._begun_links: dict[int, Link] = {}
        self.client = ShardedClient(local, self)
        local.shard.manager.queues.exchanges.is_told_elsewhere = self.number != HOME
        self.client.replies = replies
        self._outbox: Outbox = Outbox(local, local.shard, self)
        self.directory.on_gone = self._queue_is_gone
        self.directory.end_claims = self._end_claims
        self.topics = Topics(local, self.client.publishing, self, self._loop)
        self.client.elsewhere = self.topics
        self._clock = clock
        self.shared = SharedState(local, self.number, lambda: self._links[HOME])
        self._quotas = QuotaExchange(local.shard, self.number, self.count, self._tell_others)
        shared_quotas = SharedQuotas(local.quotas, self.ask_others)
        listings = SharedListings(local.shard, self.ask_others)
        backups = SharedBackups(local.backups, self.count, self.ask, self.ask_others)
        vars(self.client).update(
            self.shared.client_parts(),
            quotas=shared_quotas,
            listings=listings,
            backups=backups,
            federation=SharedFederation(local.federation, self, self.ask_others),
        )
        self._progress: list[Callable[[], None]] = []
        self._parts = self._served_parts(local) | {"replies": replies}
        self._service = Service(self.number, local, clock, self._parts, self.topics)
        self._service.on_gone = self.directory.asks_no_more
        self._server: asyncio.Server | None = None
        self.node_listener: NodeListener | None = None
        if place.node is not None:
            self.node_listener = NodeListener(
                place.node, self.number, lambda: Served(self._loop, self._service)
            )
        self._tasks: list[asyncio.Task[None]] = []
        self._heard: set[int] = set()
        self._lost_for: dict[str, list[int]] = {}
        """The workers that were lost a moment ago, by the reason."""
        self._is_stopping = False
        self._wanted: dict[int, list[Answer[Link]]] = {}
        self._changed = asyncio.Event()
        self._are_begun = asyncio.Event()

    def _served_parts(self, local: ShardClient) -> dict[str, Any]:
        """Return what other workers may call here, by name."""
        return {
            "queues": self.client.asked_queues,
            "exchanges": self.client.exchanges,
            "own_exchanges": self.client.own_exchanges,
            "groups": local.groups,
            "messages": local.messages,
            "streams": local.streams,
            "epochs": local.epochs,
            "directory": self.directory,
            "listings": OwnListings(local.listings),
            "backups": local.backups,
            "federation": OwnFederation(local.federation),
            "quotas": local.quotas,
            "quota_exchange": self._quotas,
            "shared": self.shared,
            "workers": self,
            "topics": self.topics,
            "retained": self.topics.searches,
        }

    def missing(self) -> list[int]:
        """Return the workers that are not there just now."""
        return sorted(self._others - {link.number for link in self.links()})

    def owner_of(self, queue: str) -> int:
        """Return which worker has a queue."""
        known = self.directory.get(queue)
        return self.number if known is None else known.shard

    async def ask_others(self, part: str, method: str, *arguments: object) -> dict[int, Any]:
        """Call a part of each other worker; return what those say that are there, by their numbers."""
        asked = {link.number: link.call(part, method, *arguments) for link in self.links()}
        found = {}
        for number, answer in asked.items():
            try:
                found[number] = await answer
            except (WorkerLost, StorageError):
                pass  # it is gone, and is started again
        return found

    def _tell_others(self, part: str, method: str, *arguments: object) -> None:
        """Call a part of each other worker; what they say nobody hears."""
        for link in self.links():
            link.call(part, method, *arguments)

    async def ask(self, number: int, part: str, method: str, *arguments: object) -> Any:
        """Call a part of one other worker; raises WorkerLost if it is not there."""
        return await self._links[number].call(part, method, *arguments)

    def serve(self, **parts: Any) -> None:
        """Let the others call these parts, too."""
        self._parts.update(parts)

    def _pass_on(self, queue: ForeignQueue, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        self._outbox.pass_on(queue, template, body, now_ms)

    def _queue_is_gone(self, queue: ForeignQueue) -> None:
        self._outbox.target_is_gone(queue.name)
        self._links[queue.shard].end_pullers(queue.name)

    def _end_claims(self, number: int, queues: list[ForeignQueue]) -> Answer[None]:
        """End what clients hold of another worker's queues that are gone, behind what it said of their
        consumers.
        """
        link = self._links[number]
        if not link.claims and not link.consumers:
            return Answer.given(None)
        log_ids = {queue.log_id for queue in queues}
        return link.call("workers", "catch_up").map(lambda _: link.end_claims(log_ids))

    def catch_up(self) -> None:
        """Do nothing: the answer comes behind all that was said before."""

    def link(self, number: int) -> Link:
        """See `Neighbours`."""
        return self._links[number]

    def reach(self, number: int) -> Answer[Link]:
        """See `Neighbours`."""
        link = self._links[number]
        if link.is_up:
            return Answer.given(link)
        answer: Answer[Link] = Answer()
        self._wanted.setdefault(number, []).append(answer)
        wait_ms = limits.WORKER_WAIT_MS if self._place.node is None else limits.NODE_WAIT_MS
        self._loop.call_later(wait_ms / 1000, self._give_up, number, answer)
        return answer

    def _give_up(self, number: int, answer: Answer[Link]) -> None:
        """Answer who waited for a link for too long."""
        waiting = self._wanted.get(number, [])
        if answer in waiting:
            waiting.remove(answer)
            answer.fail(lost(self._name_of(number)))

    def _name_of(self, number: int) -> str:
        """Return what reasons call another worker: of several nodes, operators know the shards."""
        return f"worker {number}" if self._place.node is None else f"shard {number}"

    def links(self) -> list[Link]:
        """See `Neighbours`."""
        return [link for link in self._links.values() if link.is_up]

    def _tell_soon(self) -> None:
        self._loop.call_soon(self.directory.tell)

    @property
    def _others(self) -> set[int]:
        return set(range(self.count)) - {self.number}

    async def meet(self, want_settle: Callable[[], None]) -> None:
        """Be there for the others, and return once this worker knows what they have.

        Raises StorageError if one of them does not come.
        """
        self._service.want_settle = want_settle
        path = self._socket_of(self.number)
        path.unlink(missing_ok=True)
        self._server = await self._loop.create_unix_server(
            lambda: Served(self._loop, self._service), str(path)
        )
        if self.node_listener is not None:
            assert self._place.node is not None
            await self.node_listener.begin()
            self._place.node.peers.on_moved.append(self._moved)
        for number in self._others:
            self._tasks.append(self._loop.create_task(self._keep(number)))
        self._tasks.append(self._loop.create_task(self._tell_load()))
        try:
            async with asyncio.timeout(limits.WORKERS_MEET_TIMEOUT_S):
                while not self._knows_all():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing = sorted(self._others - self._heard)
            raise StorageError(f"workers {missing} did not come in time") from None
        self._outbox.begin()

    def _knows_all(self) -> bool:
        return self._heard >= self._others and {link.number for link in self.links()} >= self._others

    async def begin(self) -> None:
        """Let the others take clients, at the first worker; wait for that, at the others."""
        await self.topics.move_retained()
        self._tasks.append(self._loop.create_task(self._quotas.run()))
        if self.number == HOME:
            self._are_begun.set()
            for link in self.links():
                link.call("workers", "begun")
        else:
            async with asyncio.timeout(limits.WORKERS_MEET_TIMEOUT_S):
                await self._are_begun.wait()

    def begun(self) -> None:
        """Note that the first worker is ready for clients. Called by it."""
        self._are_begun.set()

    def stop(self) -> None:
        """Leave the others."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        if self.node_listener is not None:
            self.node_listener.stop()
        for link in self._links.values():
            if link.transport is not None:
                link.transport.close()
        for served in list(self._service.served):
            if served.transport is not None:
                served.transport.close()

    def _socket_of(self, number: int) -> Path:
        return self._place.run_directory / f"worker-{number}.sock"

    async def _keep(self, number: int) -> None:
        """Keep a link to another worker, anew when that was started again."""
        node = self._place.node
        has_lease = None if node is None else node.has_lease
        while True:
            lost = asyncio.Event()
            link = Link(self._loop, number, self._name_of(number), has_lease)
            link.on_lost = partial(self._lost, lost)
            link.on_progress = self._tell_progress
            self._begun_links[number] = link
            try:
                await self._connect(link)
            except (OSError, TimeoutError):
                await asyncio.sleep(limits.WORKER_CONNECT_INTERVAL_MS / 1000)
                continue
            await self._greet(link)
            await lost.wait()
            if link.is_refused:
                await asyncio.sleep(limits.LINK_REFUSED_PAUSE_S)

    async def _connect(self, link: Link) -> None:
        node = self._place.node
        place = None if node is None else node.peers.place_of(link.number)
        if node is None or place is None:
            path = str(self._socket_of(link.number))
            await self._loop.create_unix_connection(partial(_same, link), path)
        else:
            await connect_link(node, place, self.number, link.number, link)

    def _moved(self, number: int) -> None:
        """End the link to where a shard was."""
        for link in (self._links[number], self._begun_links.get(number)):
            if link is not None and link.transport is not None:
                link.why_lost = "it is at another place now"
                link.transport.abort()

    async def _greet(self, link: Link) -> None:
        """Tell a worker what this one has; then it may be asked."""
        epoch = 0 if self._place.node is None else self._place.node.epoch.number
        try:
            await link.greet(Greeting(self.number, CODEC.table, epoch))  # nobody waits for one that is silent
            if self.number == HOME:
                await self.shared.begin(link)
                await link.call("own_exchanges", "take_all", *self.client.own_exchanges.all())
            await self.directory.begin(link)
            await self.topics.begin(link)
            await link.call("workers", "met", self.number)
        except WorkerLost:
            return
        self._links[link.number] = link
        self._changed.set()
        for answer in self._wanted.pop(link.number, ()):
            answer.resolve(link)
        self._outbox.link_is_up()
        if self.number == HOME and self._are_begun.is_set():
            link.call("workers", "begun")

    async def _tell_load(self) -> None:
        """Tell the others how busy this worker is, again and again."""
        while True:
            taken, began = process_time(), self._clock.monotonic()
            await asyncio.sleep(limits.WORKER_LOAD_INTERVAL_MS / 1000)
            busy = (process_time() - taken) / (self._clock.monotonic() - began)
            self.placement.note(self.number, busy)
            for link in self.links():
                link.call("workers", "note_load", self.number, busy)
            self._give_up_silent()

    def _give_up_silent(self) -> None:
        """End each link, from or to another worker, over which nothing comes any more, so that nobody waits
        for what is not heard: that worker's loop does not turn, or the way of this connection is cut.

        Each end tells its load once a second and is answered. What counts is how often nothing came by the
        time this loop looked: not how long it or the machine stood still.
        """
        for wire in [*self._begun_links.values(), *self._service.served]:
            wire.silent_ms += limits.WORKER_LOAD_INTERVAL_MS
            if wire.silent_ms > limits.WORKER_SILENT_MS_MAX and wire.transport is not None:
                _log.error("worker.silent", number=wire.number, silent_ms=wire.silent_ms)
                wire.silent_ms = 0
                if isinstance(wire, Link):
                    wire.why_lost = "it says nothing"
                wire.transport.abort()

    def note_load(self, number: int, busy: float) -> None:
        """Note how busy another worker is. Called by it."""
        self.placement.note(number, busy)

    def met(self, number: int) -> None:
        """Note that another worker has told what it has. Called by it."""
        self._heard.add(number)
        self._changed.set()

    def _lost(self, lost: asyncio.Event, link: Link) -> None:
        self.directory.end(link)
        self.shared.end(link)
        self._quotas.forget(link.number)
        self.topics.lost(link.number)
        self.placement.forget(link.number)
        lost.set()
        if link is self._links[link.number] and not self._is_stopping:
            self._tell_lost(link)

    def _tell_lost(self, link: Link) -> None:
        """Log that a worker is gone; together with others that go at the same time for the same reason."""
        if not self._lost_for:
            self._loop.call_later(limits.WORKER_LOST_GATHER_MS / 1000, self._log_lost)
        node = self._place.node
        is_expected = node is not None and node.peers.is_moving(link.number)
        reason = "it is handed over to another node" if is_expected else link.why_lost
        self._lost_for.setdefault(reason, []).append(link.number)

    def _log_lost(self) -> None:
        lost_for, self._lost_for = self._lost_for, {}
        for reason, numbers in lost_for.items():
            _log.warning("worker.lost", workers=sorted(numbers), reason=reason)

    def on_progress(self, call: Callable[[], None]) -> None:
        """Have `call` called when another worker confirmed something."""
        self._progress.append(call)

    def _tell_progress(self) -> None:
        for call in self._progress:
            call()


def _same(link: Link) -> Link:
    return link
