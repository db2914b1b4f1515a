"""Topics over several workers: which filters the others have subscribers for, and publishes to those."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast
from zlib import crc32

from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.elsewhere import FarPlan, FilterFact, Here
from broker.workers.asking_link import Link
from broker.workers.retained_pages import FarPages, RetainedSearches, Ways, move_retained
from protocols.mqtt.topic_filters import split_shared
from queue_manager.audience import Audience, tell
from queue_manager.outcomes import ACCEPTED, UNROUTED

FilterKey = tuple[str, str, str]
"""Virtual host, filter and share."""

Facts: TypeAlias = Mapping[str, Collection[FilterFact]]
"""What is told of filters, by virtual hosts."""


class Publishing(Protocol):
    """What notes where the last publish went, for who waits for it; see `ShardedPublishing`."""

    touched: list[tuple[Link, int, int]]
    is_here: bool


class Links(Ways, Protocol):
    """The ways to the other workers, and how many workers there are."""

    count: int

    def links(self) -> list[Link]:
        """Return the ways to all that are there."""


class Topics:
    """The subscribers of topics at all workers. Implements `broker.engine.elsewhere.Elsewhere`.

    `_own` is what there is at this worker, as the others are told; `_known` what each of them told. What of
    that lasting sessions keep stays when a worker is gone: publishes to them cannot be taken meanwhile.
    """

    def __init__(
        self, local: ShardClient, publishing: Any, links: Links, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.number = links.number
        self._local = local
        self._publishing = cast(Publishing, publishing)
        self._links = links
        self._loop = loop
        self.searches = RetainedSearches(local)
        self._here: dict[str, Here] = {}
        self._own: dict[FilterKey, FilterFact] = {}
        self._known: dict[int, dict[FilterKey, FilterFact]] = {}
        self._homes: dict[tuple[str, str], int] = {}
        self._changed: dict[FilterKey, FilterFact] = {}
        self._settled: Answer[None] = Answer.given(None)
        self._untold: Answer[None] | None = None

    # homes

    def home_of(self, vhost: str, client_id: str) -> int:
        """See `Elsewhere`: by its name, but where its session is from times of another number of workers."""
        found = self._homes.get((vhost, client_id)) if self._homes else None
        return self._by_name(vhost, client_id) if found is None else found

    def keeper_of(self, vhost: str, topic: str) -> int:
        """See `Elsewhere`."""
        return self._by_name(vhost, topic)

    def _by_name(self, vhost: str, name: str) -> int:
        return crc32(f"{vhost}\x1d{name}".encode()) % self._links.count

    def retained(self, vhost: str, topic_filter: str) -> FarPages:
        """See `Elsewhere`."""
        others = [number for number in range(self._links.count) if number != self.number]
        return FarPages(self._links, others, vhost, topic_filter)

    async def move_retained(self) -> None:
        """Have each retained message where it is kept with so many workers. Raises WorkerLost."""
        await move_retained(self._local, self._links.links(), self.keeper_of)

    # what there is for filters

    def join(self, vhost: str, here: Here | None) -> None:
        """See `Elsewhere`."""
        if here is None:
            self._here.pop(vhost, None)
            for key in [key for key in self._own if key[0] == vhost]:
                self.tell(vhost, FilterFact(key[1], key[2], 0, False))
            return
        self._here[vhost] = here
        for worker, known in self._known.items():
            facts = [fact for key, fact in known.items() if key[0] == vhost]
            if facts:
                here.know(worker, facts)

    def tell(self, vhost: str, fact: FilterFact) -> None:
        """See `Elsewhere`: the changes of a turn go together."""
        key = vhost, fact.filter, fact.share
        if self._own.get(key, (0, False)) == fact:
            return
        if fact.members or fact.is_kept:
            self._own[key] = fact
        else:
            self._own.pop(key, None)
        self._changed[key] = fact
        if self._untold is None:
            self._untold = Answer()
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        untold, self._untold = self._untold, None
        assert untold is not None
        told, self._changed = _by_vhost(self._changed), {}
        self._settled = untold
        open_count = 1

        def heard(answer: Answer[None]) -> None:
            nonlocal open_count
            open_count -= 1
            if not open_count:
                untold.resolve(None)

        for link in self._links.links():
            open_count += 1
            link.call("topics", "know", self.number, told).then(heard)
        heard(untold)

    def settled(self) -> Answer[None]:
        """See `Elsewhere`."""
        return self._settled if self._untold is None else self._untold

    async def begin(self, link: Link) -> None:
        """Tell a worker that is there now what there is here. Raises WorkerLost."""
        self._find_kept()
        strays = [
            (vhost, session.client_id)
            for vhost, sessions in self._local.shard.manager.sessions.by_vhost().items()
            for session in sessions
            if self._by_name(vhost, session.client_id) != self.number
        ]
        for vhost, client_id in strays:
            self._homes[vhost, client_id] = self.number
        await link.call("topics", "begun", self.number, _by_vhost(self._own), strays)

    def _find_kept(self) -> None:
        """Note the filters of lasting sessions, before anybody is there who could tell of them."""
        for vhost, sessions in self._local.shard.manager.sessions.by_vhost().items():
            for log in sessions.logs:
                if log.is_own:
                    continue
                share, topic_filter = split_shared(log.filter)
                fact = FilterFact(topic_filter, share, 0 if share else 1, True)
                self._own.setdefault((vhost, topic_filter, share), fact)

    # called by other workers

    def know(self, worker: int, facts: Facts) -> None:
        """Take note of changes at another worker. Called by it."""
        known = self._known.setdefault(worker, {})
        for vhost, changed in facts.items():
            for fact in changed:
                key = vhost, fact.filter, fact.share
                if fact.members or fact.is_kept:
                    known[key] = fact
                else:
                    known.pop(key, None)
            if vhost in self._here:
                self._here[vhost].know(worker, changed)

    def begun(self, worker: int, facts: Facts, strays: Sequence[tuple[str, str]]) -> None:
        """Take note of all that another worker has, which was started. Called by it."""
        there = {(vhost, fact.filter, fact.share) for vhost, known in facts.items() for fact in known}
        gone = self._known.get(worker, {}).keys() - there
        self.know(worker, _by_vhost({key: FilterFact(key[1], key[2], 0, False) for key in gone}))
        self.know(worker, facts)
        for vhost, client_id in strays:
            self._homes[vhost, client_id] = worker

    def lost(self, worker: int) -> None:
        """Note that another worker is gone: its clients are, too, but not their sessions."""
        self.searches.forget(worker)
        known = self._known.get(worker, {})
        gone = {
            key: FilterFact(fact.filter, fact.share, 0, fact.is_kept)
            for key, fact in known.items()
            if fact.members
        }
        self.know(worker, _by_vhost(gone))

    # publishing

    def begin_publish(self) -> None:
        """Note that nothing was sent yet."""
        self._publishing.touched = []
        self._publishing.is_here = True

    def publish(self, plan: FarPlan, bodies: Sequence[bytes]) -> None:
        """See `Elsewhere`."""
        link = self._links.link(plan.worker)
        first, last = link.publish_topic(plan, bodies)
        if plan.is_certain:
            self._publishing.touched.append((link, first, last))

    def audience(self, plan: FarPlan) -> Audience | None:
        """Return who hears here what another worker sends."""
        here = self._here.get(plan.vhost)
        return None if here is None else here.audience(plan)


class ServedTopic:
    """A plan of another worker's publishes for the subscribers of topics here.

    `is_stored`: part of the last ones was, and is certain when the open commit is.
    """

    __slots__ = ("_audience", "_plan", "_topics", "is_stored")

    def __init__(self, topics: Topics, plan: FarPlan) -> None:
        self._topics = topics
        self._plan = plan
        self._audience: Audience | None = None
        self.is_stored = False

    def publish(self, bodies: list[bytes]) -> Iterator[tuple[int, int]]:
        """Publish messages; yields the outcomes of those that are refused, by their place."""
        self.is_stored = False
        if self._audience is None:
            self._audience = self._topics.audience(self._plan)
            if self._audience is None:  # there is nobody in the virtual host
                return
        outcome, self.is_stored = tell(self._audience, bodies)
        if outcome in _TAKEN:
            return
        if len(bodies) == 1:
            yield 0, outcome
            return
        for place, body in enumerate(bodies):  # part of them may fit
            outcome, is_stored = tell(self._audience, [body])
            self.is_stored = self.is_stored or is_stored
            if outcome not in _TAKEN:
                yield place, outcome


def _by_vhost(facts: Mapping[FilterKey, FilterFact]) -> dict[str, list[FilterFact]]:
    found: dict[str, list[FilterFact]] = {}
    for (vhost, _, _), fact in facts.items():
        found.setdefault(vhost, []).append(fact)
    return found


_TAKEN: Final = (ACCEPTED, UNROUTED)
