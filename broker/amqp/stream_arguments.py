"""Arguments that only streams take: `queue.declare` with `x-queue-type: stream`, `basic.consume` of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.amqp.retry_arguments import LEASE_NAMES, lease_fields
from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import NAME as START_ARGUMENT
from queue_manager.log.stream_start import StreamStart, parse_interval_ms, parse_start
from queue_manager.policy import QueuePolicy

AUTO_COMMIT_ARGUMENT: Final = "x-auto-commit"
CONSUMER_ARGUMENTS: Final = (START_ARGUMENT, AUTO_COMMIT_ARGUMENT)
SEGMENT_ARGUMENT: Final = "x-stream-max-segment-size-bytes"
_NUMBERS: Final = {
    "x-max-length-bytes": ("retention_bytes", limits.SIZE_BYTES_MAX),
    "x-max-length": ("retention_count", limits.QUEUE_DEPTH_MESSAGES_MAX),
}


def is_stream(arguments: Mapping[str, Any]) -> bool:
    """Whether a declaration asks for a stream."""
    return arguments.get("x-queue-type") == "stream"


def stream_policy(arguments: Mapping[str, Any], default: QueuePolicy, *, plain: bool) -> QueuePolicy:
    """The policy of a stream; `plain`: it is declared durable, not exclusive, not auto-delete.

    Raises InvalidArgument naming what is wrong or means nothing for a stream.
    """
    if not plain:
        raise InvalidArgument("a stream must be durable, and can be neither exclusive nor auto-delete")
    fields = default.fields()
    fields.update(stream=True, expires_ms=0, attempts_max=0)
    for name, value in arguments.items():
        if name == "x-queue-type" or name in LEASE_NAMES:
            continue
        if name in _NUMBERS:
            field, high = _NUMBERS[name]
            fields[field] = _integer(name, value, high)
        elif name == "x-single-active-consumer":
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} must be true or false, not {value!r}")
            fields["single_active"] = value
        elif name == "x-max-age":
            fields["retention_age_ms"] = _age_ms(value)
        elif name == SEGMENT_ARGUMENT:
            _integer(name, value, limits.SIZE_BYTES_MAX)  # what goes at a time is much smaller here
        else:
            raise InvalidArgument(f"queue argument {name!r} means nothing for a stream")
    fields.update(lease_fields(arguments))
    return QueuePolicy(**fields)


def stream_start(value: object, now_ms: int) -> StreamStart | None:
    """Where a consumer wants to begin; None: it did not say."""
    return None if value is None else parse_start(value, now_ms)


def auto_commit(value: object) -> bool:
    """Whether a consumer's group commits by itself."""
    if value is None:
        return True
    if not isinstance(value, bool):
        raise InvalidArgument(f"{AUTO_COMMIT_ARGUMENT} must be true or false, not {value!r}")
    return value


def _age_ms(value: object) -> int:
    """`7D` and the like, or an integer of seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer("x-max-age", value, limits.DURATION_MS_MAX // 1_000) * 1_000
    if not isinstance(value, str):
        raise InvalidArgument(f"x-max-age is an interval such as 7D or seconds, not {value!r}")
    try:
        age_ms = parse_interval_ms(value)
    except ValueError as error:
        raise InvalidArgument(f"x-max-age: {error}") from None
    if not age_ms:
        raise InvalidArgument("x-max-age must be longer than 0")
    return age_ms


def _integer(name: str, value: object, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= high:
        raise InvalidArgument(f"{name} must be an integer from 1 to {high}, not {value!r}")
    return value
