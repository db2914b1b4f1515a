"""Names of queues and exchanges whose deletion is told, and those of deleted queues with records left."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.errors import QueueBusy
from queue_manager.log.levels import level_name
from queue_manager.log.removals import QueueRemoval
from queue_manager.shard.context import Context
from queue_manager.spec_records import QueueDefinition
from storage.records import removal


class WatchedNames:
    """What is called when the bearer of a name goes, in order of their `watch`."""

    __slots__ = ("_watching",)

    def __init__(self) -> None:
        self._watching: dict[str, dict[Callable[[], None], None]] = {}

    def __len__(self) -> int:
        return len(self._watching)

    def watch(self, name: str, call: Callable[[], None]) -> None:
        """Have `call` called once, when the queue or exchange of this name is deleted."""
        self._watching.setdefault(name, {})[call] = None

    def unwatch(self, name: str, call: Callable[[], None]) -> None:
        """Undo a `watch`; that it was called already is no error."""
        watching = self._watching.get(name)
        if watching is not None:
            watching.pop(call, None)
            if not watching:
                del self._watching[name]

    def deleted(self, name: str) -> None:
        """Tell that the bearer of a name is gone."""
        for call in self._watching.pop(name, ()):
            call()


class Removing:
    """The names of their logs, with who waits for these."""

    __slots__ = ("_context", "_waiting")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, name: str) -> None:
        """Note that the queue of this log was deleted."""
        self._waiting[name] = []

    def restore(self, pending: QueueRemoval) -> None:
        """Go on with a deletion that was under way when the process before ended."""
        self.begin(pending.name)
        self._context.removals.append(pending)

    def check_free(self, definition: QueueDefinition) -> None:
        """Raise QueueBusy while something of a queue of this name is still being removed."""
        if definition.durable:
            for priority in range(definition.policy.priority_max + 1):
                name = level_name(definition.name, priority)
                if name in self._waiting:
                    raise QueueBusy(name)

    def when_removed(self, name: str, call: Callable[[], None]) -> bool:
        """Have `call` called when the name may be used again; False: it may be already."""
        waiting = self._waiting.get(name)
        if waiting is None:
            return False
        waiting.append(call)
        return True

    def end(self, done: QueueRemoval) -> None:
        """Note that nothing of a deleted queue is left: its name may be used again."""
        self._context.commit.delete(removal.key(done.log_id))
        for call in self._waiting.pop(done.name, []):
            call()
