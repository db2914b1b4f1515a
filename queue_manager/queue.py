"""One queue: its log, the groups that read it, and what of it is still kept."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from config import limits
from queue_manager.address import routing_key
from queue_manager.errors import InvalidAddress, LimitReached
from queue_manager.group import Group
from queue_manager.group_removal import begin_after, first_claim
from queue_manager.keeper import Keeper
from queue_manager.model import make_messages
from queue_manager.open_entries import OpenEntries
from queue_manager.overflow import waiting_bytes
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import DROP_HEAD, QueuePolicy
from queue_manager.ranges import RangeSet
from queue_manager.selection import select
from queue_manager.tail import Tail
from storage.envelope import EnvelopeTemplate
from storage.layout import GROUP_SEPARATOR, QUEUE_ID_BYTES_MAX
from storage.records import holes

if TYPE_CHECKING:
    from queue_manager.group_removal import GroupRemoval
    from queue_manager.identities import Identities
    from queue_manager.journal import Journal
    from queue_manager.manager import QueueManager
    from queue_manager.schedule import Schedule
    from queue_manager.staging.stage import Stage


class Queue:
    """A classic (durable) or ephemeral queue.

    `topics` are its bindings. `head_offset` is the lowest offset still kept and `head_sequence` the
    metadata-log sequence to begin reading at. `durable_offset`: everything below is durable.
    `log_index` holds (first offset, sequence) of the newest log entries. `owner` is the connection an
    exclusive queue belongs to.
    """

    __slots__ = (
        "arguments",
        "auto_created",
        "auto_delete",
        "had_consumer",
        "identities",
        "is_bounded",
        "deleted",
        "durable",
        "durable_offset",
        "group_removals",
        "groups",
        "head_offset",
        "head_sequence",
        "holes",
        "keeper",
        "log_id",
        "log_index",
        "manager",
        "name",
        "open_entries",
        "owner",
        "policy",
        "recovered_end",
        "released",
        "released_known",
        "schedule",
        "stage",
        "mixes_payloads",
        "tail",
        "topics",
        "unused_since_ms",
    )

    def __init__(
        self,
        manager: QueueManager,
        name: str,
        *,
        durable: bool,
        policy: QueuePolicy,
        topics: tuple[str, ...],
        log_id: str,
        now_ms: int,
        next_offset: int = 0,
        head_offset: int = 0,
        head_sequence: int = 0,
    ) -> None:
        self.manager = manager
        self.name = name
        self.durable = durable
        self.policy = policy
        self.topics = topics
        self.log_id = log_id
        self.arguments: dict[str, object] | None = None
        self.owner: object = None
        self.auto_delete = False
        self.auto_created = False
        self.had_consumer = False
        self.deleted = False
        self.unused_since_ms = now_ms
        self.tail = Tail(next_offset)
        self.durable_offset = next_offset
        self.head_offset = head_offset
        self.head_sequence = head_sequence
        self.groups: dict[str, Group] = {}
        self.group_removals: list[GroupRemoval] = []  # not performed to their end yet
        self.recovered_end = 0  # log entries below it may hold payloads a crash kept from being deleted
        self.released = RangeSet()  # offsets at or above head_offset whose payloads are gone
        self.holes: RangeSet | None = None  # of `released`, what is written down
        self.released_known = True  # False after a start, until the done records have been read
        self.mixes_payloads = False  # some may be in other queues too, or have IDs out of order
        self.schedule: Schedule | None = None
        self.identities: Identities | None = None
        self.stage: Stage | None = None
        self.keeper: Keeper | None = None
        self.apply_policy()
        self.log_index: list[tuple[int, int]] = []
        self.open_entries = OpenEntries()

    def routing_key(self, topic: str) -> str:
        """What the patterns of this queue's groups look at."""
        return routing_key(topic, self.title)

    def apply_policy(self) -> None:
        """Do what a policy that is new asks for."""
        policy = self.policy
        self.is_bounded = policy.depth_max > 0 or policy.bytes_max > 0
        if policy.message_ttl_ms or policy.bytes_max or policy.overflow == DROP_HEAD or policy.retains():
            self.keep()
        if self.keeper is not None:
            self.keeper.policy_changed()

    def keep(self) -> Keeper:
        """The queue's keeper, made if need be."""
        if self.keeper is None:
            self.keeper = Keeper(self)
        return self.keeper

    # groups

    def group(self, name: str, pattern: str = MATCH_ALL, selector: str = "") -> Group:
        """The group, made (at the oldest kept message) if it is not there."""
        group_id = name if pattern == MATCH_ALL else f"{name}@{pattern}"
        group = self.groups.get(group_id)
        if group is None:
            if len(self.groups) >= limits.GROUPS_PER_QUEUE_MAX:
                raise LimitReached(f"queue {self.name!r} has {limits.GROUPS_PER_QUEUE_MAX} consumer groups")
            if len(f"{self.name}{GROUP_SEPARATOR}{group_id}".encode()) > QUEUE_ID_BYTES_MAX:
                raise InvalidAddress(
                    f"queue, group and pattern have together at most {QUEUE_ID_BYTES_MAX - 1} bytes"
                )
            group = self.new_group(name, pattern, self.head_offset, self.head_sequence, selector)
            # a sole group does not keep account of what it released: the queue does
            if len(self.groups) == 1:
                for other in self.groups.values():
                    other.released = self.released.copy()
            group.released = self.released.copy()
            group.pass_over(self.released)
            if self.group_removals:
                begin_after(group, first_claim(self, group_id))
            if self.keeper is not None:
                self.keeper.welcome(group)
            self.groups[group_id] = group
            others_past = len(self.groups) > 1 and not self.released_known
            if self.durable and others_past and self.head_offset < self.tail.first_offset:
                # nobody knows yet what the others let go of; until then it is given nothing
                group.loading = True
                self.manager.unborn.append(group)
            elif self.durable:
                group.mark_dirty()
                if group.holes is not None:
                    self.note_holes()
            elif gone := self.tail.released():
                select(group).taken.add(gone)
        return group

    is_lane = False
    lets_expire = True  # messages that ask for it

    def parts(self) -> list[Queue]:
        """The queues it consists of, itself first: more than one if it has priorities."""
        return [self]

    def whole(self) -> Queue:
        """The queue this is a part of."""
        return self

    @property
    def title(self) -> str:
        """The name its users know it by."""
        return self.name

    def new_group(
        self, name: str, pattern: str, position: int, cursor_sequence: int, selector: str = ""
    ) -> Group:
        """A group of this queue's kind; nobody knows it yet."""
        return Group(self, name, pattern, position, cursor_sequence, selector)

    def note_holes(self) -> None:
        """Write down what was let go of beyond the head: no group will be able to tell after a restart."""
        self.holes = self.released.copy()
        self.write_holes()
        for group in self.groups.values():
            self.manager.flush_with_next_commit(group)  # what failed is on the store by then

    def write_holes(self) -> None:
        """Write `holes`, or delete their record if there are none."""
        journal = self.manager.journal
        if self.holes is None or not self.holes.starts:
            self.holes = None
            journal.delete(holes.key(self.name))
        else:
            journal.put(holes.key(self.name), holes.encode(self.holes.pairs()))

    def keep_again(self, start: int, end: int) -> None:
        """Offsets that were let go of stand in the log for their payloads again."""
        self.released.discard(start, end)
        if self.holes is not None and self.holes.overlaps(start, end):
            self.holes.discard(start, end)
            self.write_holes()

    def consumer_count(self) -> int:
        """Consumers of all groups."""
        return sum(len(group.consumers) for group in self.groups.values())

    def ready_count(self) -> int:
        """Messages waiting in the default group; in the longest group if that one was never used."""
        default = self.groups.get("")
        if default is not None:
            return default.ready_count()
        if self.groups:
            return max(group.ready_count() for group in self.groups.values())
        return self.kept_count()

    def depth(self) -> int:
        """Messages the slowest group has still to claim."""
        if not self.groups:
            return self.kept_count()
        return max(group.ready_count() + group.delayed_count() for group in self.groups.values())

    def has_room(self, count: int, body_bytes: int) -> bool:
        """Whether the queue, which is bounded, takes so many messages of so many bytes in all."""
        policy = self.policy
        if policy.overflow == DROP_HEAD:
            return True
        if self.stage is not None:  # what is on its way has its room already
            count += self.stage.unmoved_count
            body_bytes += self.stage.unmoved_bytes
        if policy.depth_max and self.depth() + count > policy.depth_max:
            return False
        return not policy.bytes_max or waiting_bytes(self) + body_bytes <= policy.bytes_max

    def kept_count(self) -> int:
        """Messages for groups to come; the queue has no group."""
        head = self.head_offset
        keeper = self.keeper
        count = self.tail.next_offset - head
        if self.durable:
            if keeper is not None:
                keeper.nobody()  # has what was given up count as released
            return count - self.released.count_from(head)
        places = self.tail.released()
        if keeper is None:
            return count - len(places)
        return count - keeper.ahead_count(head) - sum(not keeper.was_given_up(place) for place in places)

    def waiting_count(self) -> int:
        """As `ready_count`, with the messages that came back and wait for their next attempt."""
        default = self.groups.get("")
        if default is not None:
            return default.ready_count() + default.delayed_count()
        if self.groups:
            return max(group.ready_count() + group.delayed_count() for group in self.groups.values())
        return self.ready_count()

    def has_failed(self, offset: int) -> bool:
        """Whether a group keeps the message at `offset` as failed."""
        return any(group.failed_offsets.contains(offset) for group in self.groups.values())

    # use

    def watch_use(self) -> None:
        """Have the queue looked at when it will have been unused for too long."""
        expires_ms = self._expires_ms()
        if expires_ms and self.owner is None and not self.is_lane:
            self.manager.timers.set(self, self.unused_since_ms + expires_ms)

    def _expires_ms(self) -> int:
        return self.policy.unused_max_ms if self.durable else self.policy.expires_ms

    def on_timer(self, now_ms: int) -> None:
        """Go, if nobody used the queue for as long as its policy says."""
        if self.deleted or self.consumer_count():
            return
        expires_ms = self._expires_ms()
        if expires_ms and self.unused_since_ms + expires_ms <= now_ms:
            self.manager.delete(self, now_ms)
        else:
            self.watch_use()

    # appending

    def append(
        self, template: EnvelopeTemplate, first_id: int, bodies: list[bytes], body_bytes: int, now_ms: int
    ) -> None:
        """Append one message per body, IDs from `first_id` on."""
        count = len(bodies)
        offset = self.tail.next_offset
        self.tail.append(make_messages(first_id, offset, bodies, repeat(template), now_ms), body_bytes)
        if self.durable:
            self.open_entries.add(template, first_id, offset, now_ms, count)
            self.manager.appended[self] = None
        self._appended(template, first_id, offset, bodies, now_ms)

    def append_varied(
        self,
        templates: list[EnvelopeTemplate],
        first_id: int,
        bodies: list[bytes],
        body_bytes: int,
        now_ms: int,
    ) -> None:
        """As `append`, each message with a template of its own that asks for nothing."""
        offset = self.tail.next_offset
        self.tail.append_varied(make_messages(first_id, offset, bodies, templates, now_ms), body_bytes)
        if self.durable:
            self.open_entries.add_varied(templates, first_id, offset, now_ms)
            self.manager.appended[self] = None
        self._appended(templates[0], first_id, offset, bodies, now_ms)

    def _appended(
        self, template: EnvelopeTemplate, first_id: int, offset: int, bodies: list[bytes], now_ms: int
    ) -> None:
        """Have everybody know who waits for messages; all of these expire alike."""
        self.manager.tailed[self] = None
        if self.keeper is not None or (template.expires_at_ms and self.lets_expire):
            self.keep().appended(template, first_id, offset, bodies, now_ms)
        dispatchable = self.manager.dispatchable
        for group in self.groups.values():
            if group.consumers:
                dispatchable[group] = None

    def append_due(self, template: EnvelopeTemplate, message_id: int, body: bytes, now_ms: int) -> None:
        """Append a message that was scheduled; its payload is stored already."""
        self.append_stored(template, message_id, [body], now_ms)

    def append_stored(
        self, template: EnvelopeTemplate, first_id: int, bodies: list[bytes], now_ms: int
    ) -> None:
        """Append messages whose payloads are stored already."""
        self.mixes_payloads = True
        self.append(template, first_id, bodies, sum(map(len, bodies)), now_ms)

    def scheduled_count(self) -> int:
        """Messages that are not due yet, as far as they were counted since the start."""
        return 0 if self.schedule is None else self.schedule.count

    def scheduled_bytes(self) -> int:
        """Payloads of scheduled messages that are in memory."""
        return 0 if self.schedule is None else self.schedule.memory_bytes

    def log_written(self, journal: Journal) -> None:
        """The open log entries were added to `journal`."""
        if self.keeper is not None:
            self.keeper.log_written(journal)

    def kept_from(self) -> int:
        """The lowest offset whose payload the log stands for, whether it may still be read or not."""
        return self.head_offset

    def sequence_at(self, offset: int) -> int | None:
        """The newest known log sequence whose entry begins at or before `offset`."""
        index = self.log_index
        if not index or index[0][0] > offset:
            return None
        low, high = 0, len(index)
        while low + 1 < high:
            middle = (low + high) // 2
            if index[middle][0] <= offset:
                low = middle
            else:
                high = middle
        return index[low][1]

    # memory

    def trim_tail(self, bytes_max: int) -> None:
        """Forget messages every group is past, and the oldest ones beyond `bytes_max`, if durable."""
        tail = self.tail
        if not len(tail):
            return
        if self.groups:
            floor = min(group.position for group in self.groups.values())
            # a group to come could not read back what is not in the store yet
            tail.drop_before(min(floor, self.durable_offset) if self.durable else floor)
        if self.durable:
            tail.drop_bytes(bytes_max, self.durable_offset)
        else:
            self.head_offset = tail.first_offset
