"""Arguments of queue.declare about deliveries: how long they are lent, and how long what came back waits."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from config import limits
from config.queue_settings import RetrySettings
from queue_manager.errors import InvalidArgument
from queue_manager.policy import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED

CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
_LEASES: Final = {"x-visibility-timeout": "visibility_timeout_ms", CONSUMER_TIMEOUT: "consumer_timeout_ms"}
_INITIAL: Final = "x-retry-initial-backoff"
_MAX: Final = "x-retry-max-backoff"
_MULTIPLIER: Final = "x-retry-multiplier"
_JITTER: Final = "x-retry-jitter"
RETRY_NAMES: Final = (_INITIAL, _MAX, _MULTIPLIER, _JITTER)
_DELAYED_TYPE: Final = "x-delayed-retry-type"
_DELAYED_MIN: Final = "x-delayed-retry-min"
_DELAYED_MAX: Final = "x-delayed-retry-max"
DELAYED_NAMES: Final = (_DELAYED_TYPE, _DELAYED_MIN, _DELAYED_MAX)
_DISABLED: Final = "disabled"
_DELAYED_KINDS: Final = (RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, _DISABLED)
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


def delayed_retry_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of `QueuePolicy` for RabbitMQ's delayed retries; raises InvalidArgument.

    Without a type or a least wait nothing waits, as there.
    """
    given = [name for name in DELAYED_NAMES if name in arguments]
    if not given:
        return {}
    if any(name in arguments for name in RETRY_NAMES):
        raise InvalidArgument(f"{given[0]} and {RETRY_NAMES[0]} are two ways to say the same")
    kind = arguments.get(_DELAYED_TYPE, _DISABLED)
    if kind not in _DELAYED_KINDS:
        told = ", ".join(_DELAYED_KINDS)
        raise InvalidArgument(f"{kind!r} is not a valid delayed retry type. Must be one of: {told}")
    min_ms = integer(_DELAYED_MIN, arguments.get(_DELAYED_MIN, 0), 0, limits.DURATION_MS_MAX)
    max_ms = integer(
        _DELAYED_MAX, arguments.get(_DELAYED_MAX, limits.DURATION_MS_MAX), 0, limits.DURATION_MS_MAX
    )
    if min_ms > max_ms:
        raise InvalidArgument(f"{_DELAYED_MIN} {min_ms} is longer than {_DELAYED_MAX} {max_ms}")
    if kind == _DISABLED or not min_ms:
        return {}
    return {"retry_kind": kind, "retry_initial_ms": min_ms, "retry_max_ms": max_ms}


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return the value of an argument if it is an integer from `low` to `high`; raises InvalidArgument."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return value


def _number(name: str, value: Any, low: int, high: int) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be a number from {low} to {high}, not {value!r}")
    return float(value)
