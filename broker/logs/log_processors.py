"""Processors of structlog: which lines are written, and how many of one event in a second."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from broker.clock import Clock
from config import limits
from config.settings import Settings

_NUMBERS: Final = logging.getLevelNamesMapping()


class LogLevel:
    """A processor of structlog that drops what is below the level."""

    def __init__(self, level: str) -> None:
        self._number = _NUMBERS[level.upper()]

    def follow(self, settings: Settings) -> None:
        """Take the level of settings that were read anew."""
        self._number = _NUMBERS[settings.log.level.upper()]

    def __call__(
        self, logger: object, method_name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Give the event on, or raise DropEvent."""
        number = _NUMBERS["ERROR"] if method_name == "exception" else _NUMBERS.get(method_name.upper(), 0)
        if number < self._number:
            raise structlog.DropEvent
        return event


class LogRepeats:
    """A processor of structlog. What was left out is told as `left_out` with the next line of that event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        self._counts: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Give the line back, or raise structlog.DropEvent."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._counts.clear()
        name = str(event.get("event"))
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > limits.LOG_LINES_PER_EVENT_S_MAX:
            if name in self._left_out or len(self._left_out) < limits.LOG_EVENTS_KEPT_MAX:
                self._left_out[name] = self._left_out.get(name, 0) + 1
            raise structlog.DropEvent
        left_out = self._left_out.pop(name, 0)
        if left_out:
            event["left_out"] = left_out
        return event
