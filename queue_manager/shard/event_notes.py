"""What happened that `amq.rabbitmq.event` tells: noted where it happens, taken out when the turn is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from config import limits

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
"""Of the virtual host `/`; it tells of all."""
BROKER_ITSELF: Final = "rmq-internal"
"""As RabbitMQ calls who acted where no user did."""


class Event(NamedTuple):
    """One event: the routing key, and headers under RabbitMQ's names."""

    key: str
    headers: dict[str, Any]


class Events:
    """The events that were noted and not told yet.

    `is_wanted`: something is bound to the exchange. It is asked first, so that events that nobody hears cost
    nothing.
    """

    __slots__ = ("_dropped_count", "_noted", "_waiting", "is_wanted")

    def __init__(self) -> None:
        self.is_wanted = False
        self._dropped_count = 0
        self._waiting: list[Event] = []
        self._noted: Callable[[], None] = lambda: None

    def on_noted(self, call: Callable[[], None]) -> None:
        """Have `call` called when the first event after a `take` is noted, or was noted already."""
        self._noted = call
        if self._waiting:
            call()

    def note(self, key: str, headers: dict[str, Any], user: str | None = None) -> None:
        """Note an event that `user` caused; None: the broker did."""
        if len(self._waiting) >= limits.EVENTS_WAITING_MAX:
            self._dropped_count += 1
            return
        headers["user_who_performed_action"] = BROKER_ITSELF if user is None else user
        self._waiting.append(Event(key, headers))
        if len(self._waiting) == 1:
            self._noted()

    def take(self) -> tuple[list[Event], int]:
        """Take out what was noted, in order, and how many there was no room for."""
        taken = self._waiting, self._dropped_count
        self._waiting, self._dropped_count = [], 0
        return taken
