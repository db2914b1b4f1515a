"""Arguments that only consumers of a stream have."""

from __future__ import annotations

from typing import Final

from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import NAME as START_ARGUMENT
from queue_manager.log.stream_start import StreamStart, parse_start

AUTO_COMMIT_ARGUMENT: Final = "x-auto-commit"
CONSUMER_ARGUMENTS: Final = (START_ARGUMENT, AUTO_COMMIT_ARGUMENT)


def stream_start(value: object, now_ms: int) -> StreamStart | None:
    """Return where a consumer wants to begin; None: it did not say."""
    return None if value is None else parse_start(value, now_ms)


def auto_commit(value: object) -> bool:
    """Return whether a consumer's group commits by itself."""
    if value is None:
        return True
    if not isinstance(value, bool):
        raise InvalidArgument(f"{AUTO_COMMIT_ARGUMENT} must be true or false, not {value!r}")
    return value
