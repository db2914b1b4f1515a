"""Arguments of queue.declare and basic.consume: what they mean; the rest is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.policy import QueuePolicy

GROUP_ARGUMENT: Final = "x-consumer-group"
PRIORITY_ARGUMENT: Final = "x-priority"

_LATER: Final = "is not supported by this version"


def queue_type(arguments: Mapping[str, Any]) -> None:
    """Check `x-queue-type`: classic and quorum both mean a durable work queue."""
    value = arguments.get("x-queue-type", "classic")
    if value not in ("classic", "quorum"):
        raise InvalidArgument(f"x-queue-type {value!r} {_LATER}; use 'classic' or 'quorum'")


def queue_policy(arguments: Mapping[str, Any], default: QueuePolicy, *, durable: bool) -> QueuePolicy:
    """The policy a declaration asks for; raises InvalidArgument naming what is wrong or unsupported."""
    queue_type(arguments)
    fields = default.fields()
    if not durable:
        fields["expires_ms"] = 0  # lives until its owner, its last consumer or the broker goes
    for name, value in arguments.items():
        if name == "x-queue-type":
            continue
        if name == "x-delivery-limit":
            fields["attempts_max"] = _integer(name, value, 0, limits.ATTEMPTS_MAX - 1) + 1
        elif name == "x-max-length":
            if arguments.get("x-overflow") != "reject-publish":
                raise InvalidArgument("x-max-length needs x-overflow='reject-publish': drop-head " + _LATER)
            fields["depth_max"] = _integer(name, value, 1, limits.QUEUE_DEPTH_MESSAGES_MAX)
        elif name == "x-overflow":
            if value != "reject-publish":
                raise InvalidArgument(f"x-overflow {value!r} {_LATER}; use 'reject-publish'")
        elif name == "x-single-active-consumer":
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} must be true or false, not {value!r}")
            fields["single_active"] = value
        elif name == "x-expires":
            if durable:
                raise InvalidArgument(f"x-expires on a durable queue {_LATER}")
            fields["expires_ms"] = _integer(name, value, 1, limits.DURATION_MS_MAX)
        else:
            raise InvalidArgument(f"queue argument {name!r} {_LATER}")
    return QueuePolicy(**fields)


def equivalence(arguments: Mapping[str, Any]) -> dict[str, object]:
    """The arguments a redeclaration has to repeat."""
    return {name: value for name, value in arguments.items() if name != "x-queue-type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerArguments:
    """What the arguments of a basic.consume ask for; group "" is the default group."""

    group: str = ""
    priority: int = 0


def consumer_arguments(arguments: Mapping[str, Any]) -> ConsumerArguments:
    """Read the arguments of a basic.consume; refuses those that mean nothing here."""
    for name in arguments:
        if name not in (GROUP_ARGUMENT, PRIORITY_ARGUMENT):
            raise InvalidArgument(f"consumer argument {name!r} {_LATER}")
    group = arguments.get(GROUP_ARGUMENT, "")
    if not isinstance(group, str):
        raise InvalidArgument(f"{GROUP_ARGUMENT} must be a string")
    return ConsumerArguments(
        group=group,
        priority=_integer(
            PRIORITY_ARGUMENT,
            arguments.get(PRIORITY_ARGUMENT, 0),
            -limits.CONSUMER_PRIORITY_MAX,
            limits.CONSUMER_PRIORITY_MAX,
        ),
    )


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgument(f"{name} must be an integer from {low} to {high}, not {value!r}")
    return value
