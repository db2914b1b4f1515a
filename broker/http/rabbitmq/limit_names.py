"""Quotas as RabbitMQ names limits: `max-connections` and so on; it has two or three of them, we have more."""

from __future__ import annotations

from typing import Final

from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking
from config.quota_settings import QUOTAS, QuotaSettings, quota_field

_FIELDS: Final = {f"max-{name.replace('_', '-')}": quota_field(name) for name in QUOTAS}


def limits_of(settings: QuotaSettings) -> dict[str, int]:
    """Return the limits that are set, by their names in RabbitMQ's API."""
    return {limit: most for limit, field in _FIELDS.items() if (most := getattr(settings, field))}


def limit_field(limit: str) -> str:
    """Return the setting of a limit; raises Problem."""
    if limit not in _FIELDS:
        raise Problem(400, "bad_request", f"limits are {', '.join(_FIELDS)}")
    return _FIELDS[limit]


def bounds_of(said: object) -> dict[str, int]:
    """Return the settings of limits as definitions have them, 0: none; raises Problem."""
    limits = said or {}  # an empty list, too
    if not isinstance(limits, dict) or not all(isinstance(most, int) for most in limits.values()):
        raise Problem(400, "bad_request", "limits are whole numbers by their names")
    return {limit_field(name): max(0, most) for name, most in limits.items()}


async def limit_asked(asking: Asking) -> int:
    """Return what a request wants a limit to be, 0: none."""
    value = (await asking.body("value"))["value"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise Problem(400, "bad_request", "value: a whole number")
    if value == 0:
        raise Problem(400, "bad_request", "value: 1 or more, or -1 for no limit")
    return max(0, value)
