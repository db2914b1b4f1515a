"""What only streams can do: begin somewhere, and be told how far a group is."""

from __future__ import annotations

from typing import cast

from queue_manager.consumer import Consumer, CreditPool, Sink
from queue_manager.door.consuming import Consuming
from queue_manager.errors import GroupNotFound, InvalidArgument, PreconditionFailed
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue import Queue
from queue_manager.streams.group import StreamGroup
from queue_manager.streams.start import StreamStart
from queue_manager.streams.stream import Stream


class Streaming(Consuming):
    """Subscribe to a stream, commit an offset."""

    def subscribe_stream(
        self,
        stream: Stream,
        group_name: str,
        pattern: str,
        sink: Sink,
        *,
        start: StreamStart | None,
        auto_commit: bool,
        consumer_id: str,
        credit_max: int,
        no_ack: bool,
        exclusive: bool,
        lease_ms: int,
        pool: CreditPool | None = None,
        priority: int = 0,
        wanted: ConsumerFilter | None = None,
        group_selector: str | None = None,
    ) -> Consumer:
        """As `subscribe`. A group without a name is this consumer's own.

        `start` moves a group that has no consumer; None: it goes on where it was, or begins at the oldest
        message. `wanted` holds for the group while it has consumers, which all ask for the same. Raises
        PreconditionFailed when others of the group commit (`auto_commit`) or filter otherwise.
        """
        known = stream.groups.get(group_name if pattern == MATCH_ALL else f"{group_name}@{pattern}")
        is_first = known is None or not known.consumers
        if known is not None and not is_first and cast(StreamGroup, known).auto_commit != auto_commit:
            theirs = str(not auto_commit).lower()
            raise PreconditionFailed(
                f"group {known.group_id!r} of stream {stream.name!r} has auto-commit {theirs}"
            )
        if known is not None and not is_first:
            asked = "" if wanted is None else wanted.key
            if asked != cast(StreamGroup, known).filter_key:
                raise PreconditionFailed(
                    f"group {known.group_id!r} of stream {stream.name!r} is read with another filter"
                )
        consumer = self.subscribe(
            stream,
            group_name,
            pattern,
            sink,
            consumer_id=consumer_id,
            credit_max=credit_max,
            no_ack=no_ack,
            exclusive=exclusive,
            lease_ms=lease_ms,
            pool=pool,
            priority=priority,
            group_selector=group_selector,
        )
        if is_first:
            group = cast(StreamGroup, consumer.group)
            group.auto_commit = auto_commit
            if start is not None:
                group.seek(start)
            group.narrow(wanted)
        return consumer

    def anchor_group(self, queue: Queue, group_name: str, start: StreamStart | None) -> int | None:
        """The committed offset of a group; one that is not there is made at `start` (None: it is not made).

        What is made is durable with the open commit. Raises InvalidArgument, InvalidAddress, LimitReached.
        """
        if not isinstance(queue, Stream):
            raise InvalidArgument(f"queue {queue.name!r} is no stream")
        known = queue.groups.get(group_name)
        if known is None:
            if start is None:
                return None
            known = self.group(queue, group_name)
            cast(StreamGroup, known).seek(start)
        return cast(StreamGroup, known).committed_offset()

    def commit_offset(self, queue: Queue, group_id: str, offset: int) -> None:
        """Everything up to and with `offset` is done with in the group; durable once the open commit is.

        A lower offset than before has the group read again. Raises InvalidArgument, GroupNotFound.
        """
        if not isinstance(queue, Stream):
            raise InvalidArgument(f"queue {queue.name!r} is no stream: there is nothing to commit")
        group = queue.groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"stream {queue.name!r} has no consumer group {group_id!r}")
        assert isinstance(group, StreamGroup)
        if group.auto_commit and group.consumers:
            raise InvalidArgument(f"group {group_id!r} commits by itself: subscribe with auto-commit false")
        end = group.position if group.consumers else queue.tail.next_offset
        if offset >= end:
            raise InvalidArgument(f"offset {offset} is beyond what group {group_id!r} was given: {end - 1}")
        group.commit(offset)
