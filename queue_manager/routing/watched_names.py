"""Names of queues or exchanges that somebody publishes to, and is told when what bears them is deleted."""

from __future__ import annotations

from collections.abc import Callable


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
