"""Queues of a shard in this process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

from broker.engine.answers import Answer, answered
from broker.engine.call_names import Name, VhostName
from broker.engine.client import counting
from broker.engine.shard import Shard
from broker.stepping import one_by_one
from queue_manager.address import DEFAULT_VHOST, vhost_of
from queue_manager.api import OPERATOR, Changed, Dropped, QueueDeclaration, QueueStatus, QueueView
from queue_manager.errors import PreconditionFailed, QueueBusy, QueueManagerError, QueueNotFound
from queue_manager.policy import Pause
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import REPORTED, QueueDefinition
from storage.errors import StorageError


def find(shard: Shard, name: str, caller: str = OPERATOR) -> Queue:
    """Return the queue a caller names; raises QueueNotFound, ResourceLocked."""
    if caller != OPERATOR:
        return shard.manager.queues.find(name, sys.intern(caller))
    queue = shard.manager.queues.get(name)
    if queue is None:
        raise QueueNotFound.named(name)
    return queue


def status_of(queue: Queue, *, is_new: bool = False) -> QueueStatus:
    """Return a queue as it is now."""
    return QueueStatus(
        name=queue.name,
        durable=queue.durable,
        policy=queue.policy,
        ready=queue.ready_count(),
        consumers=queue.consumer_count(),
        is_new=is_new,
    )


class QueueClient:
    """Queues come and go."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._queues = shard.manager.queues
        context = shard.manager.context
        self._user_of = context.quotas.user_of
        self._exclusive: dict[str, dict[Queue, None]] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    def declare(self, declaration: QueueDeclaration, caller: str = OPERATOR) -> Answer[QueueStatus]:
        """Return the queue of that name, made if it is not there.

        Waits while one of that name is being deleted. Comes to PreconditionFailed when it exists with another
        definition, ResourceLocked, ReservedName, InvalidAddress, LimitReached.
        """
        answer: Answer[QueueStatus] = Answer()
        try:
            answer.resolve(self._declare(declaration, caller))
        except QueueBusy as busy:
            self._begin(self._declare_when_free(answer, busy.name, declaration, caller))
        except QueueManagerError as error:
            answer.fail(error)
        return answer

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _declare_when_free(
        self,
        answer: Answer[QueueStatus],
        busy_name: str,
        declaration: QueueDeclaration,
        caller: str,
    ) -> None:
        """Declare once what bears the name, or that of one of its parts, is gone."""
        while not answer.is_done:
            try:
                await self._shard.sweeper.removal_done(busy_name)
                answer.resolve(self._declare(declaration, caller))
            except QueueBusy as busy:
                busy_name = busy.name
            except (QueueManagerError, StorageError) as error:
                answer.fail(error)

    def _declare(self, declaration: QueueDeclaration, caller: str) -> QueueStatus:
        is_new = declaration.name not in self._queues
        owner = sys.intern(caller) if declaration.exclusive else None  # the core compares by identity
        definition = _definition(declaration, owner, self._user_of(caller))
        queue = self._queues.declare(definition, self._shard.clock.now_ms())
        if is_new and owner is not None:
            self._exclusive.setdefault(owner, {})[queue] = None
        return status_of(queue, is_new=is_new)

    @answered
    def configure(self, declaration: QueueDeclaration) -> bool:
        """Have a queue as declared: made if it is not there, else given the policy and bindings; whether
        anything of an existing queue changed.

        Comes to PreconditionFailed when it exists as another type.
        """
        definition = _definition(declaration, None)
        queue = self._queues.get(declaration.name)
        if queue is None:
            self._queues.declare(definition, self._shard.clock.now_ms())
            return False
        if queue.durable != declaration.durable or queue.policy.stream != declaration.policy.stream:
            kind = "classic" if declaration.durable else "ephemeral"
            wanted = "stream" if declaration.policy.stream else kind
            raise PreconditionFailed(f"queue {queue.name!r} exists, but not as {wanted}")
        if (queue.declared, queue.topics, queue.description) == (
            definition.policy,
            definition.topics,
            definition.description,
        ):
            return False
        self._queues.redefine(queue, definition)
        return True

    @answered
    def exists(self, name: Name) -> bool:
        """Return whether there is a queue of that name."""
        return name in self._queues

    def watch(self, name: Name, call: Callable[[], None]) -> None:
        """Have `call` called when the queue is deleted, unless `unwatch` comes before."""
        self._shard.manager.queues.watched.watch(name, call)

    def unwatch(self, name: Name, call: Callable[[], None]) -> None:
        """Undo a `watch`."""
        self._shard.manager.queues.watched.unwatch(name, call)

    @answered
    def look(self, name: Name, caller: str, *, is_use: bool = False) -> QueueStatus:
        """Return a queue that exists; `is_use`: asking counts as use. Comes to QueueNotFound,
        ResourceLocked.
        """
        queue = find(self._shard, name, caller)
        if is_use:
            queue.use.note(self._shard.clock.now_ms())
        return status_of(queue)

    def purge(self, name: Name, caller: str = OPERATOR) -> Answer[Dropped]:
        """Drop what waits in every group; soon after a start this waits as `delete` does. Comes to
        QueueNotFound, ResourceLocked.
        """
        return self._when_known(name, partial(self._purge, name, caller))

    def _purge(self, name: Name, caller: str) -> Dropped:
        queue = find(self._shard, name, caller)
        return Dropped(queue.purge(self._shard.clock.now_ms()), queue.durable)

    @answered
    def pause(self, name: Name, pause: Pause) -> Changed:
        """Stop what `pause` says in a queue, besides what is stopped in it. Comes to QueueNotFound."""
        queue = find(self._shard, name)
        return _set_pause(queue, queue.pause.joined(pause))

    @answered
    def resume(self, name: Name, pause: Pause) -> Changed:
        """Let go on in a queue what `pause` says. Comes to QueueNotFound."""
        queue = find(self._shard, name)
        return _set_pause(queue, queue.pause.without(pause))

    def delete(
        self, name: Name, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """Delete a queue with all it holds.

        Waits, soon after a start, until it is known which payloads the queue let go of before: those that it
        shares with others would stay for ever. Comes to QueueNotFound, ResourceLocked, PreconditionFailed
        when it is used or not empty and that was a condition.
        """
        return self._when_known(
            name, partial(self._delete, name, caller, if_unused=if_unused, if_empty=if_empty)
        )

    def _when_known(self, name: Name, call: Callable[[], Dropped]) -> Answer[Dropped]:
        """Call at once, or as soon as it is known what the queue let go of before the start."""
        queue = self._queues.get(name)
        if queue is None or queue.is_history_known():
            return Answer.of(call)
        answer: Answer[Dropped] = Answer()
        self._begin(self._call_when_known(answer, call))
        return answer

    async def _call_when_known(self, answer: Answer[Dropped], call: Callable[[], Dropped]) -> None:
        try:
            await self._shard.sweeper.retention_known()
            answer.resolve(call())
        except (QueueManagerError, StorageError) as error:
            answer.fail(error)

    def _delete(self, name: Name, caller: str, *, if_unused: bool, if_empty: bool) -> Dropped:
        queue = find(self._shard, name, caller)
        now_ms = self._shard.clock.now_ms()
        count = self._queues.delete(
            queue, now_ms, if_unused=if_unused, if_empty=if_empty, user=self._user_of(caller)
        )
        if isinstance(queue.owner, str):
            self._exclusive.get(queue.owner, {}).pop(queue, None)
        return Dropped(count, queue.durable)

    def forget_caller(self, caller: str) -> None:
        """Forget the caller, which is gone: its exclusive queues go with it."""
        for queue in self._exclusive.pop(caller, ()):
            if not queue.deleted:
                self._queues.delete(queue, self._shard.clock.now_ms())

    async def view(self, name: Name) -> QueueView:
        """Return one queue; raises QueueNotFound."""
        await self._shard.sweeper.retention_known()
        queue = find(self._shard, name)
        return counting.queue_view(queue, self._shard.manager.queues.policies_of(queue))

    async def views(
        self, names: Sequence[Name] | None = None, *, vhost: VhostName = DEFAULT_VHOST
    ) -> list[QueueView]:
        """Return the queues of these names that are there, in this order; None: all of a virtual host, by
        name.
        """
        await self._shard.sweeper.retention_known()
        views: list[QueueView] = []
        wanted = await self.names(vhost=vhost) if names is None else names
        async for name in one_by_one(wanted):
            queue = self._queues.get(name)
            if queue is not None:
                views.append(counting.queue_view(queue, self._queues.policies_of(queue)))
        return views

    async def names(self, *, vhost: VhostName = DEFAULT_VHOST) -> list[Name]:
        """Return the names of all queues of a virtual host, sorted."""
        names = (queue.name for queue in self._queues)
        return sorted(name for name in names if vhost_of(name) == vhost)


def _set_pause(queue: Queue, wanted: Pause) -> Changed:
    is_new = wanted != queue.pause
    if is_new:
        queue.set_pause(wanted)
    return Changed(is_new, queue.durable)


def _arguments(declaration: QueueDeclaration) -> Mapping[str, object] | None:
    if not declaration.reported:
        return declaration.arguments
    return {**(declaration.arguments or {}), REPORTED: dict(declaration.reported)}


def _definition(declaration: QueueDeclaration, owner: str | None, user: str | None = None) -> QueueDefinition:
    return QueueDefinition(
        declaration.name,
        durable=declaration.durable,
        policy=declaration.policy,
        topics=declaration.topics,
        arguments=_arguments(declaration),
        auto_delete=declaration.auto_delete,
        owner=owner,
        description=declaration.description,
        is_server_named=declaration.is_server_named,
        user=user,
    )
