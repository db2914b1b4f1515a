"""Properties of links that a client receives on: which consumer it wants to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from config import limits
from queue_manager.errors import InvalidArgument

GROUP: Final = "consumer-group"
PATTERN: Final = "pattern"
PRIORITY: Final = "consumer-priority"
RABBITMQ_PRIORITY: Final = "rabbitmq:priority"
EXCLUSIVE: Final = "exclusive"
TIMEOUT: Final = "consumer-timeout"
AUTO_COMMIT: Final = "auto-commit"
SINGLE_ACTIVE: Final = "single-active"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProperties:
    """The subscription that was asked for; `taken` are the properties that were read, as they came. Pattern
    "": all.
    """

    group: str = ""
    pattern: str = ""
    priority: int = 0
    exclusive: bool = False
    lease_ms: int = 0  # 0: as the queue has it
    auto_commit: bool = True
    single_active: bool = False
    taken: dict[Any, Any] = field(default_factory=dict)


def link_properties(given: dict[Any, Any] | None) -> LinkProperties:
    """Read the properties of a link; raises InvalidArgument for a value that a known one cannot have.

    What is not known here is not among the `taken`, by which the client sees so.
    """
    said = {str(name): value for name, value in (given or {}).items()}
    priority = _number(PRIORITY, said.get(PRIORITY, 0), -(2**31))
    rabbitmq_priority = said.get(RABBITMQ_PRIORITY)
    if isinstance(rabbitmq_priority, int) and PRIORITY not in said:
        priority = int(rabbitmq_priority)
    return LinkProperties(
        group=_text(GROUP, said.get(GROUP, "")),
        pattern=_text(PATTERN, said.get(PATTERN, "")),
        priority=max(-limits.CONSUMER_PRIORITY_MAX, min(priority, limits.CONSUMER_PRIORITY_MAX)),
        exclusive=_flag(EXCLUSIVE, said.get(EXCLUSIVE, False)),
        lease_ms=_number(TIMEOUT, said[TIMEOUT], 1) if TIMEOUT in said else 0,
        auto_commit=_flag(AUTO_COMMIT, said.get(AUTO_COMMIT, True)),
        single_active=_flag(SINGLE_ACTIVE, said.get(SINGLE_ACTIVE, False)),
        taken={name: value for name, value in (given or {}).items() if str(name) in _KNOWN},
    )


_KNOWN: Final = frozenset(
    (GROUP, PATTERN, PRIORITY, RABBITMQ_PRIORITY, EXCLUSIVE, TIMEOUT, AUTO_COMMIT, SINGLE_ACTIVE)
)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"link property {name} must be a string")
    return str(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"link property {name} must be true or false")
    return value


def _number(name: str, value: object, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= limits.DURATION_MS_MAX:
        raise InvalidArgument(f"link property {name} must be a whole number from {low}")
    return int(value)
