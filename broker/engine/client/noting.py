"""Events of a shard in this process, of all its virtual hosts."""

from __future__ import annotations

from typing import Any

from broker.engine import traffic
from broker.engine.shard import Shard
from queue_manager.api import Event


class EventClient:
    """What happened is noted here, whatever it happened to, and taken out to be published."""

    def __init__(self, shard: Shard) -> None:
        self._events = shard.manager.context.events
        self._exchanges = shard.manager.queues.exchanges
        self.on_noted = self._events.on_noted

    @property
    def is_wanted(self) -> bool:
        """Whether an event would be heard; to be asked before anything is done for one."""
        return self._events.is_wanted

    def note(self, key: str, headers: dict[str, Any], user: str | None = None) -> None:
        """Note an event with this routing key that a user caused; None: the broker did."""
        self._events.note(key, headers, user)

    def take(self) -> tuple[list[Event], int]:
        """Take out what was noted, in order, and how many there was no room for."""
        return self._events.take()

    def route(self, event: Event) -> traffic.Targets:
        """Return the queues that take an event."""
        return self._exchanges.event_route(event.key, event.headers)
