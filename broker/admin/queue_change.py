"""Settings of a queue, some of them changed: keys that are not named stay, `null` puts one back.

That is a JSON merge patch (RFC 7396) of an entry of `queues:`. What a queue was given over AMQP and no key
can say (a dead-letter exchange, a bound of 0) stays, too, until the key for it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from config.settings_loader import QueueCheck, load_queue
from config.units import format_duration_ms, format_size_bytes
from queue_manager.address import address_of
from queue_manager.api import QueuePolicy, QueueView
from queue_manager.policy import FOREVER

Entry = dict[str, Any]
"""An entry of `queues:` as JSON has it."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of `queues:`: the fields of a policy that it stands for, and what it says of one."""

    fields: tuple[str, ...]
    of: Callable[[QueuePolicy], Any]


def _duration(field: str) -> _Key:
    return _Key((field,), lambda policy: format_duration_ms(getattr(policy, field)))


def _size(field: str) -> _Key:
    return _Key((field,), lambda policy: format_size_bytes(max(0, getattr(policy, field))))


def _count(field: str) -> _Key:
    return _Key((field,), lambda policy: max(0, getattr(policy, field)))


def _word(field: str, default: str) -> _Key:
    return _Key((field,), lambda policy: getattr(policy, field) or default)


_RETRY_FIELDS: Final = ("retry_initial_ms", "retry_max_ms", "retry_multiplier", "retry_jitter")
_DLQ_FIELDS: Final = ("dead_letter", "dead_letter_exchange", "dead_letter_by_key")
_LEASE: Final = {"visibility_timeout": _duration("visibility_timeout_ms")}
_KEPT: Final = {
    "retention.max_age": _duration("retention_age_ms"),
    "retention.max_length_bytes": _size("retention_bytes"),
    "retention.max_length_messages": _count("retention_count"),
    "limits.max_message_size": _size("message_bytes_max"),
    "single_active_consumer": _Key(("single_active",), lambda policy: policy.single_active),
    "deduplication_window": _duration("deduplication_window_ms"),
    "group_expires": _duration("group_expires_ms"),
}
_CLASSIC: Final = {
    **_LEASE,
    **_KEPT,
    "done_retention": _Key(
        ("done_retention_ms",),
        lambda p: "infinite" if p.done_retention_ms == FOREVER else format_duration_ms(p.done_retention_ms),
    ),
    "bucket_size": _count("bucket_size"),
    "retry.max_retries": _Key(("attempts_max",), lambda policy: max(0, policy.attempts_max - 1)),
    "retry.initial_backoff": _Key(_RETRY_FIELDS, lambda p: format_duration_ms(p.retry_initial_ms)),
    "retry.max_backoff": _Key(_RETRY_FIELDS, lambda p: format_duration_ms(p.retry_max_ms)),
    "retry.multiplier": _Key(_RETRY_FIELDS, lambda policy: policy.retry_multiplier),
    "retry.jitter": _Key(_RETRY_FIELDS, lambda policy: policy.retry_jitter),
    "dlq": _Key(_DLQ_FIELDS, lambda policy: _told_dead_letters(policy)),
    "limits.max_depth": _count("depth_max"),
    "limits.max_bytes": _size("bytes_max"),
    "limits.message_ttl": _duration("message_ttl_ms"),
    "max_priority": _count("priority_max"),
    "message_groups": _word("message_groups", "off"),
    "last_value": _word("last_value", ""),
    "overflow": _word("overflow", "reject-publish"),
    "unmatched": _word("unmatched", "keep"),
}
_STREAM: Final = {**_LEASE, **_KEPT, "primary_group": _word("primary_group", "")}
_BACKOFF: Final = tuple(key for key, value in _CLASSIC.items() if value.fields is _RETRY_FIELDS)


def _told_dead_letters(policy: QueuePolicy) -> str | None:
    if policy.dead_letter_exchange or policy.dead_letter_by_key:
        return f"exchange {policy.dead_letter_exchange!r}"
    return policy.dead_letter or None


def told(view: QueueView) -> Entry:
    """Return all settings of a queue by their keys, sections and keys joined by dots."""
    policy = view.policy
    keys = _STREAM if policy.stream else _CLASSIC
    settings = {key: value.of(policy) for key, value in keys.items()}
    return {"topics": list(view.topics), "description": view.description, **settings}


class QueueChange:
    """The change of a queue by a request: `settings` are all of it, with what is there already."""

    __slots__ = ("_patch", "_view", "settings")

    def __init__(self, name: str, patch: Entry, view: QueueView | None, check: QueueCheck) -> None:
        """`view`: the queue as it is, None if it is not there. Raises ConfigError."""
        self._patch = patch
        self._view = view
        is_other_type = view is not None and patch.get("type") not in (None, view.type)
        entry = {} if view is None or is_other_type else _entry_of(view)  # which is refused then
        self.settings = load_queue({**_merged(entry, patch), "name": name}, queue_check=check)

    def touches(self, path: str) -> bool:
        """Return whether the request names a key, something in it, or the section that it is in."""
        place: Any = self._patch
        for part in path.split("."):
            if not isinstance(place, Mapping):
                return True
            if part not in place:
                return False
            place = place[part]
        return True

    def policy(self, wanted: QueuePolicy) -> QueuePolicy:
        """Return `wanted`, which the settings ask for, with what else the queue has that was not named."""
        if self._view is None:
            return wanted
        fields = self._view.declared.fields()
        for path, key in (_STREAM if wanted.stream else _CLASSIC).items():
            if self.touches(path):
                fields.update({field: getattr(wanted, field) for field in key.fields})
        return QueuePolicy(**{**fields, "stream": wanted.stream})


def _entry_of(view: QueueView) -> Entry:
    """Return a queue as an entry of `queues:` says it, as far as one can."""
    policy = view.declared
    entry: Entry = {"type": view.type}
    if view.description:
        entry["description"] = view.description
    if view.topics != (f"{address_of(view.name)}/#",):
        entry["topics"] = list(view.topics)
    for path, key in (_STREAM if policy.stream else _CLASSIC).items():
        if path in _BACKOFF and not policy.retry_initial_ms:
            continue
        value = key.of(policy)
        if path == "dlq":
            if value is None:
                continue
            value = {"topic": _dead_letter_queue(view)}
        place = entry
        *sections, last = path.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return entry


def _dead_letter_queue(view: QueueView) -> str:
    """Return where dead letters go; where that is no other queue, a name that stands for it."""
    policy = view.declared
    is_queue = not (policy.dead_letter_exchange or policy.dead_letter_by_key)
    return policy.dead_letter if is_queue and policy.dead_letter != view.name else "-"


def _merged(entry: Entry, patch: Mapping[str, Any]) -> Entry:
    merged = dict(entry)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            known = merged.get(key)
            merged[key] = _merged(known if isinstance(known, dict) else {}, value)
        else:
            merged[key] = value
    return merged
