"""The declared arguments of a queue, as they hold now: administration may have changed what they asked for.

A redeclaration is still compared with what was declared, so no client is sent away by such a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queue_manager.policy import NOTHING, REJECT, QueuePolicy
from queue_manager.spec_records import declared_arguments

_Holds = Callable[[Any, QueuePolicy], bool]
_Now = Callable[[QueuePolicy], object]


def _number(field: str, least: int = 0) -> tuple[_Holds, _Now]:
    """Return a number of which 0 stands for none."""
    return (
        lambda declared, policy: bool(max(least, declared) == getattr(policy, field)),
        lambda policy: getattr(policy, field) or None,
    )


def _same(now: _Now) -> tuple[_Holds, _Now]:
    """Return what is told as it is declared."""
    return lambda declared, policy: bool(declared == now(policy)), now


def _bound(field: str, field_of_stream: str) -> tuple[_Holds, _Now]:
    def now(policy: QueuePolicy) -> object:
        value = getattr(policy, field_of_stream if policy.stream else field)
        return 0 if value == NOTHING else value or None

    return _same(now)


def _expires(policy: QueuePolicy) -> object:
    return policy.unused_max_ms or policy.expires_ms or None


def _is_bounded(policy: QueuePolicy) -> bool:
    return policy.depth_max != 0 or policy.bytes_max != 0


def _overflow(policy: QueuePolicy) -> object:
    return "reject-publish" if policy.overflow == REJECT else policy.overflow


def _has_dead_letters(policy: QueuePolicy) -> bool:
    return bool(policy.dead_letter or policy.dead_letter_exchange or policy.dead_letter_by_key)


def _dead_letter_exchange(policy: QueuePolicy) -> object:
    return policy.dead_letter_exchange if _has_dead_letters(policy) else None


def _attempts(declared: Any) -> int:
    return 0 if declared < 0 else int(declared) + 1


_ARGUMENTS: Final[Mapping[str, tuple[_Holds, _Now]]] = {
    "x-message-ttl": _number("message_ttl_ms", 1),
    "x-expires": _same(_expires),
    "x-max-length": _bound("depth_max", "retention_count"),
    "x-max-length-bytes": _bound("bytes_max", "retention_bytes"),
    "x-overflow": (
        lambda declared, policy: not _is_bounded(policy) or declared == _overflow(policy),
        _overflow,
    ),
    "x-dead-letter-exchange": _same(_dead_letter_exchange),
    "x-dead-letter-routing-key": (
        lambda declared, policy: declared == policy.dead_letter,
        lambda policy: policy.dead_letter or None,
    ),
    "x-delivery-limit": (
        lambda declared, policy: _attempts(declared) == policy.attempts_max,
        lambda policy: policy.attempts_max - 1 if policy.attempts_max else None,
    ),
    "x-single-active-consumer": _same(lambda policy: policy.single_active),
    "x-message-groups": _same(lambda policy: policy.message_groups or "off"),
    "x-last-value": _same(lambda policy: policy.last_value or None),
    "x-group-expires": _number("group_expires_ms"),
    "x-deduplication-window": _number("deduplication_window_ms"),
    "x-visibility-timeout": _number("visibility_timeout_ms"),
    "x-consumer-timeout": _number("consumer_timeout_ms"),
}
"""For each: whether what was declared holds, and what holds now (None: nothing, it is left out)."""


def told_arguments(arguments: Mapping[str, object] | None, policy: QueuePolicy) -> dict[str, object]:
    """Return what was declared; where the policy says something else now, that instead."""
    told: dict[str, object] = {}
    for name, declared in declared_arguments(arguments).items():
        known = _ARGUMENTS.get(name)
        if known is None or known[0](declared, policy):
            told[name] = declared
        elif (now := known[1](policy)) is not None:
            told[name] = now
    return told
