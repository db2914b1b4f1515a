"""Arguments of queue.declare about deliveries: how long they are lent, and how long what came back waits."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from config import limits
from config.queue_settings import RetrySettings
from queue_manager.errors import InvalidArgument

CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
_LEASES: Final = {"x-visibility-timeout": "visibility_timeout_ms", CONSUMER_TIMEOUT: "consumer_timeout_ms"}
_INITIAL: Final = "x-retry-initial-backoff"
_MAX: Final = "x-retry-max-backoff"
_MULTIPLIER: Final = "x-retry-multiplier"
_JITTER: Final = "x-retry-jitter"
RETRY_NAMES: Final = (_INITIAL, _MAX, _MULTIPLIER, _JITTER)
LEASE_NAMES: Final = tuple(_LEASES)
_DEFAULTS: Final = RetrySettings()


def lease_fields(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return fields of `QueuePolicy` for the leases asked for, in ms; raises InvalidArgument."""
    return {
        field: integer(name, arguments[name], 1, limits.DURATION_MS_MAX)
        for name, field in _LEASES.items()
        if name in arguments
    }


def retry_fields(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Return fields of `QueuePolicy` for the back-off asked for; the rest is as the configuration has it.

    Raises InvalidArgument naming what is wrong.
    """
    given = [name for name in RETRY_NAMES if name in arguments]
    if not given:
        return {}
    initial_ms = integer(_INITIAL, arguments.get(_INITIAL, 0), 0, limits.DURATION_MS_MAX)
    max_ms = integer(_MAX, arguments.get(_MAX, _DEFAULTS.max_backoff_ms), 1, limits.DURATION_MS_MAX)
    multiplier = _number(
        _MULTIPLIER, arguments.get(_MULTIPLIER, _DEFAULTS.multiplier), 1, limits.RETRY_MULTIPLIER_MAX
    )
    jitter = _number(_JITTER, arguments.get(_JITTER, _DEFAULTS.jitter), 0, 1)
    if not initial_ms:
        if given != [_INITIAL]:
            raise InvalidArgument(f"{given[-1]} needs {_INITIAL}")
        return {}
    if initial_ms > max_ms:
        raise InvalidArgument(f"{_INITIAL} {initial_ms} is longer than {_MAX} {max_ms}")
    return {
        "retry_initial_ms": initial_ms,
        "retry_max_ms": max_ms,
        "retry_multiplier": multiplier,
        "retry_jitter": jitter,
    }


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return the value of an argument if it is an integer from `low` to `high`; raises InvalidArgument."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return value


def _number(name: str, value: Any, low: int, high: int) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be a number from {low} to {high}, not {value!r}")
    return float(value)
