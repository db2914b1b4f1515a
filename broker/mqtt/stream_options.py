"""User properties of SUBSCRIBE that only streams take: `x-stream-offset`, `auto-commit`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.properties.single import aliased_value
from queue_manager.consumer import Consumer
from queue_manager.errors import InvalidArgument
from queue_manager.manager import QueueManager
from queue_manager.queue import Queue
from queue_manager.streams.start import NAME as START_PROPERTY
from queue_manager.streams.start import StreamStart, parse_start
from queue_manager.streams.stream import Stream

AUTO_COMMIT_PROPERTIES: Final = ("auto-commit", "x-auto-commit")


class StreamOptions:
    """What a subscription asks of a stream; `given` are the names of the properties that said so."""

    __slots__ = ("auto_commit", "given", "start")

    def __init__(self, start: StreamStart | None, auto_commit: bool, given: str) -> None:
        self.start = start
        self.auto_commit = auto_commit
        self.given = given


def stream_options(options: dict[str, str], now_ms: int) -> StreamOptions | None:
    """What the user properties say; None: nothing about streams. Raises InvalidArgument."""
    given = [name for name in (START_PROPERTY, *AUTO_COMMIT_PROPERTIES) if name in options]
    if not given:
        return None
    auto_commit = "true"
    name, text = aliased_value(options, AUTO_COMMIT_PROPERTIES)
    if name:
        auto_commit = text
        if auto_commit not in ("true", "false"):
            raise InvalidArgument(f"user property {name} is 'true' or 'false', not {auto_commit!r}")
    start = parse_start(options[START_PROPERTY], now_ms) if START_PROPERTY in options else None
    return StreamOptions(start, auto_commit == "true", f"user property {', '.join(given)}")


def subscriber(manager: QueueManager, queue: Queue, wanted: StreamOptions | None) -> Callable[..., Consumer]:
    """The way to subscribe to this queue."""
    if not isinstance(queue, Stream):
        return manager.subscribe
    wanted = wanted or StreamOptions(None, True, "")
    return partial(manager.subscribe_stream, start=wanted.start, auto_commit=wanted.auto_commit)
