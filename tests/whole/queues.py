"""What queues do, one object for each message in each group. Knows nothing of logs, caches and commits.

The oracle is told what was asked and answered, then checks each delivery (`Queues.delivered`) and tells
what is still due (`Queues.owed`). Where several outcomes are right, an item is not `required`: it may come.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.whole.identities import Identities, Identity
from tests.whole.policies import Policies
from tests.whole.replies import Asker
from tests.whole.routes import filter_matches
from tests.whole.settings import Settings

READY, HELD, DONE, FAILED = "ready", "held", "done", "failed"
BY_QUEUE = None  # the group of a queue that has none yet
UNKNOWN = 1_000_000  # as many messages as there may be
EARLY_S = 0.1  # the broker took a message so much earlier, at most, than its answer was read
LATE_S = 1.0  # how long after its time something may still be seen to happen
UNWRITTEN_S = 1.5  # a settlement as old as this survives a crash
_places = itertools.count(1)

Deaths = tuple[tuple[str, str], ...]


class Mismatch(Exception):
    """The broker did what the oracle does not allow, or left undone what it demands."""


@dataclass(eq=False)
class Message:
    """One publish: its body is its identity. `headers` are those the publisher set; a crash before
    `stored_by` may lose it, since its publisher was told nothing.
    """

    body: str
    key: str
    exchange: str = ""
    cc: list[str] = field(default_factory=list)
    bcc: list[str] = field(default_factory=list)
    headers: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    ttl_ms: int | None = None
    durable: bool = True
    identity: Identity = Identity()
    asker: Asker | None = None
    stored_by: float = 0.0


@dataclass(eq=False)
class Either:
    """Items of which exactly one is there, as after a death that a crash may have undone."""

    items: list[Item] = field(default_factory=list)
    required: bool = True
    owed_from: float = 0.0

    def resolve(self, found: Item) -> None:
        """`found` was seen: the others are not there."""
        for item in self.items:
            item.either = None
            if item is not found:
                item.state = DONE
                item.required = False


@dataclass(eq=False)
class Item:
    """A message in a group of a queue. `place`: what orders it; `loose`: its place is not known exactly;
    `is_purged`: it may have been delivered before its queue was purged in this step; `is_untried`: it returns
    as if nobody had been given it; `comes_late`: it may not be there yet; `due`: when it comes into its
    queue, if it was delayed; `may_give_way`: it may have given way to newer ones, and is where these go then,
    in the queues of that time (`ways`).
    """

    message: Message
    place: tuple[int, int]
    entered: float
    group: Group | None = None
    state: str = READY
    required: bool = True
    loose: bool = False
    attempts: tuple[int, int] = (0, 0)
    changed: float = 0.0
    step: int = -1
    holder: Consumer | None = None
    tag: Any = None
    expires: float | None = None
    own_expires: float | None = None  # without its queue's TTL
    not_before: float = 0.0
    due: float = 0.0
    is_over: bool = False
    is_returning: bool = False
    is_purged: bool = False
    is_untried: bool = False
    may_give_way: bool = False
    comes_late: bool = False
    ways: list[Queue] | None = None
    is_replaced: bool = False  # it goes as it returns: there is a newer one of its value
    may_be_replaced: bool = False
    deaths: tuple[tuple[str, str], ...] = ()
    either: Either | None = None
    entry: int = 0
    copies: list[Item] = field(default_factory=list)

    def settled_elsewhere(self, how: str) -> bool:
        """Whether it is none of a queue, and is settled with this."""
        return False

    def copy_for(self, group: Group, *, required: bool) -> Item:
        return Item(
            self.message,
            self.place,
            self.entered,
            group,
            required=required,
            loose=self.loose,
            expires=self.expires,
            own_expires=self.own_expires,
            not_before=0.0 if self.attempts[0] else self.due,  # its next attempt there is none of this group
            due=self.due,
            deaths=self.deaths,
            entry=self.entry,
        )

    def group_less(self) -> bool:
        return self.group is not None and self.group.name is BY_QUEUE

    def need_not_come(self) -> None:
        """It need not come any more, nor where it may be instead."""
        if self.either is not None:
            self.either.required = False
        self.required, self.either = False, None

    def sure(self) -> bool:
        return self.required and self.either is None

    def is_late(self, now: float) -> bool:
        """Whether it may not be in its queue yet: what was scheduled may be a little late."""
        return bool(self.not_before) and now <= self.not_before + LATE_S

    def there(self, now: float) -> bool:
        """Whether it is surely in its queue by now."""
        return self.sure() and not self.is_late(now)

    def there_and_alive(self, now: float) -> bool:
        return self.there(now) and (self.expires is None or now < self.expires - EARLY_S)


@dataclass(eq=False)
class Consumer:
    """A consumer of a group. `credit`: how many more it may be given now, called each time.

    `takes`: what happens when a message was sent: `hold` until settled, or `done` at once. `selects`: whether
    its filter accepts a message; others are not for it. `was_full`:
    whether its connection could be sent no more, whatever its credit, at some moment of this step.
    `late_until`: it let a lease end, and until then leaves messages to others of its group.
    """

    client: str
    tag: str
    queue: Queue
    group: Group
    takes: str
    credit: Callable[[], float]
    selects: Callable[[Message], bool] = lambda message: True
    was_full: Callable[[], bool] = lambda: False
    told: bool = False
    exclusive: bool = False
    explicit: bool = False
    priority: int = 0
    joined: int = -1
    made_at: float = field(default_factory=time.time)
    last_place: tuple[int, int] | None = None
    late_until: float = 0.0


@dataclass(eq=False)
class Group:
    """A consumer group: all the items of its queue, in order. `too_long`: it was made with more than may
    wait. `unread_step`: in it a connection of the group ended that may have been sent what came in, which is
    lost with it (`is_lost_unread`) or comes again. `is_unread`: what it has may be on the store only, and it
    is not known yet which of that the pattern takes.
    """

    queue: Queue
    name: str | None
    items: list[Item] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    pattern: str = "#"
    too_long: bool = False
    made_at: float = 0.0
    unread_step: int = -1
    is_lost_unread: bool = False
    is_unread: bool = False
    _active: Consumer | None = None

    def active(self) -> Consumer:
        """Of a single active consumer: it stays until it leaves; next is the highest, then the oldest."""
        if self._active not in self.consumers:
            self._active = max(self.consumers, key=lambda consumer: consumer.priority)
        assert self._active is not None
        return self._active

    def pass_on(self, consumer: Consumer) -> bool:
        """Have the next one be active instead of this one, which comes last then; whether it was active."""
        if not self.queue.settings.single_active or self.active() is not consumer:
            return False
        self.consumers.remove(consumer)
        self.active()
        self.consumers.append(consumer)
        return True

    def join(self, consumer: Consumer) -> None:
        """A consumer comes; it does not take the place of one that is active."""
        if self.consumers:
            self.active()
        self.consumers.append(consumer)

    def able(self, now: float) -> list[Consumer]:
        """Those who are given messages, as far as they have credit."""
        if self.queue.settings.single_active:
            return [self.active()]
        return [consumer for consumer in self.consumers if now >= consumer.late_until] or self.consumers

    def may_be_none(self) -> bool:
        """Whether it was not made, or not before a crash: nobody was ever given anything of it."""
        return not self.name and not self.consumers and all(item.state == READY for item in self.items)

    def wants(self, message: Message) -> bool:
        """Whether its pattern takes the routing key of the message in this queue."""
        if self.pattern == "#":
            return True
        prefix = f"$queue/{self.queue.name}"
        if message.key in (prefix, self.queue.name):
            topic = prefix
        else:
            topic = f"{prefix}/{message.key.removeprefix(prefix + '/')}"
        return filter_matches(f"{prefix}/{self.pattern}", topic)

    def ready(self) -> list[Item]:
        return [item for item in self.items if item.state == READY]

    def waiting(self) -> tuple[int, int]:
        """How many wait, at least and at most."""
        ready, now = self.ready(), time.time()
        more = 0 if self.counts_what_it_wants() else UNKNOWN
        returning = sum(item.is_returning for item in self.items)
        low = sum(item.there_and_alive(now) for item in ready)
        if self.name is BY_QUEUE and len(self.queue.groups) > 1 and now < self.queue.came_back_at + LATE_S:
            low = 0  # what no group wants is counted once it was read what had been done before the restart
        return low, len(ready) + returning + more

    def counts_what_it_wants(self) -> bool:
        """Whether no more is told to wait than its pattern takes: without a length consumers that are slow
        have yet to come to the rest.
        """
        if self.pattern == "#":
            return True
        if time.time() < self.made_at + LATE_S:  # a late one has yet to come to what is kept for others
            return False
        if self.is_unread:
            return False
        return not self.consumers or self.queue.settings.max_length is not None

    def find(self, body: str, state: str, deaths: Deaths | None = None) -> Item | None:
        """The item with this body; of several (it died into its own queue) one with these deaths.

        `deaths`: the newest first, each once; None if that is not told.
        """
        found = self.alike(body, state, deaths)
        return min(found, key=lambda item: (not item.sure(), item.place), default=None)

    def alike(self, body: str, state: str, deaths: Deaths | None = None) -> list[Item]:
        """All that `find` chooses from."""
        found = [item for item in self.items if item.message.body == body and item.state == state]
        if deaths is None:
            return found
        last = [item for item in found if item.deaths[-1:] == deaths[:1]]
        all_of_them = [item for item in last if tuple(dict.fromkeys(reversed(item.deaths))) == deaths]
        return all_of_them or last or found


@dataclass(eq=False)
class Queue:
    """A queue and its groups. The group BY_QUEUE has what no group wants, all before there is one."""

    name: str
    base: Settings  # without policies
    policies: Policies = field(default_factory=Policies)
    declared: Settings | None = None  # where `base` was changed since
    auto_created: bool = False
    exclusive: str | None = None
    no_publish: bool = False
    no_deliver: bool = False
    is_waited_for: bool = False  # by a request over HTTP, which takes one message at some moment
    groups: dict[str | None, Group] = field(default_factory=dict)
    scheduled: list[tuple[float, Item]] = field(default_factory=list)
    identities: Identities = field(default_factory=Identities)
    had_consumer: bool = False
    came_back_at: float = 0.0

    def __post_init__(self) -> None:
        self.groups[BY_QUEUE] = Group(self, BY_QUEUE)

    @property
    def settings(self) -> Settings:
        """What holds."""
        return self.policies.effective(self.name, self.base)

    def group(self, name: str, now: float, pattern: str = "#") -> Group:
        """The group, made where it is not there, at the oldest message that is kept."""
        if pattern != "#":
            name = f"{name}@{pattern}"
        group = self.groups.get(name)
        if group is not None:
            return group
        group = Group(self, name, pattern=pattern, made_at=now)
        group.is_unread = any(other.items for other in self.groups.values())
        group.items = self._kept_for(group)
        unwanted = self.groups[BY_QUEUE]
        for item in list(unwanted.items):
            if group.wants(item.message):
                unwanted.items.remove(item)
                item.group = group
                group.items.append(item)
        group.items.sort(key=lambda item: item.place)
        limit = self.settings.max_length
        kept = {item.entry for other in [*self.groups.values(), group] for item in other.items}
        # what the queue keeps for others counts, too, also what this one does not want
        if limit is not None and self.settings.overflow == "drop-head" and len(kept) > limit:
            group.too_long = True
            for item in group.items:  # what is above the limit may give way, of any group
                item.required = False
        self.groups[name] = group
        return group

    def for_a_get(self) -> list[Item]:
        """What the default group has, also where a get would make it: one of nothing may make none."""
        if "" in self.groups:
            return self.groups[""].ready()
        return [*self.groups[BY_QUEUE].ready(), *self._kept_for(Group(self, ""))]

    def _kept_for(self, group: Group) -> list[Item]:
        """What other groups have not done is kept; what all have done may be, for a while."""
        by_entry: dict[int, list[Item]] = {}
        for other in self.groups.values():
            if other.name is BY_QUEUE:
                continue
            for item in other.items:
                if group.wants(item.message):
                    by_entry.setdefault(item.entry, []).append(item)
        kept = []
        # a group to come begins behind what gave way, also where something before it is held
        gave_way = max((i.entry for items in by_entry.values() for i in items if i.may_give_way), default=-1)
        for entry, items in by_entry.items():
            promised = any(item.state in (READY, HELD) and item.sure() for item in items)
            promised = promised and entry > gave_way
            promised = promised and not any(item.is_replaced or item.may_be_replaced for item in items)
            kept.append(items[0].copy_for(group, required=promised))
        return kept

    def takes_whole(
        self, message: Message, *, required: bool, loose: bool, died: bool, early: bool = False
    ) -> bool:
        """Whether it keeps messages by itself, not in groups; then it has it. `died`: it is a dead letter;
        `early`: one may have come before it that is not known of yet.
        """
        return False

    def ended(self) -> None:
        """It is gone with all it had: what was there or elsewhere may have been there."""
        for group in self.groups.values():
            for item in group.items:
                item.state = "gone"
                if item.either is not None:
                    item.either.required = False

    def emptied(self) -> None:
        """It was purged; its groups see to themselves."""

    def restarted(self, *, killed: bool) -> None:
        """The broker came back: its consumers are gone."""
        for group in self.groups.values():
            group.consumers.clear()
            group.is_unread = True

    def consumer_count(self) -> int:
        return sum(len(group.consumers) for group in self.groups.values())

    def depth(self) -> tuple[int, int]:
        counts = [group.waiting() for group in self.groups.values()]
        return max(low for low, _ in counts), max(high for _, high in counts)

    def verdict(self, now: float, *, burst: bool = False) -> str:
        """`take`, `refuse` or `either` for one more message."""
        if self.no_publish:
            return "refuse"
        limit = self.settings.max_length
        if limit is None or self.settings.overflow == "drop-head":
            return "take"
        low, high = self.depth()
        if low >= limit and not (burst and self.may_take()) and not self.is_waited_for:
            return "refuse"
        if high < limit:
            return "take"
        return "either"

    def is_due_soon(self) -> bool:
        """Whether a scheduled message may come in while a request is under way."""
        return any(item.not_before < time.time() + LATE_S for _, item in self.scheduled)

    def served(self) -> bool:
        """Whether it has a consumer."""
        return any(group.consumers for group in self.groups.values())

    def may_take(self) -> bool:
        """Whether a consumer could take messages away meanwhile."""
        consumers = [consumer for group in self.groups.values() for consumer in group.consumers]
        return not self.no_deliver and any(consumer.credit() > 0 for consumer in consumers)


def dead_letter(queue: Queue, message: Message) -> Message:
    """The copy that goes where dead letters of the queue go, under the routing key it has there."""
    settings = queue.settings
    exchange = settings.dead_exchange or ""
    if settings.dead_key:
        return replace(message, exchange=exchange, key=settings.dead_key, cc=[])
    return replace(message, exchange=exchange)


def expiry(settings: Settings, entered: float, own_expires: float | None) -> float | None:
    """When what entered a queue then expires."""
    times = [] if own_expires is None else [own_expires]
    if settings.ttl_ms is not None:
        times.append(entered + max(settings.ttl_ms, 1) / 1000)
    return min(times, default=None)


class Queues:
    """All queues of a virtual host. `dead` routes a dead letter: (settings, message) to names of queues.

    `ends_in_turn`: the broker ends, one worker after the other.
    """

    def __init__(self, dead: Callable[[Queue, Message], list[str]]) -> None:
        self.queues: dict[str, Queue] = {}
        self.step = 0
        self.ends_in_turn = False
        self._dead = dead
        self.touched: dict[Group, list[tuple[Consumer, Item]]] = {}
        self.given: list[tuple[Consumer, Message]] = []
        self._homeless: list[tuple[Queue, Item, str]] = []

    def __iter__(self) -> Iterator[Queue]:
        return iter(self.queues.values())

    def in_turn(self, names: Iterable[str]) -> list[Queue]:
        """These queues, in the order in which they take a publish: what gives up its head for it does that
        once all have it.
        """
        found = [self.queues[name] for name in sorted(names)]
        return sorted(found, key=lambda queue: queue.settings.overflow == "drop-head")

    def items(self) -> Iterator[Item]:
        for queue in self:
            for group in queue.groups.values():
                yield from group.items

    # ---- into a queue

    def append(
        self,
        queue: Queue,
        message: Message,
        now: float,
        *,
        required: bool = True,
        loose: bool = False,
        deaths: tuple[tuple[str, str], ...] = (),
        either: Either | None = None,
        ttl: bool = True,
        burst: bool = False,
    ) -> list[Item]:
        """Put a message at the end of every group; drops the head where the queue is too long for it."""
        settings = queue.settings
        early = settings.stream and self._die_soon(now)
        is_sure = required and either is None
        if queue.takes_whole(message, required=is_sure, loose=loose, died=bool(deaths), early=early):
            return []
        level = min(message.priority, settings.max_priority)
        place = (-level, next(_places))
        own_expires = now + max(message.ttl_ms, 1) / 1000 if ttl and message.ttl_ms is not None else None
        expires = expiry(settings, now, own_expires)
        made = []
        wanting = [
            group for group in queue.groups.values() if group.name is not BY_QUEUE and group.wants(message)
        ]
        for group in wanting or [queue.groups[BY_QUEUE]]:
            item = Item(message, place, now, group, required=required, loose=loose, expires=expires)
            item.deaths, item.entry, item.step, item.own_expires = deaths, place[1], self.step, own_expires
            if either is not None:
                either.items.append(item)
                item.either = either
            group.items.append(item)
            group.items.sort(key=lambda item: item.place)
            made.append(item)
            if group.unread_step == self.step:
                self._may_be_unread(item, now)
        if settings.last_value and "h" in message.headers:
            self._replace(queue, made, now, sure=required and either is None and not loose)
        if settings.max_length is not None and settings.overflow == "drop-head":
            for group in queue.groups.values():
                self._drop_head(queue, group, now, burst=burst)
        return made

    def _die_soon(self, now: float) -> bool:
        """Whether something is to die that may have died by now: the broker took it a little earlier."""
        return any(
            item.state == READY and item.expires is not None and now < item.expires < now + EARLY_S
            for item in self.items()
        )

    def _replace(self, queue: Queue, made: list[Item], now: float, *, sure: bool) -> None:
        """Let what is older of the same value go; what a consumer holds or has failed, as it returns."""
        value = made[0].message.headers["h"]
        for item in [item for group in queue.groups.values() for item in group.items]:
            if item in made or item.message.headers.get("h") != value or item.state == DONE:
                continue
            is_late = item.is_late(now)
            if is_late:  # it may be the newer one
                for one in made:
                    one.required, one.may_be_replaced = False, True
            is_known = item.required and item.either is None and item.step != self.step
            if sure and is_known and not is_late:
                item.is_replaced = True
                if item.state == READY:
                    item.state = DONE
                continue
            item.required, item.may_be_replaced = False, True  # or it was given before the newer one came
            if item.either is not None:
                item.either.required = False

    def _drop_head(self, queue: Queue, group: Group, now: float, *, burst: bool) -> None:
        limit = queue.settings.max_length
        assert limit is not None
        low, high = group.waiting()
        unsure = low != high or (burst and queue.served()) or any(item.loose for item in group.ready())
        unsure = unsure or queue.is_waited_for
        if unsure:
            if high > limit:
                self.any_may_give_way(queue, group, now)
            return
        while (ready := [item for item in group.ready() if item.required]) and group.waiting()[1] > limit:
            lowest = max(item.place[0] for item in ready)
            head = next(item for item in ready if item.place[0] == lowest)
            self.die(queue, head, "maxlen", now)
            if head.state == READY:  # and what follows it waits, too
                self.any_may_give_way(queue, group, now)

    def any_may_give_way(self, queue: Queue, group: Group, now: float) -> None:
        """A group may have more than may wait, and which ones that are is not known: also what is there
        only perhaps may be dropped, and have gone where dead letters go.
        """
        for item in group.ready():
            ways = self._targets(queue, item, "maxlen")
            if item.may_give_way and item.ways == ways:
                continue
            item.may_give_way, item.ways = True, ways
            if item.either is None:
                self.may_die(queue, item, "maxlen", now)
            else:
                self._may_die_again(queue, item, item.either, "maxlen", now)

    # ---- out of a queue

    def die(self, queue: Queue, item: Item, reason: str, now: float, *, sure: bool = True) -> None:
        """End an item: dead-lettered where its queue says so, else failed (or dropped: expired, maxlen)."""
        self._pardon(item)
        item.holder = None
        item.changed, item.step = now, self.step
        targets = self._targets(queue, item, reason)
        if targets is None and reason == "maxlen":
            item.state = DONE
            return
        # others may have died into it just now, and have been taken away
        verdicts = [target.verdict(now, burst=True) for target in targets or ()]
        is_taken = "take" in verdicts
        if not is_taken and queue.settings.dead_exchange is not None and item.group_less():
            item.state, item.required = READY, False  # kept, and offered again later
            self._homeless.append((queue, item, reason))
            return
        if targets is None:
            dropped = queue.settings.dead_exchange is None and reason in ("expired", "maxlen")
            item.state = DONE if dropped or not queue.settings.durable else FAILED
            return
        deaths = (*item.deaths, (queue.name, reason))
        for target, verdict in zip(targets, verdicts, strict=True):
            if verdict == "refuse":
                continue
            item.copies += self.append(
                target,
                dead_letter(queue, item.message),
                now,
                required=item.sure() and verdict == "take" and sure,
                deaths=deaths,
                ttl=False,
                loose=True,
            )
        item.state = DONE if is_taken or not queue.settings.durable else FAILED
        item.required = item.required and (is_taken or "either" not in verdicts)

    def all_refused(self, queues: Iterable[tuple[Queue, bool]], message: Message, now: float) -> None:
        """Some queues of a publish, each surely or perhaps, found no room: their copies go where dead letters
        go once the others have the publish, and find the room that is left.
        """
        for queue, sure in queues:
            self.refused(queue, message, now, sure=sure)

    def refused(self, queue: Queue, message: Message, now: float, *, sure: bool = True) -> None:
        """A publish found no room: where the queue says so, a copy goes where dead letters go."""
        if queue.settings.overflow != "reject-publish-dlx" or queue.no_publish:
            return
        copy = Item(message, (0, 0), now, required=sure)
        if self._targets(queue, copy, "maxlen"):
            self.die(queue, copy, "maxlen", now, sure=sure)

    def _targets(self, queue: Queue, item: Item, reason: str) -> list[Queue] | None:
        """Queues that get the dead letter; None: there is none to get it."""
        if queue.settings.dead_exchange is None:
            return None
        found = []
        for name in self._dead(queue, item.message):
            target = self.queues.get(name)
            if target is None:
                continue
            if reason != "rejected" and self._circles(item, queue.name, name):
                continue
            found.append(target)
        return found or None

    def may_come_yet(self, item: Item, now: float) -> bool:
        """Whether it is a dead letter that is not known to have come: what may have died may also wait still,
        and die later.
        """
        source = self.queues.get(item.deaths[-1][0]) if item.deaths else None
        if source is None or item.sure():
            return False
        return any(
            other.message.body == item.message.body and other.deaths == item.deaths[:-1]
            for group in source.groups.values()
            for other in group.ready()
            if other.expires is None or now < other.expires + LATE_S
        )

    @staticmethod
    def _circles(item: Item, source: str, target: str) -> bool:
        """Whether it died in the target before and was not rejected since."""
        for queue, reason in reversed((*item.deaths, (source, ""))):
            if reason == "rejected":
                return False
            if queue == target:
                return True
        return False

    def may_die(self, queue: Queue, item: Item, reason: str, now: float, *, is_late: bool = False) -> None:
        """It may be dead, or not: a copy may be where dead letters go, or it is still here. `is_late`: there
        was no place for it, and the broker tries again now and then.
        """
        either = Either([item], required=item.required, owed_from=now + LATE_S)
        item.either = either
        letter = dead_letter(queue, item.message)
        deaths = (*item.deaths, (queue.name, reason))
        targets = self._targets(queue, item, reason)
        if any(target.verdict(now) != "take" for target in targets or ()):
            either.required = False  # it may stay, failed
        if targets is None:
            item.either, item.required = None, False
            if queue.settings.dead_exchange is not None and reason != "maxlen":
                self._homeless.append((queue, item, reason))
            return
        if len(targets) > 1 or len(queue.groups) > 1 or not targets[0].groups:  # too many ways to follow
            item.either, item.required = None, False
            for target in targets:
                for copy in self.append(
                    target, letter, now, required=False, deaths=deaths, ttl=False, loose=True
                ):
                    copy.comes_late = is_late
            return
        for target in targets:
            made = self.append(target, letter, now, deaths=deaths, either=either, ttl=False, loose=True)
            for copy in made:
                copy.comes_late = is_late
            if len(made) > 1:
                for copy in made:
                    copy.either, copy.required = None, False
                item.either, item.required = None, False

    def _may_die_again(self, queue: Queue, item: Item, either: Either, reason: str, now: float) -> None:
        """What may be in one of several places dies in one of them."""
        targets = self._targets(queue, item, reason)
        deaths = (*item.deaths, (queue.name, reason))
        follows = targets is not None and len(targets) == len(queue.groups) == len(targets[0].groups) == 1
        if not follows:
            either.required = False
        for target in targets or ():
            self.append(
                target,
                dead_letter(queue, item.message),
                now,
                required=False,
                deaths=deaths,
                either=either if follows else None,
                ttl=False,
                loose=True,
            )

    def done(self, item: Item, now: float) -> None:
        if item.settled_elsewhere("ack"):
            return
        self._pardon(item)
        item.state, item.holder, item.changed, item.step = DONE, None, now, self.step

    @staticmethod
    def _pardon(item: Item) -> None:
        """Who settles something is late no more."""
        if item.holder is not None:
            item.holder.late_until = 0.0

    def lease_ended(self, item: Item, lease_s: float, now: float) -> None:
        """It returns, and who had it stands back for as long as its leases are. All that a single active one
        holds returns, and the next one has its turn.
        """
        holder, returning = item.holder, [item]
        others = holder is not None and holder in holder.group.consumers and len(holder.group.consumers) > 1
        if holder is not None and others and holder.group.pass_on(holder):
            returning = [held for held in holder.group.items if held.state == HELD and held.holder is holder]
        self.all_back(returning, now)
        if holder is not None and others and not holder.queue.settings.single_active:
            holder.late_until = now + lease_s

    def all_back(self, items: Iterable[Item], now: float, *, counted: bool = True) -> None:
        """They return together: which of them does so before another one dies is not promised."""
        returning = sorted(items, key=lambda item: item.place)
        for item in returning:
            item.is_returning = True
        ends = [item for item in returning if self._may_end(item, now, counted=counted)]
        for item in ends:
            item.is_returning = False
            self.back(item, now, counted=counted)
        for item in returning:
            item.is_returning = False
        for item in returning:
            if item not in ends:
                self.back(item, now, counted=counted)

    @staticmethod
    def _may_end(item: Item, now: float, *, counted: bool = True) -> bool:
        """Whether it may die as it returns."""
        limit = (
            0
            if item.group is None or item.is_untried or not counted
            else item.group.queue.settings.attempts_max
        )
        return bool(limit and item.attempts[1] >= limit) or (item.expires is not None and now >= item.expires)

    def back(self, item: Item, now: float, *, counted: bool = True) -> None:
        """It returns to its place, or fails after its last attempt, or expires where its time is over."""
        if item.settled_elsewhere("requeue"):
            return
        assert item.group is not None
        queue = item.group.queue
        limit = queue.settings.attempts_max
        counted = counted and not item.is_untried
        item.is_untried = False
        if limit and counted and item.attempts[0] >= limit:
            self.die(queue, item, "delivery_limit", now)
            return
        maybe_over = limit and counted and item.attempts[1] >= limit
        self._pardon(item)
        if item.is_replaced:
            item.state, item.holder = DONE, None
            return
        item.state, item.holder, item.changed, item.step = READY, None, now, self.step
        item.required = item.required and not item.may_be_replaced
        if maybe_over:
            self.may_die(queue, item, "delivery_limit", now)
        elif item.expires is not None and now >= item.expires:
            item.is_over = True
            self.may_die(queue, item, "expired", now)
        elif queue.settings.max_length is not None and queue.settings.overflow == "drop-head":
            low, high = item.group.waiting()
            if high > queue.settings.max_length:  # which one gives way is not promised
                self.any_may_give_way(queue, item.group, now)

    def perhaps_done(self, item: Item, now: float) -> None:
        """Its acknowledgement was sent as the connection ended, and may not have been read."""
        assert item.group is not None
        self._pardon(item)
        item.state, item.holder, item.changed, item.step = READY, None, now, self.step
        if self._may_end(item, now):
            is_over = item.expires is not None and now >= item.expires
            self.may_die(item.group.queue, item, "expired" if is_over else "delivery_limit", now)
        item.required = False
        if item.either is not None:
            item.either.required = False

    # ---- time

    def advance(self, now: float) -> None:
        """Let scheduled messages in, and what expired go (or stay a moment more)."""
        homeless, self._homeless = self._homeless, []
        for queue, item, reason in homeless:  # there may be a place for it by now
            if item.state == READY and item.either is None:
                self.may_die(queue, item, reason, now, is_late=True)
        for queue in list(self):
            for due, item in list(queue.scheduled):
                if now >= item.not_before - 0.005:
                    queue.scheduled.remove((due, item))
                    made = self.append(queue, item.message, due, required=item.required, loose=True)
                    for entered in made:
                        entered.not_before = entered.due = item.not_before
            for group in list(queue.groups.values()):
                if group.too_long:
                    group.too_long = False
                    self.any_may_give_way(queue, group, now)
                for item in list(group.items):
                    over = item.expires is not None and now >= item.expires
                    if over and item.state == READY and not item.is_over:
                        item.is_over = True  # also what a late group has that is kept, or not
                        if item.either is None:
                            self.may_die(queue, item, "expired", now)
                        else:
                            self._may_die_again(queue, item, item.either, "expired", now)

    def next_time(self) -> float | None:
        """When something becomes due, or is over, next."""
        times = [due for queue in self for due, _ in queue.scheduled]
        times += [
            item.expires for item in self.items() if item.state == READY and item.expires and item.sure()
        ]
        return min(times) if times else None

    # ---- deliveries

    def delivered(
        self,
        consumer: Consumer,
        body: str,
        at: float,
        tag: Any,
        deaths: Deaths | None = None,
        *,
        is_first: bool | None = None,
        attempt: int | None = None,
    ) -> Item:
        """Check a delivery and take it down; `deaths`: see `Group.find`; `is_first`: whether it says it is
        the first attempt, `attempt`: which one, None if it does not tell. Raises Mismatch.
        """
        group, queue = consumer.group, consumer.queue
        where = f"{body!r} to {consumer.client}/{consumer.tag} of {queue.name}/{group.name!r}"
        if queue.no_deliver:
            raise Mismatch(f"delivered {where} although the queue is paused")
        item = group.find(body, READY, deaths)
        # it may have died elsewhere a little before its time as it is known here
        if item is None or (deaths is not None and item.deaths[-1:] != deaths[:1]):
            self.advance(time.time() + EARLY_S)
            item = group.find(body, READY, deaths)
        if item is not None and is_first is True and item.attempts[0]:  # it gave way to one of the same body
            others = [other for other in group.alike(body, READY, deaths) if not other.attempts[0]]
            if others and item.place < others[0].place:
                item.required, item.may_give_way, item = False, True, others[0]
        if item is not None and not self._fits(item, at, attempt):  # of several of one body it is another one
            fitting = [other for other in group.alike(body, READY, deaths) if self._fits(other, at, attempt)]
            item = min(fitting, key=lambda other: (not other.sure(), other.place), default=item)
        if item is None and self.ends_in_turn:
            item = self._come_back(consumer, body)
        if item is None:
            states = [found.state for found in group.items if found.message.body == body]
            raise Mismatch(f"delivered {where}, which has it as {states or 'never had it'}")
        if item.expires is not None and at > item.expires + LATE_S:
            raise Mismatch(f"delivered {where}, {at - item.expires:.3f} s after it expired")
        if item.not_before and at < item.not_before - 0.010:
            raise Mismatch(f"delivered {where}, {item.not_before - at:.3f} s before it is due")
        if consumer.credit() <= 0:
            raise Mismatch(f"delivered {where} beyond its credit")
        if not consumer.selects(item.message):
            raise Mismatch(f"delivered {where}, whose filter does not accept {item.message}")
        if queue.settings.single_active and consumer in group.consumers and not self._is_turn_of(consumer):
            raise Mismatch(f"delivered {where}, not to the active {group.active().tag}")
        # it died into its own queue, or was moved there, and which of the two this is was not told
        several = [
            other
            for other in group.items
            if other.message.body == body and (deaths is None or other.deaths[-1:] == item.deaths[-1:])
        ]
        is_one_of_several = len(several) > 1
        if not item.loose and item.step != self.step and not is_one_of_several:
            if consumer.last_place is not None and item.place < consumer.last_place:
                raise Mismatch(f"delivered {where} out of order")
            consumer.last_place = item.place
        alike = group.alike(body, READY, deaths)
        if deaths is None and not item.sure() and any(other.deaths != item.deaths for other in alike):
            item.required = False  # which of them it is was not told, nor what it is when it dies
            if item.either is not None:
                item.either.required = False
        else:
            self.seen(item)
        item.is_over = (
            item.expires is not None and at >= item.expires
        )  # or it did not expire early, after all
        item.attempts = (item.attempts[0] + 1, item.attempts[1] + 1)
        item.changed = at
        if not is_one_of_several:
            self.touched.setdefault(group, []).append((consumer, item))
        self.given.append((consumer, item.message))
        if consumer.takes == "done":
            item.state = DONE
        else:
            item.state, item.holder, item.tag = HELD, consumer, tag
        return item

    @staticmethod
    def _come_back(consumer: Consumer, body: str) -> Item | None:
        """What a client of a worker that ended before had not settled is given to another one."""
        for item in consumer.group.items:
            is_it = item.message.body == body and item.state == HELD and item.holder is not None
            if is_it and item.holder.client != consumer.client:
                low, high = item.attempts
                item.state, item.attempts = READY, (max(low - 1, 0), high)
                return item
        return None

    def _is_turn_of(self, consumer: Consumer) -> bool:
        """Whether it may be the active one: as the broker ends, behind one of a worker that ended before."""
        active = consumer.group.active()
        return active is consumer or (self.ends_in_turn and active.client != consumer.client)

    @staticmethod
    def _fits(item: Item, at: float, attempt: int | None) -> bool:
        """Whether it can be what was delivered at that time as that attempt."""
        low, high = item.attempts
        is_alive = item.expires is None or at <= item.expires + LATE_S
        return is_alive and (attempt is None or low < attempt <= high + 1)

    def seen(self, item: Item) -> None:
        item.required, item.may_give_way = True, False
        if item.either is not None:
            item.either.resolve(item)

    def check_attempts(self, item: Item, told: int) -> None:
        """`told`: the number of this attempt. Raises Mismatch."""
        low, high = item.attempts
        if not low <= told <= high:
            raise Mismatch(f"{item.message.body!r} says attempt {told}, it is {low}..{high}")
        item.attempts = (told, told)

    def end_step(self) -> None:
        """What was delivered in this step must be the first of what waited. Raises Mismatch."""
        for group, taken in self.touched.items():
            strict = [(consumer, item.place) for consumer, item in taken if not item.loose]
            now = time.time()
            for item in group.ready():
                last = max(
                    (place for consumer, place in strict if consumer.selects(item.message)), default=None
                )
                is_due = last is not None and item.place < last and item.there_and_alive(now)
                if is_due and not item.loose and item.step != self.step:
                    raise Mismatch(
                        f"{item.message.body!r} of {group.queue.name}/{group.name!r} was overtaken"
                    )
        self.touched.clear()
        for item in self.items():
            if item.is_purged and item.state == READY:
                item.state = DONE
            item.is_purged = False
        for queue in self:
            for group in queue.groups.values():
                group.is_lost_unread = False
        self._check_ranks()
        for queue in self:
            for group in queue.groups.values():
                if queue.settings.single_active and group.consumers:
                    group.active()  # from now on, whatever joins
                for consumer in group.consumers:
                    consumer.last_place = None
        self.step += 1

    def _check_ranks(self) -> None:
        """What has credit now had it during this step: nothing went to a lower consumer. Raises Mismatch."""
        given, self.given = self.given, []
        now = time.time()
        for consumer, message in given:
            if consumer.queue.settings.single_active or consumer not in consumer.group.consumers:
                continue
            for other in consumer.group.able(now):
                was_there = other.joined not in (-1, self.step) and not other.was_full()
                passes_over = any(not other.selects(item.message) for item in other.group.items)
                if passes_over and now < other.made_at + LATE_S:
                    continue  # it may still look through what its filter passes over
                could = other.credit() > 0 and other.selects(message)
                if was_there and other.priority > consumer.priority and could:
                    went = f"{message.body!r} of {consumer.queue.name} went to {consumer.client}"
                    raise Mismatch(
                        f"{went}/{consumer.tag}, {other.tag} of priority {other.priority} had credit"
                    )

    def owed(self, now: float) -> str | None:
        """What somebody should have been given by now."""
        for queue in self:
            if queue.no_deliver:
                continue
            for group in queue.groups.values():
                if not group.consumers:
                    continue
                takers = [consumer for consumer in group.able(now) if consumer.credit() > 0]
                if not takers:
                    continue
                for item in group.items:
                    is_wanted = any(consumer.selects(item.message) for consumer in takers)
                    if is_wanted and item.state == READY and item.sure():
                        return f"{item.message.body!r} to a consumer of {queue.name}/{group.name!r}"
        return None

    # ---- ends

    def expire_before(self, queue: Queue, now: float) -> None:
        """What is about to expire may have done so just before the queue is purged, or deleted."""
        self.advance(now)
        for item in [item for group in queue.groups.values() for item in group.items]:
            is_over = item.expires is not None and item.expires < now + EARLY_S
            if is_over and item.state == READY and item.either is None and not item.is_over:
                item.is_over = True
                self.may_die(queue, item, "expired", now)

    def purge(self, queue: Queue, now: float) -> None:
        self.expire_before(queue, now)
        queue.emptied()
        for group in queue.groups.values():
            for item in list(group.items):
                if item.state == READY:
                    is_late = item.is_late(now) or (item.comes_late and not item.sure())
                    if is_late or self.may_come_yet(item, now):
                        item.required = False  # it may have come a moment after the purge, or comes later
                        if item.either is not None:
                            item.either.required = False
                        continue
                    if item.sure():
                        item.state, item.changed = DONE, now
                    else:
                        item.is_purged = True
                    item.required = False
                    if item.either is not None:
                        item.either.required = False

    def leave(self, consumer: Consumer, now: float) -> None:
        """The consumer ends and what it holds returns."""
        if consumer in consumer.group.consumers:
            consumer.group.consumers.remove(consumer)
        self.give_back(lambda item: item.holder is consumer, now)

    def left_unread(self, consumer: Consumer, now: float) -> None:
        """The connection of a consumer ended without a last answer: what has become due since the last one,
        or need not have come, may have been sent to it.
        """
        group = consumer.group
        group.unread_step = self.step
        group.is_lost_unread = group.is_lost_unread or consumer.takes == "done"
        for item in group.ready():
            is_due = item.not_before and abs(now - item.not_before) < LATE_S
            if is_due or item.step == self.step or not item.sure():
                self._may_be_unread(item, now)

    def _may_be_unread(self, item: Item, now: float) -> None:
        group = item.group
        assert group is not None
        item.attempts = (item.attempts[0], item.attempts[1] + 1)
        if group.is_lost_unread:
            item.required = False
            if item.either is not None:
                item.either.required = False
        limit = group.queue.settings.attempts_max
        if limit and item.attempts[1] >= limit and item.either is None:
            self.may_die(group.queue, item, "delivery_limit", now)

    def give_back(self, which: Callable[[Item], bool], now: float) -> None:
        self.all_back([item for item in self.items() if item.state == HELD and which(item)], now)

    def restart(self, now: float, *, killed: bool) -> None:
        """The broker ended: what is in memory is gone, what was held is back."""
        self.given.clear()  # who had credit cannot be told: what was sent may not have been read
        gone = [queue for queue in self if not queue.settings.durable or queue.exclusive]
        for queue in gone:
            if not killed:
                self._die_in_the_end(queue, now)
        for queue in gone:
            del self.queues[queue.name]
            queue.ended()
        if killed:
            for group in [group for queue in self for group in queue.groups.values()]:
                self._may_have_been_sent(group)
        for queue in self:
            queue.restarted(killed=killed)
        held = [item for item in self.items() if item.state == HELD]
        for item in list(self.items()):
            assert item.group is not None
            fresh = killed and now - item.changed < UNWRITTEN_S
            if killed and now < item.message.stored_by:
                item.required = False
                if item.either is not None:
                    item.either.required = False
            if item.state == HELD:
                if fresh:
                    item.attempts = (0, item.attempts[1])
            elif fresh and item.state in (DONE, FAILED) and item.changed:
                self._undone(item, now)
            elif fresh and item.state == READY:
                item.attempts = (0, item.attempts[1])
            if killed:
                item.loose = True
        self.all_back(held, now, counted=not killed)  # a crash is an attempt that no limit ends
        self.step += 1

    @staticmethod
    def _may_have_been_sent(group: Group) -> None:
        """What was on its way when the broker was killed was tried, and is done where nobody settles it."""
        if group.queue.no_deliver or not group.consumers:
            return
        takers = [consumer for consumer in group.able(time.time()) if consumer.credit() > 0]
        room = sum(consumer.credit() for consumer in takers)
        how = {consumer.takes for consumer in takers}
        wanted = [
            item for item in group.ready() if any(consumer.selects(item.message) for consumer in takers)
        ]
        if len(wanted) < len(group.ready()):  # which of them a filter took is not followed
            room = len(wanted)
        for item in [item for number, item in enumerate(wanted) if number < room]:
            if "hold" in how:
                item.attempts = (item.attempts[0], item.attempts[1] + 1)
            if "done" in how:
                item.required = False
                if item.either is not None:
                    item.either.required = False

    def _die_in_the_end(self, queue: Queue, now: float) -> None:
        """What is held in a queue that goes with the broker returns to it before, and may die as it does."""
        for item in [item for group in queue.groups.values() for item in group.items]:
            if item.state == HELD and self._may_end(item, now):
                item.state = READY
                is_over = item.expires is not None and now >= item.expires
                self.may_die(queue, item, "expired" if is_over else "delivery_limit", now)

    def came_back(self) -> None:
        """The broker serves again."""
        for queue in self:
            queue.came_back_at = time.time()

    @staticmethod
    def _undone(item: Item, now: float) -> None:
        """Its settlement may not have been written: it may be back, and its dead letter not there."""
        promised = item.state == DONE and item.sure()
        item.state, item.attempts, item.required = READY, (0, item.attempts[1]), False
        copies, item.copies = item.copies, []
        if promised and len(copies) == 1 and copies[0].state == READY and copies[0].sure():
            item.either = copies[0].either = Either([item, copies[0]], owed_from=now)
            return
        for copy in copies:
            copy.required = False
