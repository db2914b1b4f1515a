"""What queues are declared with, and the policies that hold for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.whole.settings import Settings

OPERATORS_KEYS = ("max-length", "message-ttl", "delivery-limit", "overflow")


@dataclass
class Policies:
    """The policies of a virtual host, each named after the queue it is for, or `all`: those that begin with
    a `q`."""

    plain: dict[str, dict[str, Any]] = field(default_factory=dict)
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def holds_any(self) -> bool:
        return bool(self.plain or self.operators)

    def holding(self, q: str) -> list[dict[str, Any]]:
        """The operators' policy that holds for a queue, then the other one: that of its name, alone."""
        of_all = [self.operators, self.plain]
        return [known[q] if q in known else known.get("all", {}) for known in of_all]

    def effective(self, q: str, declared: Settings) -> Settings:
        """What holds for a queue that was declared so."""
        if declared.stream or not self.holds_any or q[0] != "q":
            return declared
        holding = self.holding(q)
        changed: dict[str, Any] = {
            "max_length": _least([declared.max_length, *(one.get("max-length") for one in holding)]),
            "ttl_ms": _least([declared.ttl_ms, *(one.get("message-ttl") for one in holding)]),
            "attempts_max": _attempts(declared.attempts_max, holding),
        }
        if declared.max_length is None:
            overflow = next((one["overflow"] for one in holding if "overflow" in one), None)
            changed["overflow"] = overflow or declared.overflow
        if declared.dead_exchange is None:
            changed["dead_exchange"] = holding[1].get("dead-letter-exchange")
        if declared.dead_key is None:
            changed["dead_key"] = holding[1].get("dead-letter-routing-key")
        return replace(declared, **changed)


def _least(bounds: Iterable[int | None]) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _attempts(declared: int, holding: list[dict[str, Any]]) -> int:
    limits = [one["delivery-limit"] + 1 for one in holding if "delivery-limit" in one]
    return min([*limits, *([declared] if declared else [])], default=0)
