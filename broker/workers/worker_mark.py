"""The number of a worker in what its process logs."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any


class WorkerMark:
    """A processor of structlog that adds `worker`, once a process is one: `number` is given to it then.

    It is there before, since loggers keep the processors that they had at their first line.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Give the line on."""
        if self.number is not None:
            event["worker"] = self.number
        return event
