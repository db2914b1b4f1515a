"""Which log lines are written; may change while the broker runs."""

from __future__ import annotations

import logging
from typing import Final

import structlog

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
