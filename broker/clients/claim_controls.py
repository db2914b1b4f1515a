"""The effect of `$nack` and `$extend` on a claim, whatever protocol they come by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.engine.client.message_flow import SettlingClient
from broker.engine.traffic import Claim
from config import limits, units
from queue_manager.errors import InvalidArgument

DELAY: Final = "delay"
LEASE: Final = "lease"


def check_delay(values: Mapping[str, object], verb: str, *, stream: bool) -> None:
    """Raise InvalidArgument if `delay` means nothing for this verb or kind of queue."""
    if DELAY not in values:
        return
    if verb != "$nack":
        raise InvalidArgument(f"{DELAY} is for $nack, not for {verb}")
    if stream:
        raise InvalidArgument("a stream delays nothing: $nack has no delay")


def hand_back(settling: SettlingClient, claim: Claim, values: Mapping[str, object], now_ms: int) -> None:
    """Act on `$nack`: back to its place, after `delay` or the queue's back-off; raises InvalidArgument."""
    settling.requeue([claim], now_ms, delay_ms=_delay_ms(values.get(DELAY)))


def extend(
    settling: SettlingClient, claim: Claim, values: Mapping[str, object], default_ms: int, now_ms: int
) -> None:
    """Act on `$extend`: a new lease from now, of `lease` ms or `default_ms`; raises InvalidArgument."""
    settling.extend(claim, _lease_ms(values.get(LEASE), default_ms), now_ms)


def _delay_ms(value: object) -> int | None:
    if value is None:
        return None
    delay_ms = _whole(value)
    if delay_ms is None:
        if not isinstance(value, str):
            raise InvalidArgument(f"{DELAY} must be a whole number of milliseconds from 0, not {value!r}")
        try:
            return units.parse_duration_ms(value)
        except ValueError as error:
            raise InvalidArgument(f"{DELAY}: {error}") from None
    if delay_ms > limits.DURATION_MS_MAX:
        raise InvalidArgument(f"{DELAY} is at most {limits.DURATION_MS_MAX} ms, not {value}")
    return delay_ms


def _lease_ms(value: object, default_ms: int) -> int:
    if value is None:
        return default_ms
    lease_ms = _whole(value)
    if lease_ms is None or not 1 <= lease_ms <= limits.EXTEND_MS_MAX:
        raise InvalidArgument(f"{LEASE} must be 1 to {limits.EXTEND_MS_MAX} milliseconds, not {value!r}")
    return lease_ms


def _whole(value: object) -> int | None:
    """Return a whole number from 0, also given as text; None if it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None
