"""Queues of a shard in this process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from broker.engine.answers import Answer
from broker.engine.operations import counting
from broker.engine.shard import Shard
from config import limits
from queue_manager.address import DEFAULT_VHOST, vhost_of
from queue_manager.api import OPERATOR, Changed, Dropped, QueueDeclaration, QueueStatus, QueueView
from queue_manager.definitions import REPORTED, QueueDefinition
from queue_manager.errors import PreconditionFailed, QueueBusy, QueueManagerError, QueueNotFound
from queue_manager.policy import Pause
from queue_manager.queue.queue import Queue
from storage.errors import StorageError


def find(shard: Shard, name: str, caller: str = OPERATOR) -> Queue:
    """The queue a caller names; raises QueueNotFound, ResourceLocked."""
    if caller != OPERATOR:
        return shard.manager.queues.find(name, sys.intern(caller))
    queue = shard.manager.queues.get(name)
    if queue is None:
        raise QueueNotFound.named(name)
    return queue


def status_of(queue: Queue, *, is_new: bool = False) -> QueueStatus:
    """A queue as it is now."""
    return QueueStatus(
        name=queue.name,
        durable=queue.durable,
        policy=queue.policy,
        ready=queue.ready_count(),
        consumers=queue.consumer_count(),
        is_new=is_new,
    )


class LocalQueues:
    """As `QueueClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._exclusive: dict[str, dict[Queue, None]] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    def declare(self, declaration: QueueDeclaration, caller: str = OPERATOR) -> Answer[QueueStatus]:
        """See `QueueClient.declare`."""
        answer: Answer[QueueStatus] = Answer()
        try:
            answer.resolve(self._declare(declaration, caller))
        except QueueBusy as busy:
            work = self._declare_when_free(answer, busy.name, declaration, caller)
            task = asyncio.get_running_loop().create_task(work)
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        except QueueManagerError as error:
            answer.fail(error)
        return answer

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
        manager = self._shard.manager
        is_new = declaration.name not in manager.queues
        owner = sys.intern(caller) if declaration.exclusive else None  # the core compares by identity
        queue = manager.queues.declare(_definition(declaration, owner), self._shard.clock.now_ms())
        if is_new and owner is not None:
            self._exclusive.setdefault(owner, {})[queue] = None
        return status_of(queue, is_new=is_new)

    def configure(self, declaration: QueueDeclaration) -> Answer[bool]:
        """See `QueueClient.configure`."""
        return Answer.of(lambda: self._configure(declaration))

    def _configure(self, declaration: QueueDeclaration) -> bool:
        manager = self._shard.manager
        definition = _definition(declaration, None)
        queue = manager.queues.get(declaration.name)
        if queue is None:
            manager.queues.declare(definition, self._shard.clock.now_ms())
            return False
        if queue.durable != declaration.durable or queue.policy.stream != declaration.policy.stream:
            kind = "classic" if declaration.durable else "ephemeral"
            wanted = "stream" if declaration.policy.stream else kind
            raise PreconditionFailed(f"queue {queue.name!r} exists, but not as {wanted}")
        if (queue.policy, queue.topics, queue.description) == (
            definition.policy,
            definition.topics,
            definition.description,
        ):
            return False
        manager.queues.redefine(queue, definition)
        return True

    def exists(self, name: str) -> Answer[bool]:
        """See `QueueClient.exists`."""
        return Answer.of(lambda: name in self._shard.manager.queues)

    def look(self, name: str, caller: str, *, is_use: bool = False) -> Answer[QueueStatus]:
        """See `QueueClient.look`."""
        return Answer.of(lambda: self._look(name, caller, is_use))

    def _look(self, name: str, caller: str, is_use: bool) -> QueueStatus:
        queue = find(self._shard, name, caller)
        if is_use:
            queue.use.note(self._shard.clock.now_ms())
        return status_of(queue)

    def purge(self, name: str, caller: str = OPERATOR) -> Answer[Dropped]:
        """See `QueueClient.purge`."""
        return Answer.of(lambda: self._purge(find(self._shard, name, caller)))

    def _purge(self, queue: Queue) -> Dropped:
        return Dropped(queue.purge(self._shard.clock.now_ms()), queue.durable)

    def pause(self, name: str, pause: Pause) -> Answer[Changed]:
        """See `QueueClient.pause`."""
        return Answer.of(lambda: self._set_pause(name, lambda paused: paused.joined(pause)))

    def resume(self, name: str, pause: Pause) -> Answer[Changed]:
        """See `QueueClient.resume`."""
        return Answer.of(lambda: self._set_pause(name, lambda paused: paused.without(pause)))

    def _set_pause(self, name: str, change: Callable[[Pause], Pause]) -> Changed:
        queue = find(self._shard, name)
        wanted = change(queue.pause)
        if wanted == queue.pause:
            return Changed(is_new=False, durable=queue.durable)
        queue.set_pause(wanted)
        return Changed(is_new=True, durable=queue.durable)

    def delete(
        self, name: str, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """See `QueueClient.delete`."""
        return Answer.of(lambda: self._delete(find(self._shard, name, caller), if_unused, if_empty))

    def _delete(self, queue: Queue, if_unused: bool, if_empty: bool) -> Dropped:
        now_ms = self._shard.clock.now_ms()
        count = self._shard.manager.queues.delete(queue, now_ms, if_unused=if_unused, if_empty=if_empty)
        if isinstance(queue.owner, str):
            self._exclusive.get(queue.owner, {}).pop(queue, None)
        return Dropped(count, queue.durable)

    def forget_caller(self, caller: str) -> None:
        """See `QueueClient.forget_caller`."""
        for queue in self._exclusive.pop(caller, ()):
            if not queue.deleted:
                self._shard.manager.queues.delete(queue, self._shard.clock.now_ms())

    async def view(self, name: str) -> QueueView:
        """See `QueueClient.view`."""
        await self._shard.sweeper.retention_known()
        return counting.queue_view(find(self._shard, name))

    async def views(
        self, names: Sequence[str] | None = None, *, vhost: str = DEFAULT_VHOST
    ) -> list[QueueView]:
        """See `QueueClient.views`."""
        await self._shard.sweeper.retention_known()
        views: list[QueueView] = []
        queues = self._shard.manager.queues
        wanted = await self.names(vhost=vhost) if names is None else names
        for number, name in enumerate(wanted, start=1):
            queue = queues.get(name)
            if queue is not None:
                views.append(counting.queue_view(queue))
            if number % limits.LISTED_QUEUES_PER_STEP == 0:
                await asyncio.sleep(0)
        return views

    async def names(self, *, vhost: str = DEFAULT_VHOST) -> list[str]:
        """See `QueueClient.names`."""
        names = (queue.name for queue in self._shard.manager.queues)
        return sorted(name for name in names if vhost_of(name) == vhost)

    def bound(self, vhost: str, queues_max: int) -> None:
        """See `QueueClient.bound`."""
        self._shard.manager.queues.bound(vhost, queues_max)


def _arguments(declaration: QueueDeclaration) -> Mapping[str, object] | None:
    if not declaration.reported:
        return declaration.arguments
    return {**(declaration.arguments or {}), REPORTED: dict(declaration.reported)}


def _definition(declaration: QueueDeclaration, owner: str | None) -> QueueDefinition:
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
    )
