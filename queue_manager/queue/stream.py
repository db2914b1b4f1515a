"""A stream: a queue whose messages stay until retention takes them, however often they were read."""

from __future__ import annotations

from collections.abc import Sequence

from config import limits
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.stream_cursor import StreamCursor
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf
from queue_manager.errors import GroupNotFound, InvalidArgument, LimitReached
from queue_manager.group.group import Group
from queue_manager.group.stream_group import StreamGroup
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.stream_log import StreamLog
from queue_manager.log.stream_retention import StreamRetention
from queue_manager.model import MessageBatch
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue.part import Part
from queue_manager.queue.queue import Queue
from queue_manager.queue.queue_groups import GroupedQueue, Groups, Place
from storage.records import ChunkValue


class StreamPart(Part):
    """The log of a stream."""

    __slots__ = ()

    lets_expire = False
    log: StreamLog
    retention: StreamRetention[Cursor]

    def append(self, batch: MessageBatch) -> None:
        """Append as a queue does, and let go of what is too old or too much."""
        super().append(batch)
        self.retention.retain(batch.now_ms)

    def new_stream_cursor(self, group: StreamGroup, position: int, sequence: int) -> StreamCursor:
        """Make a cursor for a group; it is not known yet."""
        return StreamCursor(
            self.retention,
            group,
            begins_at=position,
            sequence=sequence,
            rules=self.rules,
            dead_letters=self.dead_letters,
            dispatcher=group.serving.in_order,
            is_kept=not group.is_anonymous,
        )

    def purge(self) -> None:
        """Drop everything."""
        self.retention.cut(self.log.next_offset)


class StreamGroups(Groups):
    """The groups of a stream; without a name it is one consumer's own."""

    __slots__ = ("_anonymous_count", "_part")

    def __init__(self, queue: GroupedQueue, part: StreamPart, parts: list[Part], key_of: GroupKeyOf) -> None:
        super().__init__(queue, parts, key_of)
        self._part = part
        self._anonymous_count = 0

    def ensure(self, name: str, pattern: str, selector: str, places: Sequence[Place] | None = None) -> Group:
        """See `Groups.ensure`; without a name always a new one. Streams have no `places`."""
        if name:
            return super().ensure(name, pattern, selector)
        if len(self) >= limits.GROUPS_PER_QUEUE_MAX:
            raise LimitReached(
                f"stream {self._queue.name!r} has {limits.GROUPS_PER_QUEUE_MAX} consumer groups"
            )
        return self._make(name, pattern, selector)

    def _make(self, name: str, pattern: str, selector: str) -> Group:
        log = self._part.log
        group = self.new_group(name, pattern, selector, log.head_offset, log.head_sequence)
        self._part.adopt(group.key, group.cursor)
        self._groups[group.key] = group
        return group

    def new_group(self, name: str, pattern: str, selector: str, position: int, sequence: int) -> StreamGroup:
        """Make a group that is not known yet."""
        key = ""
        if not name:
            self._anonymous_count += 1
            key = f"\x1f{self._anonymous_count}"
        group = StreamGroup(self._part.log, name, pattern, selector, self._key_of, key, self._forget)
        group.follow(self._part.new_stream_cursor(group, position, sequence))
        return group

    def _forget(self, group: StreamGroup) -> None:
        """Forget a nameless group, which ended with its consumer."""
        self._groups.pop(group.key, None)
        self._part.cursors.pop(group.key, None)
        self._part.log.context.forget_dispatch(group)

    def reset(self, group: Group, places: Sequence[Place], now_ms: int, *, force: bool) -> Group:
        """See `Groups.reset`; a stream's group seeks instead."""
        return self.check_idle(group.group_id, force=force)


class Stream(Queue):
    """A durable queue that is read, not emptied."""

    __slots__ = ("_stream_groups", "_stream_part")

    is_stream = True

    def make_part(self, log: QueueLog) -> Part:
        assert isinstance(log, StreamLog)
        self._stream_part = StreamPart(StreamRetention(log), self._dead_letters(log), self._levels)
        return self._stream_part

    def _make_groups(self) -> Groups:
        self._stream_groups = StreamGroups(
            self, self._stream_part, self.parts, self._surroundings.group_key_of
        )
        return self._stream_groups

    @property
    def retention(self) -> StreamRetention[Cursor]:
        """The retention of its log."""
        return self._stream_part.retention

    def stored_bytes(self) -> int:
        return self.log.chunks.payload_bytes

    @property
    def log(self) -> StreamLog:
        """Its log."""
        return self._stream_part.log

    def restore(self, rows: list[tuple[int, ChunkValue]], now_ms: int) -> None:
        """Take over the chunks that were written, and go on letting go of what is too much."""
        self.log.restore(rows)
        self.retention.want_removal_below_head()  # what a crash kept from being deleted
        self.retention.retain(now_ms)

    def restore_group(
        self, name: str, pattern: str, selector: str, position: int, sequence: int
    ) -> StreamGroup:
        """Take in a group that was made before the start."""
        group = self._stream_groups.new_group(name, pattern, selector, position, sequence)
        self.groups.restore(group)
        self._stream_part.cursors[group.key] = group.cursor
        return group

    def stream_group(self, name: str, pattern: str = MATCH_ALL, selector: str = "") -> StreamGroup:
        """Return the group as `group` does, by its own type."""
        group = self.group(name, pattern, selector)
        assert isinstance(group, StreamGroup)
        return group

    def known_group(self, group_id: str) -> StreamGroup | None:
        """Return the group with an ID, None if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            return None
        assert isinstance(group, StreamGroup)
        return group

    def commit_offset(self, group_id: str, offset: int) -> None:
        """Everything up to and with `offset` is done with in the group.

        Raises InvalidArgument, GroupNotFound.
        """
        group = self.known_group(group_id)
        if group is None:
            raise GroupNotFound(f"stream {self.name!r} has no consumer group {group_id!r}")
        if group.cursor.auto_commit and group.consumers.members:
            raise InvalidArgument(f"group {group_id!r} commits by itself: subscribe with auto-commit false")
        end = group.position if group.consumers.members else self.log.next_offset
        if offset >= end:
            raise InvalidArgument(f"offset {offset} is beyond what group {group_id!r} was given: {end - 1}")
        group.cursor.commit(offset)

    def primary_committed(self) -> int:
        """Return the offset below which the primary group is done with everything; the head while there is
        none.
        """
        group = self.known_group(self.policy.primary_group)
        return self.log.head_offset if group is None else group.cursor.committed_offset()

    def check_name(self, name: str) -> None:
        """Raise InvalidArgument if a group of that name cannot be made by itself."""
        if not name:
            raise InvalidArgument(f"queue {self.name!r} is a stream: a group needs a name")

    def ready_count(self) -> int:
        """Messages in the stream."""
        return self.log.next_offset - self.log.head_offset

    def depth(self) -> int:
        """Messages in the stream."""
        return self.ready_count()

    def waiting_count(self) -> int:
        """Messages in the stream."""
        return self.ready_count()

    def watch_use(self) -> None:
        """Have the limits of the stream looked at, which may have changed; a stream need not be used."""
        self.retention.watch_limits()
