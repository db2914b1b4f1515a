"""The queue manager's public door: what front-ends and the driver may call."""

from __future__ import annotations

from collections.abc import Sequence

from config import limits
from queue_manager.errors import InvalidArgument, PreconditionFailed
from queue_manager.group.group import Group, group_id_of
from queue_manager.log.removals import GroupRemoval
from queue_manager.log.stream_start import StreamStart
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.queue.queue_groups import Place
from queue_manager.queue.stream import Stream
from queue_manager.retained_messages import RetainedMessages
from queue_manager.routing.consumption import Consumption
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.publisher import Publisher
from queue_manager.routing.queue_directory import QueueDirectory
from queue_manager.rules.stored_window import Key
from queue_manager.sessions.vhost_sessions import VhostSessions
from queue_manager.shard.context import AUTO_COMMIT_INTERVAL_MS, Context, DuePurge
from queue_manager.stored_bans import StoredBans
from queue_manager.stored_parameters import StoredParameters
from queue_manager.stored_vhosts import StoredVhosts
from storage.metadata_log import MetadataLog
from storage.records import payload, scheduled
from storage.sequence import SequenceAllocator


class QueueManager:
    """All queues of one shard. One thread calls it; it calls consumers' sinks before it returns.

    `queues` finds, declares and deletes them, `publisher` publishes, `consumption` has consumers and their
    claims, `sessions` are MQTT's that last, `retained` its retained messages, `vhosts`, `bans` and
    `parameters` what is kept of these, `context` the open commit and what there is to do. Whatever drives it
    must take `seal()` whenever `commit_due_ms` says so, write it, and call `committed`; perform
    `context.loads`; call `take_step` while `context.has_steps`, with everybody else's turn in between; call
    `fire_timers` when `context.timers` says so; and call `expire` and `take_purges` from time to time.
    """

    def __init__(
        self,
        *,
        default_policy: QueuePolicy,
        auto_create: bool,
        cache_bytes_max: int,
        log: MetadataLog,
        message_ids: SequenceAllocator,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS,
    ) -> None:
        self.context = Context(
            cache_bytes_max=cache_bytes_max,
            metadata_log=log,
            message_ids=message_ids,
            auto_commit_interval_ms=auto_commit_interval_ms,
        )
        self.queues = QueueDirectory(self.context, default_policy, auto_create=auto_create)
        self.publisher = Publisher(self.context, self.queues)
        self.consumption = Consumption(self.context, self.queues)
        self.sessions = VhostSessions(self.context, self.queues.policies)
        self.retained = RetainedMessages(self.context)
        self.vhosts = StoredVhosts(self.context)
        self.bans = StoredBans(self.context)
        self.parameters = StoredParameters(self.context)
        self._unread_purges: list[DuePurge] = []
        # what is called for every publish and settlement, without a detour
        self.plan = PublishPlan
        self.publish = self.publisher.publish
        self.ack = self.consumption.ack
        self.requeue = self.consumption.requeue
        self.reject = self.consumption.reject
        self.dispatch = self.consumption.dispatch
        self.take_step = self.consumption.take_step
        self.seal = self.context.seal
        self.committed = self.context.committed

    # commits

    def has_to_commit(self) -> bool:
        """Whether a commit is due at once or later."""
        context = self.context
        return bool(context.commit or context.appended or context.skipping or context.state_writes)

    def commit_due_ms(self, now_ms: int) -> int | None:
        """In how many ms a commit is due: 0 for at once, None for not at all."""
        context = self.context
        if context.commit or context.appended or context.skipping:
            return 0
        due_ms = context.state_writes.due_ms
        return None if due_ms is None else max(0, due_ms - now_ms)

    # time

    def expire(self, now_ms: int) -> None:
        """Return claims whose lease ended, and do what else is due."""
        self.consumption.end_leases(now_ms)
        self.fire_timers(now_ms)

    def fire_timers(self, now_ms: int) -> None:
        """Do what is due by the timers, after consumers had their turn, and deliver what that set free."""
        self.dispatch(now_ms)
        self.context.timers.fire(now_ms)
        self.dispatch(now_ms)

    def take_purges(self, now_ms: int) -> list[DuePurge]:
        """Done records whose retention has passed, some `limits.PURGED_MESSAGES_PER_SWEEP_MAX` at most.

        The driver reads the reference counts of their `shared_items` and calls `apply_purges`.
        """
        context = self.context
        purges = self._unread_purges
        self._unread_purges = []
        share = context.tail_share(len(context.tailed))
        for log in list(context.tailed):
            if not log.trim_tail(share):
                del context.tailed[log]
        count_max = limits.PURGED_MESSAGES_PER_SWEEP_MAX
        for owner in list(context.purgeable):
            taken, more = owner.take_purges(now_ms, count_max)
            count_max -= sum(purge.message_count() for purge in taken)
            purges += taken
            if not more:
                del context.purgeable[owner]
        return purges

    def give_back_purges(self, purges: list[DuePurge]) -> None:
        """Purges could not be applied: they are taken again."""
        self._unread_purges += purges

    def apply_purges(self, purges: list[DuePurge], references: dict[int, int]) -> None:
        """Put purges into the open commit; `references` are the stored reference counts."""
        for purge in purges:
            purge.apply(references)

    def group_removed(self, done: GroupRemoval) -> None:
        """Nothing of a deleted group, or of a group's time before its reset, is left."""
        part = self.queues.part(done.log.name)
        if part is None or part.log is not done.log:
            self.context.commit.delete(done.key())
            return
        if part.retention.removal_done(done):
            cursor = part.cursors.get(done.group_id)
            if cursor is not None and not part.retention.removals.first_claim(done.group_id):
                cursor.claims.buckets.earlier_gone()

    def history_known(self, now_ms: int) -> None:
        """After a start it is known now what the queues let go of."""
        self.queues.history_known(now_ms)
        self.dispatch(now_ms)

    # groups

    def create_group(
        self,
        queue: Queue,
        name: str,
        pattern: str = MATCH_ALL,
        places: Sequence[Place] | None = None,
        selector: str = "",
        start: StreamStart | None = None,
    ) -> Group:
        """Make a group that begins at `places`, one for each of the queue's parts (None: the oldest message
        kept).

        A group of a stream begins at `start` instead. Raises PreconditionFailed if the group is there,
        InvalidAddress, LimitReached.
        """
        group_id = group_id_of(name, pattern)
        if group_id in queue.groups:
            raise PreconditionFailed(f"queue {queue.name!r} has a consumer group {group_id!r} already")
        if isinstance(queue, Stream):
            queue.check_name(name)
        group = self.consumption.group(queue, name, pattern, selector, places)
        if isinstance(queue, Stream) and start is not None:
            queue.stream_group(name, pattern, selector).cursor.seek(start)
        return group

    def reset_group(
        self,
        queue: Queue,
        group_id: str,
        places: Sequence[Place],
        now_ms: int,
        *,
        start: StreamStart | None = None,
        force: bool = False,
    ) -> Group:
        """Have a group go on at `places`, see `Groups.reset`; a group of a stream goes on at `start`."""
        group = queue.groups.reset(queue.groups.find(group_id), places, now_ms, force=force)
        if isinstance(queue, Stream) and start is not None:
            queue.stream_group(group.name, group.pattern, group.selector).cursor.seek(start)
        return group

    # streams

    def anchor_group(self, queue: Queue, group_name: str, start: StreamStart | None) -> int | None:
        """Return the committed offset of a group; one that is not there is made at `start` (None: it is not
        made).

        What is made is durable with the open commit. Raises InvalidArgument, InvalidAddress, LimitReached.
        """
        if not isinstance(queue, Stream):
            raise InvalidArgument(f"queue {queue.name!r} is no stream")
        known = queue.known_group(group_name)
        if known is None:
            if start is None:
                return None
            self.consumption.group(queue, group_name, MATCH_ALL)
            known = queue.stream_group(group_name)
            known.cursor.seek(start)
        return known.cursor.committed_offset()

    def commit_offset(self, queue: Queue, group_id: str, offset: int) -> None:
        """Everything up to and with `offset` is done with in the group; durable once the open commit is.

        A lower offset than before has the group read again. Raises InvalidArgument, GroupNotFound.
        """
        if not isinstance(queue, Stream):
            raise InvalidArgument(f"queue {queue.name!r} is no stream: there is nothing to commit")
        queue.commit_offset(group_id, offset)

    # scheduled messages

    def cancel_scheduled(self, queue: Queue, key: Key, *, keep_payload: bool) -> None:
        """Delete a scheduled message that is not due yet; the driver has looked that it is there.

        `keep_payload`: other queues need it.
        """
        commit = self.context.commit
        commit.delete(scheduled.key(queue.name, *key))
        if not keep_payload:
            commit.delete(payload.key(key[1]))
        queue.rules.schedule.cancel(key)
