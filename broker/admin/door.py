"""The administration's public door."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from broker.admin import browsing, counting, grouping, moving, publishing
from broker.admin.checking import checks_arguments
from broker.admin.grouping import Start
from broker.admin.views import GroupView, Page, Published, QueueView, State
from broker.configured import policy_of
from broker.engine import redrive, scheduled
from config.names import check_queue_name
from config.queue_settings import QueueSettings
from config.settings import Settings
from queue_manager.definitions import QueueDefinition
from queue_manager.errors import InvalidAddress, InvalidArgument, QueueBusy, QueueNotFound
from queue_manager.group import Group
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue import Queue

if TYPE_CHECKING:
    from broker.engine.shard import Shard


@checks_arguments
class Admin:
    """What can be asked of a running broker and done to it. Call it from the broker's own event loop.

    Every call may raise StorageError; the reasons of QueueManagerError are fit for users. Changes are durable
    when a call returns. Once the broker has stopped or its store has failed, every call raises BrokerStopped
    (a StorageError), also those that wait then.
    """

    def __init__(self, shard: Shard, settings: Settings) -> None:
        self._its_shard = shard
        self._settings = settings

    @property
    def _shard(self) -> Shard:
        """The shard, as long as it lives; raises BrokerStopped."""
        self._its_shard.ending.check()
        return self._its_shard

    # queues

    async def queues(self) -> list[QueueView]:
        """All queues, by name."""
        await self._shard.sweeper.retention_known()
        queues = self._shard.manager.queues
        return [counting.queue_view(queues[name]) for name in sorted(queues) if not queues[name].is_lane]

    async def queue(self, name: str) -> QueueView:
        """One queue; raises QueueNotFound."""
        await self._shard.sweeper.retention_known()
        return counting.queue_view(self._find(name))

    async def declare(self, settings: QueueSettings | str) -> QueueView:
        """The queue, made if it is not there, as an entry of `queues:` in the configuration says (a name
        alone: a classic queue with the defaults).

        Raises PreconditionFailed when it exists as another type, InvalidAddress, LimitReached.
        """
        if isinstance(settings, str):
            try:
                settings = QueueSettings(name=check_queue_name(settings))
            except ValueError as error:
                raise InvalidAddress(str(error)) from None
        shard = self._shard
        definition = QueueDefinition(
            settings.name,
            durable=settings.type != "ephemeral",
            policy=policy_of(self._settings, settings),
            topics=settings.topics,
        )
        while True:
            try:
                queue = shard.manager.declare(definition, shard.clock.now_ms())
                break
            except QueueBusy:
                await shard.sweeper.removal_done(settings.name)
        await grouping.create_missing(shard, queue, settings)
        await self._settle()
        await self._shard.sweeper.retention_known()
        return counting.queue_view(queue)

    async def delete(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue with all it holds; give how many messages waited in it.

        Raises QueueNotFound, PreconditionFailed.
        """
        shard = self._shard
        count = shard.manager.delete(
            self._find(name), shard.clock.now_ms(), if_unused=if_unused, if_empty=if_empty
        )
        await self._settle()
        return count

    async def purge(self, name: str) -> int:
        """Drop what waits in every group; give how many messages it were. Raises QueueNotFound."""
        shard = self._shard
        count = shard.manager.purge(self._find(name), shard.clock.now_ms())
        await self._settle()
        return count

    # messages

    async def publish(
        self,
        address: str,
        body: bytes,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        **properties: Any,
    ) -> Published:
        """Publish one message to a queue's name or a `$queue/...` address.

        `properties` are AMQP's (content_type, correlation_id, reply_to, message_id, ...). Returns once it is
        durable, where it went to a durable queue. Raises QueueNotFound, InvalidAddress, InvalidArgument,
        LimitReached when a queue does not take it.
        """
        published = publishing.publish(self._shard, address, body, headers, persistent, properties)
        await self._settle()
        return published

    async def browse(
        self,
        queue: str,
        group: str | None = None,
        state: State = "ready",
        *,
        after: str | None = None,
        start: Start | None = None,
        limit: int = 100,
        bodies: bool = True,
    ) -> Page:
        """Look at messages in a state, a page at a time; `after` is the `next` of the page before.

        Ready, delayed and in-flight ones come in the order of the queue (the highest priority first), failed
        and done ones in the order they were first claimed, scheduled ones in the order they are due. `start`
        is where the first page of ready ones begins: an offset, or `timestamp=<ms since 1970>`. `group` None:
        the default group, or the only one, or whatever is in a queue without groups; of a stream everything.
        Nothing is disturbed. With `bodies` a page ends early at some 32 MiB. Raises QueueNotFound,
        GroupNotFound, InvalidArgument.
        """
        found = self._find(queue)
        if start is not None:
            if after is not None or state != "ready":
                raise InvalidArgument("start is for the first page of ready messages")
            after = await grouping.cursor_at(self._shard, found, start)
        return await browsing.browse(
            self._shard,
            found,
            self._group(found, group),
            state,
            after=after,
            limit=limit,
            bodies=bodies,
        )

    async def cancel_scheduled(self, message_id: str) -> bool:
        """Cancel the scheduled message of that ID (`MessageView.message_id`); False if it is not there, or
        due.
        """
        name, _, key = message_id.rpartition(":")
        due_ms, number = browsing.scheduled_key(key)
        return await scheduled.cancel_scheduled(self._shard, name, due_ms, number)

    async def move(
        self,
        queue: str,
        to: str,
        *,
        group: str | None = None,
        state: State = "ready",
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Move what a group has ready or failed to the end of another queue; give how many went.

        Each message is in one of the two at any moment, also after a crash; topic and properties stay. What
        the other queue does not take (full, too large), and what a message group has bound to a consumer,
        keeps its place. At most `limit` and at most `limits.MOVED_MESSAGES_PER_CALL_MAX`. Raises
        QueueNotFound, GroupNotFound, InvalidArgument (also for a stream, whose messages stay).
        """
        source, target = self._pair(queue, to)
        return await moving.move(
            self._shard, source, self._group(source, group), target, state, limit, per_second
        )

    async def copy(
        self,
        queue: str,
        to: str,
        *,
        group: str | None = None,
        state: State = "ready",
        start: Start | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Copy messages to the end of another queue: as `move`, but they stay, and any state but scheduled
        does.

        `start`: where in the queue to begin, as `browse` has it.
        """
        source, target = self._pair(queue, to)
        after = None if start is None else await grouping.cursor_at(self._shard, source, start)
        return await moving.copy(
            self._shard, source, self._group(source, group), target, state, limit, per_second, after
        )

    async def redrive(
        self,
        queue: str,
        group: str = "",
        *,
        offsets: Collection[int] | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Have a group try its failed messages again; see `broker.engine.redrive`."""
        return await redrive.redrive_failed(
            self._shard, queue, group, limit=limit, offsets=offsets, per_second=per_second
        )

    async def redrive_dead_letters(
        self, queue: str, *, to: str | None = None, limit: int | None = None, per_second: float | None = None
    ) -> int:
        """Send dead letters back to where they came from; see `broker.engine.redrive`."""
        return await redrive.redrive_dead_letters(
            self._shard, queue, target=to, limit=limit, per_second=per_second
        )

    # groups

    async def groups(self, queue: str) -> list[GroupView]:
        """The consumer groups of a queue, by their IDs; raises QueueNotFound."""
        await self._shard.sweeper.retention_known()
        groups = [group for group in self._find(queue).groups.values() if counting.has_name(group)]
        groups.sort(key=lambda group: group.group_id)
        return [await counting.group_view(self._shard, group) for group in groups]

    async def group(self, queue: str, group: str) -> GroupView:
        """One group; raises QueueNotFound, GroupNotFound."""
        await self._shard.sweeper.retention_known()
        found = self._shard.manager.find_group(self._find(queue), group)
        return await counting.group_view(self._shard, found)

    async def create_group(
        self,
        queue: str,
        name: str,
        *,
        pattern: str = MATCH_ALL,
        selector: str = "",
        start: Start = "earliest",
    ) -> GroupView:
        """Make a group that begins at `start`: `earliest`, `latest`, an offset, `timestamp=<ms since 1970>`
        or a datetime. It is given what matches both `pattern` and `selector`.

        A queue with priorities has no offsets to begin at. Raises QueueNotFound, InvalidAddress,
        InvalidArgument, LimitReached, PreconditionFailed if it is there.
        """
        group = await grouping.create(self._shard, self._find(queue), name, pattern, selector, start)
        await self._shard.sweeper.retention_known()
        await self._settle()
        return await counting.group_view(self._shard, group)

    async def reset_group(
        self, queue: str, group: str, *, to: Start = "earliest", force: bool = False
    ) -> GroupView:
        """Have a group go on at `to` (as `create_group`'s `start`), with whatever is still kept.

        Messages before count as done, but those that failed stay failed. Refused while the group has
        consumers or claims, unless `force`: consumers then stay and their claims end. Raises QueueNotFound,
        GroupNotFound, InvalidArgument, PreconditionFailed.
        """
        fresh = await grouping.reset(self._shard, self._find(queue), group, to, force)
        await self._settle()
        return await counting.group_view(self._shard, fresh)

    async def delete_group(self, queue: str, group: str, *, force: bool = False) -> None:
        """Delete a group with its progress and failed messages; what only it kept goes.

        Of the last group of a queue, what it had not done stays in the queue. Refused while the group has
        consumers or claims, unless `force`: its consumers are cancelled. Raises QueueNotFound, GroupNotFound,
        PreconditionFailed.
        """
        await grouping.delete(self._shard, self._find(queue), group, force)
        await self._settle()

    # helpers

    def _find(self, name: str) -> Queue:
        queue = self._shard.manager.named(name)
        if queue is None:
            raise QueueNotFound(f"no queue {name!r}")
        return queue

    def _pair(self, queue: str, to: str) -> tuple[Queue, Queue]:
        source, target = self._find(queue), self._find(to)
        if source is target:
            raise InvalidArgument(f"queue {queue!r} cannot be moved or copied into itself")
        return source, target

    def _group(self, queue: Queue, group_id: str | None) -> Group | None:
        return grouping.chosen(self._shard.manager, queue, group_id)

    async def _settle(self) -> None:
        """Deliver what can be delivered, and wait until everything so far is durable."""
        shard = self._shard
        shard.manager.dispatch(shard.clock.now_ms())
        shard.wake()
        await shard.barrier()
