"""What queues do, in the simplest way that is obviously right: every message of every group is an object.

Nothing here knows of logs, buckets, caches or commits. It is told what was asked of the queue manager and
checks what the queue manager did. Where a crash leaves more than one outcome, an item is `optional`: it may
come again or not.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

from queue_manager.policy import NOT_PAUSED

READY = "ready"
HELD = "held"
DONE = "done"
FAILED = "failed"
SETTLED = (DONE, FAILED)


class Planned:
    """A message to come, due at `due_ms`; of several the one with the lowest number comes first.

    `confirmed`: the publisher was told that it is durable.
    """

    def __init__(self, due_ms: int, number: int, body: bytes, topic: str) -> None:
        self.due_ms = due_ms
        self.number = number
        self.body = body
        self.topic = topic
        self.confirmed = False


class Published:
    """One message of one queue. `confirmed`: it is known to be durable; `purged`: it was dropped before the
    queue had any group; `planned`: what it was before it was due.
    """

    def __init__(self, offset: int, body: bytes, topic: str, planned: Planned | None = None) -> None:
        self.planned = planned
        self.offset = offset
        self.body = body
        self.topic = topic
        self.confirmed = False
        self.purged = False
        self.purged_durably = False
        self.passed = False  # purged while there were groups: one that comes soon may still be given it
        self.passed_durably = False


class Item:
    """One message as one group has it; its attempts so far lie in `attempts_min..attempts_max`.

    `fleeting`: every other group was done with it before this group existed, so nobody promised to keep it.
    """

    def __init__(self, message: Published, *, fleeting: bool) -> None:
        self.message = message
        self.state = READY
        self.attempts_min = 0
        self.attempts_max = 0
        self.optional = fleeting
        self.fleeting = fleeting
        self.may_have_failed = False
        self.holder: OracleConsumer | None = None
        self.entry: Any = None
        self.deadline_ms = 0
        self.durable_state = READY
        self.durable_attempts = 0


class OraclePool:
    """Credit that several consumers share."""

    def __init__(self, credit_max: int) -> None:
        self.credit_max = credit_max
        self.held = 0


class OracleConsumer:
    """A consumer; `held` maps offsets to what it has not settled. `refuses`: nothing can be sent to it.
    `is_told`: what it is given says which offset it has.
    """

    def __init__(
        self,
        group: OracleGroup,
        credit_max: int,
        lease_ms: int,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        pool: OraclePool | None = None,
        puller: bool = False,
        refuses: bool = False,
        is_told: bool = False,
    ) -> None:
        self.group = group
        self.is_told = is_told
        self.credit_max = credit_max
        self.lease_ms = lease_ms
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.pool = pool
        self.puller = puller
        self.refuses = refuses
        self.active = True
        self.held: dict[int, Item] = {}
        self.received: list[int] = []

    def credit(self) -> int:
        """How many more messages it may be given."""
        if not self.active:
            return 0
        if self.no_ack:
            return 1 << 30
        credit = self.credit_max - len(self.held)
        if self.pool is not None:
            credit = min(credit, self.pool.credit_max - self.pool.held)
        return credit


def topic_matches(pattern: str, topic: str) -> bool:
    """MQTT's rules, level by level; an empty routing key has no level."""
    wanted = pattern.split("/")
    levels = topic.split("/") if topic else []
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def binding_matches(pattern: str, topic: str) -> bool:
    """As `topic_matches`, but a leading wildcard does not reach topics that begin with `$`."""
    if topic.startswith("$") and pattern[0] in "+#":
        return False
    return topic_matches(pattern, topic)


class OracleGroup:
    """One (group, pattern) of one queue. `ready` are the offsets that wait, in order."""

    def __init__(self, queue: OracleQueue, name: str, pattern: str) -> None:
        self.queue = queue
        self.name = name
        self.pattern = pattern
        self.durable = False
        self.items: dict[int, Item] = {}
        self.ready: list[int] = []
        self.consumers: list[OracleConsumer] = []

    @property
    def group_id(self) -> str:
        return self.name if self.pattern == "#" else f"{self.name}@{self.pattern}"

    def wants(self, topic: str) -> bool:
        """Whether the pattern takes messages of this topic."""
        root = f"$queue/{self.queue.name}"
        if topic == root:
            key = ""
        elif topic.startswith(root + "/"):
            key = topic[len(root) + 1 :]
        else:
            key = topic
        return topic_matches(self.pattern, key)

    def add(self, message: Published, *, fleeting: bool = False) -> None:
        if self.wants(message.topic):
            self.items[message.offset] = Item(message, fleeting=fleeting)
            self.ready.append(message.offset)

    def is_done_with(self, offset: int) -> bool:
        """Whether nothing obliges anybody to keep the message for this group."""
        item = self.items.get(offset)
        return item is None or item.state in SETTLED or item.optional or item.fleeting

    def ready_bounds(self) -> tuple[int, int]:
        """The least and the greatest number that may be told to wait; a pattern need not have been tried."""
        optional = sum(self.items[offset].optional for offset in self.ready)
        at_most = len(self.ready) if self.pattern == "#" else len(self.queue.messages)
        return len(self.ready) - optional, at_most

    def held(self) -> list[Item]:
        return [item for item in self.items.values() if item.state == HELD]

    # transitions

    def delivered(
        self, consumer: OracleConsumer, offset: int, body: bytes, topic: str, entry: Any, now_ms: int
    ) -> None:
        """Check that exactly this message was due to exactly this kind of consumer, and take note."""
        where = f"{self.queue.name}:{self.group_id}:{offset}"
        item = self.items.get(offset)
        assert item is not None, f"{where} was never to be delivered here"
        assert item.message.body == body, f"{where} has another body"
        assert item.message.topic == topic, f"{where} has another topic"
        assert item.state == READY, f"{where} was delivered although it is {item.state}"
        assert consumer.credit() > 0, f"{where} was delivered without credit"
        assert not self.queue.pause.deliver, f"{where} was delivered by a paused queue"
        index = bisect_left(self.ready, offset)
        for passed in self.ready[:index]:
            assert self.items[passed].optional, f"{where} was delivered before {passed}"
            self.settle(self.items[passed], DONE)
        del self.ready[: index + 1]
        attempts = 1 if entry is None else entry.attempts
        assert item.attempts_min < attempts <= item.attempts_max + 1, (
            f"{where}: attempt {attempts} after {item.attempts_min}..{item.attempts_max}"
        )
        item.attempts_min = item.attempts_max = attempts
        item.optional = False
        consumer.received.append(offset)
        if consumer.no_ack and not consumer.refuses:
            item.state = DONE
            return
        assert entry is not None or consumer.no_ack, f"{where} came without a claim"
        item.state = HELD
        item.holder = consumer
        item.entry = entry
        item.deadline_ms = now_ms + consumer.lease_ms
        consumer.held[offset] = item
        if consumer.pool is not None:
            consumer.pool.held += 1

    def release(self, item: Item) -> None:
        """Take a held item out of its holder's hands."""
        assert item.state == HELD
        assert item.holder is not None
        del item.holder.held[item.message.offset]
        if item.holder.pool is not None:
            item.holder.pool.held -= 1
        item.holder = None
        item.entry = None

    def settle(self, item: Item, state: str) -> None:
        """Mark an item done or failed."""
        if item.state == HELD:
            self.release(item)
        item.state = state
        item.optional = False

    def give_back(self, item: Item) -> None:
        """Return a held item to its place, or fail it when its attempts are used up."""
        self.release(item)
        attempts_max = self.queue.policy.attempts_max
        if attempts_max and item.attempts_max >= attempts_max:
            item.state = FAILED
        else:
            item.state = READY
            insort(self.ready, item.message.offset)

    def purge(self) -> None:
        for offset in self.ready:
            self.settle(self.items[offset], DONE)
        self.ready = []

    def restart(self) -> None:
        """The process ended; `durable_state` is what the last full commit saw."""
        self.consumers = []
        self.ready = []
        for offset in [o for o, item in self.items.items() if not item.message.confirmed]:
            del self.items[offset]
        for offset, item in self.items.items():
            item.holder = None
            item.entry = None
            if item.durable_state in SETTLED:
                item.state = item.durable_state
                continue
            item.may_have_failed |= item.state == FAILED
            if item.state in SETTLED or item.fleeting:
                item.optional = True
            item.state = READY
            item.attempts_min = min(item.attempts_min, item.durable_attempts)
            self.ready.append(offset)
        self.ready.sort()


class OracleQueue:
    """One queue. `durably_declared`: a commit has seen it."""

    def __init__(
        self,
        name: str,
        policy: Any,
        topics: tuple[str, ...],
        *,
        durable: bool,
        auto_delete: bool,
        now_ms: int,
    ) -> None:
        self.name = name
        self.policy = policy
        self.topics = topics
        self.durable = durable
        self.auto_delete = auto_delete
        self.durably_declared = False
        self.messages: list[Published] = []
        self.groups: dict[str, OracleGroup] = {}
        self.unused_since_ms = now_ms
        self.planned: list[Planned] = []
        self.pause = NOT_PAUSED
        self.pause_durably = NOT_PAUSED

    @property
    def next_offset(self) -> int:
        return self.messages[-1].offset + 1 if self.messages else 0

    def publish(self, bodies: list[bytes], topic: str) -> list[Published]:
        offset = self.next_offset
        return self._add([Published(offset + index, body, topic) for index, body in enumerate(bodies)])

    def _add(self, added: list[Published]) -> list[Published]:
        self.messages += added
        for group in self.groups.values():
            for message in added:
                group.add(message)
        return added

    def plan(self, bodies: list[bytes], topic: str, due_ms: int, first: int) -> list[Planned]:
        """They are published for later; their numbers begin at `first`."""
        planned = [Planned(due_ms, number, body, topic) for number, body in enumerate(bodies, first)]
        self.planned += planned
        return planned

    def come_due(self, count: int, now_ms: int) -> list[Published]:
        """So many have entered the queue, in order."""
        self.planned.sort(key=lambda planned: (planned.due_ms, planned.number))
        due, self.planned = self.planned[:count], self.planned[count:]
        assert len(due) == count, f"{self.name} has messages that nobody published"
        assert all(planned.due_ms <= now_ms for planned in due), f"{self.name} has messages before their time"
        offset = self.next_offset
        return self._add([Published(offset + i, p.body, p.topic, p) for i, p in enumerate(due)])

    def depth_bounds(self) -> tuple[int, int]:
        """The least and the greatest number that may wait in the group with most."""
        bounds = [group.ready_bounds() for group in self.groups.values()] or [self.ready_bounds()]
        if all(group.pattern != "#" for group in self.groups.values()):
            bounds.append((0, len(self.messages)))  # what no group wants waits, too
        return max(low for low, _ in bounds), max(high for _, high in bounds)

    def group(self, name: str, pattern: str = "#") -> OracleGroup:
        """The group, made if it is not there: it gets every message somebody still needs, or nobody had."""
        group = OracleGroup(self, name, pattern)
        known = self.groups.get(group.group_id)
        if known is not None:
            return known
        others = list(self.groups.values())
        for message in self.messages:
            if message.purged:
                continue
            was_wanted = message.passed or any(other.wants(message.topic) for other in others)
            fleeting = was_wanted and all(other.is_done_with(message.offset) for other in others)
            group.add(message, fleeting=fleeting)
        self.groups[group.group_id] = group
        return group

    def consumers(self) -> list[OracleConsumer]:
        return [c for g in self.groups.values() for c in g.consumers if c.active and not c.puller]

    def unmatched(self) -> list[Published]:
        """What there is that none of its groups wants."""
        groups = self.groups.values()
        return [
            m for m in self.messages if not (m.purged or m.passed or any(g.wants(m.topic) for g in groups))
        ]

    def ready_bounds(self) -> tuple[int, int]:
        """Of the default group, else of the longest; what no group wants is one of its own."""
        if "" in self.groups:
            return self.groups[""].ready_bounds()
        if not self.groups:
            count = sum(not message.purged for message in self.messages)
            return count, count
        bounds = [group.ready_bounds() for group in self.groups.values()]
        if all(group.pattern != "#" for group in self.groups.values()):
            bounds.append((0, len(self.messages)))
        return max(low for low, _ in bounds), max(high for _, high in bounds)


class Oracle:
    """All queues of a broker."""

    def __init__(self) -> None:
        self.queues: dict[str, OracleQueue] = {}
        self.deleted: list[OracleQueue] = []  # durable ones, by a delete no commit has seen
        self.busy: set[str] = set()  # names of durable queues whose records are still being removed

    def routes(self, topic: str) -> list[OracleQueue]:
        return [q for q in self.queues.values() if any(binding_matches(t, topic) for t in q.topics)]

    def delete(self, queue: OracleQueue) -> list[OracleConsumer]:
        """Delete a queue; gives the consumers that must be told."""
        del self.queues[queue.name]
        told = [c for g in queue.groups.values() for c in g.consumers if c.active]
        for group in queue.groups.values():
            for item in group.held():
                group.release(item)
                item.state = READY
                insort(group.ready, item.message.offset)
            for consumer in group.consumers:
                consumer.active = False
        if queue.durable:
            self.busy.add(queue.name)
            if queue.durably_declared:
                self.deleted.append(queue)
        return told

    def unsubscribe(self, consumer: OracleConsumer, now_ms: int, *, keep_claims: bool) -> bool:
        """Take a consumer away; whether its queue goes with it."""
        consumer.active = False
        group = consumer.group
        queue = group.queue
        if not keep_claims:
            for item in list(consumer.held.values()):
                group.give_back(item)
            if consumer in group.consumers:
                group.consumers.remove(consumer)
        if queue.consumers():
            return False
        queue.unused_since_ms = now_ms
        return queue.auto_delete

    def expire(self, now_ms: int) -> tuple[dict[OracleConsumer, set[int]], list[OracleQueue]]:
        """Return overdue claims: the offsets each consumer loses, and the queues that go."""
        lost: dict[OracleConsumer, set[int]] = {}
        for queue in self.queues.values():
            for group in queue.groups.values():
                for item in group.held():
                    if item.deadline_ms <= now_ms:
                        assert item.holder is not None
                        lost.setdefault(item.holder, set()).add(item.message.offset)
                        group.give_back(item)
        gone = [
            queue
            for queue in self.queues.values()
            if not queue.durable
            and queue.policy.expires_ms
            and not queue.consumers()
            and queue.unused_since_ms + queue.policy.expires_ms <= now_ms
        ]
        return lost, gone

    def committed(self) -> None:
        """A commit is durable: queues, deletions and groups as they are."""
        self.deleted = []
        for queue in self.queues.values():
            queue.durably_declared = queue.durable
            queue.pause_durably = queue.pause
            for group in queue.groups.values():
                group.durable = queue.durable
            for message in queue.messages:
                message.purged_durably = message.purged
                message.passed_durably = message.passed

    def committed_everything(self, is_coming_back: Callable[[OracleGroup], bool]) -> None:
        """A commit that held the state of every group is durable. Groups to which claims are still coming
        back, in steps, may hold those that are to fail as claimed.
        """
        for queue in self.queues.values():
            for group in queue.groups.values():
                is_unsure = is_coming_back(group)
                for item in group.items.values():
                    if is_unsure and item.state == FAILED:
                        continue
                    # what is optional now is no surer afterwards
                    item.durable_state = READY if item.optional else item.state
                    item.durable_attempts = item.attempts_min

    def restart(self, now_ms: int) -> None:
        """The process ended, whether well or badly, and another one runs on what was durable."""
        for queue in self.deleted:
            self.queues[queue.name] = queue
        self.deleted = []
        self.busy = set()
        for name, queue in list(self.queues.items()):
            if not queue.durable or not queue.durably_declared:
                del self.queues[name]
                continue
            lost = [message for message in queue.messages if not message.confirmed]
            queue.planned += [message.planned for message in lost if message.planned is not None]
            queue.planned = [planned for planned in queue.planned if planned.confirmed]
            queue.pause = queue.pause_durably
            queue.messages = [message for message in queue.messages if message.confirmed]
            for message in queue.messages:
                message.purged = message.purged_durably
                message.passed = message.passed_durably
            queue.groups = {g.group_id: g for g in queue.groups.values() if g.durable}
            queue.unused_since_ms = now_ms
            for group in queue.groups.values():
                group.restart()
