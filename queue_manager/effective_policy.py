"""Policies: what queues and exchanges are given by their names, beside what they were declared with.

Of the policies that match, the one of the highest priority holds, and of operators' policies one more. Both
join what was declared: of two bounds the smaller one holds, of other things what was declared, then the
operator's policy, then the other one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import re2

from queue_manager.address import local_name, vhost_of
from queue_manager.policy import DROP_HEAD, NOTHING, QueuePolicy
from queue_manager.shard.context import Context
from storage.errors import CorruptRecord
from storage.records import PolicyKey, StoredPolicy
from storage.records import policy as record

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
EXCHANGE: Final = "exchange"
SESSION: Final = "session"
_QUEUES: Final = frozenset((CLASSIC, QUORUM, STREAM))
APPLY_TO: Final[Mapping[str, frozenset[str]]] = {
    "all": _QUEUES | {EXCHANGE},
    "queues": _QUEUES,
    "classic_queues": frozenset((CLASSIC,)),
    "quorum_queues": frozenset((QUORUM,)),
    "streams": frozenset((STREAM,)),
    "exchanges": frozenset((EXCHANGE,)),
    "mqtt_sessions": frozenset((SESSION,)),
}

Settings = Mapping[str, Any]
"""What a policy sets, by fields of `QueuePolicy` and the names below."""

UNUSED: Final = "unused_ms"  # unused_max_ms of a durable queue, expires_ms of another
OVERFLOW: Final = "overflow"
ALTERNATE: Final = "alternate_exchange"  # of exchanges
_BOUNDS: Final = ("message_ttl_ms", "depth_max", "bytes_max", "attempts_max", UNUSED)
_BOUNDS_OF_STREAMS: Final = ("retention_age_ms", "bytes_max")
_DEAD_LETTERS: Final = ("dead_letter", "dead_letter_exchange", "dead_letter_by_key")
_RETRY: Final = ("retry_kind", "retry_initial_ms", "retry_max_ms")
_TIMEOUT: Final = ("consumer_timeout_ms",)
_GROUPS: Final = ("group_expires_ms",)
_LAST_VALUE: Final = "last_value"
_OF_SESSIONS: Final = ("queued_messages_max", "queued_bytes_max")
FIELDS: Final = frozenset(
    (
        *_BOUNDS,
        *_BOUNDS_OF_STREAMS,
        *_DEAD_LETTERS,
        *_RETRY,
        *_TIMEOUT,
        *_GROUPS,
        *_OF_SESSIONS,
        _LAST_VALUE,
        OVERFLOW,
        ALTERNATE,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy. `definition` is what was asked for, `settings` what that means."""

    vhost: str
    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, Any]
    settings: Settings
    is_operator: bool = False
    matcher: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise re.error for a pattern that is none."""
        object.__setattr__(self, "matcher", _matcher(self.pattern))

    def matches(self, name: str, kind: str) -> bool:
        """Return whether it is for a queue or exchange of this name in its virtual host."""
        return kind in APPLY_TO[self.apply_to] and self.matcher.search(name) is not None


def _matcher(pattern: str) -> Any:
    """Compile a pattern so that a match takes no time that grows with its choices, unless it looks around.

    Patterns such as `^(?!amq\\.)` are usual, and RE2 has no such assertions. Raises re.error.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return re.compile(pattern)


class Effective(NamedTuple):
    """The policies that hold for a queue or exchange."""

    policy: Policy | None
    operator_policy: Policy | None

    def value(self, name: str) -> Any:
        """Return what they set, the operator's first; None: nothing."""
        for each in (self.operator_policy, self.policy):
            if each is not None and name in each.settings:
                return each.settings[name]
        return None

    def definition(self) -> dict[str, Any]:
        """Return what both ask for together; of an operator's what the other does not bound more."""
        told: dict[str, Any] = {} if self.policy is None else dict(self.policy.definition)
        for key, value in ({} if self.operator_policy is None else self.operator_policy.definition).items():
            mine = told.get(key)
            is_bound = isinstance(mine, int) and isinstance(value, int) and key in LEAST_KEYS
            told[key] = min(mine, value) if is_bound else value
        return told


NO_POLICIES: Final = Effective(None, None)


NONE: Final = Effective(None, None)
LEAST_KEYS: Final = frozenset(
    (
        "delivery-limit",
        "expires",
        "max-length",
        "max-length-bytes",
        "max-queued-bytes",
        "max-queued-messages",
        "message-ttl",
    )
)


class Policies:
    """All policies, by virtual host. What they are for is asked anew after each change, and not kept."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_vhost: dict[str, dict[tuple[bool, str], Policy]] = {}

    def of_vhost(self, vhost: str) -> list[Policy]:
        """Return the policies of a virtual host, by name."""
        found = self._by_vhost.get(vhost, {})
        return [found[key] for key in sorted(found)]

    def everywhere(self) -> list[Policy]:
        """Return the policies of all virtual hosts."""
        return [policy for known in self._by_vhost.values() for policy in known.values()]

    def find(self, vhost: str, name: str, *, is_operator: bool) -> Policy | None:
        """Return the policy of that name."""
        return self._by_vhost.get(vhost, {}).get((is_operator, name))

    def are_for(self, kind: str) -> bool:
        """Return whether any is for what is of this kind."""
        return any(kind in APPLY_TO[policy.apply_to] for policy in self.everywhere())

    def keep(self, policy: Policy) -> None:
        """Have a policy, kept with the open commit."""
        self._by_vhost.setdefault(policy.vhost, {})[policy.is_operator, policy.name] = policy
        self._context.commit.put(
            record.key(policy.is_operator, policy.vhost, policy.name),
            record.encode(
                policy.priority,
                policy.pattern,
                policy.apply_to,
                _json(policy.definition),
                _json(policy.settings),
            ),
        )

    def forget(self, policy: Policy) -> None:
        """Have a policy no more."""
        found = self._by_vhost[policy.vhost]
        del found[policy.is_operator, policy.name]
        if not found:
            del self._by_vhost[policy.vhost]
        self._context.commit.delete(record.key(policy.is_operator, policy.vhost, policy.name))

    def restore(self, key: PolicyKey, stored: StoredPolicy) -> None:
        """Take in what was kept before the start; raises CorruptRecord."""
        try:
            policy = Policy(
                vhost=key.vhost,
                name=key.name,
                pattern=stored.pattern,
                apply_to=stored.apply_to,
                priority=stored.priority,
                definition=json.loads(stored.definition),
                settings=json.loads(stored.settings),
                is_operator=key.kind == 1,
            )
        except (ValueError, re.error) as error:
            raise CorruptRecord(record.name, key.name, str(error)) from error
        if stored.apply_to not in APPLY_TO or not policy.settings.keys() <= FIELDS:
            raise CorruptRecord(record.name, key.name, "made by a newer release")
        self._by_vhost.setdefault(policy.vhost, {})[policy.is_operator, policy.name] = policy

    def of(self, full_name: str, kind: str) -> Effective:
        """Return what holds for a queue or exchange of this kind."""
        return self.of_local(vhost_of(full_name), local_name(full_name), kind)

    def of_local(self, vhost: str, name: str, kind: str) -> Effective:
        """Return what holds for what has this name, or client identifier, in its virtual host."""
        found = self._by_vhost.get(vhost)
        if not found:
            return NONE
        matching = [policy for policy in found.values() if policy.matches(name, kind)]
        return Effective(
            _first(policy for policy in matching if not policy.is_operator),
            _first(policy for policy in matching if policy.is_operator),
        )


def _first(policies: Iterable[Policy]) -> Policy | None:
    """Return the policy of the highest priority; of several the first by name."""
    return min(policies, key=lambda policy: (-policy.priority, policy.name), default=None)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


# what a queue has by them


def joined(
    declared: QueuePolicy, arguments: Mapping[str, object] | None, effective: Effective, *, durable: bool
) -> QueuePolicy:
    """Return the policy of a queue that was declared so, with such arguments, and has these policies."""
    parts = [each.settings for each in (effective.operator_policy, effective.policy) if each is not None]
    if not parts:
        return declared
    wanted: dict[str, Any] = {}
    for settings in reversed(parts):
        for name, value in settings.items():
            is_bound = name in _BOUNDS or name in _BOUNDS_OF_STREAMS
            wanted[name] = _smaller(wanted.get(name, 0), value) if is_bound else value
    fields = declared.fields()
    fields["group_expires_ms"] = declared.group_expires_ms or wanted.get("group_expires_ms", 0)
    if declared.stream:
        _bound(fields, "retention_age_ms", wanted.get("retention_age_ms", 0))
        _bound(fields, "retention_bytes", max(0, wanted.get("bytes_max", 0)))
        return QueuePolicy(**fields)
    had_bounds = declared.depth_max != 0 or declared.bytes_max != 0
    given = {} if arguments is None else arguments
    if declared.quorum and "attempts_max" in wanted and "x-delivery-limit" not in given:
        fields["attempts_max"] = 0  # the default of quorum queues, which nobody asked for
    for name in ("message_ttl_ms", "depth_max", "bytes_max", "attempts_max"):
        _bound(fields, name, wanted.get(name, 0))
    _bound(fields, "unused_max_ms" if durable else "expires_ms", wanted.get(UNUSED, 0))
    has_bounds = fields["depth_max"] != 0 or fields["bytes_max"] != 0
    if has_bounds and "x-overflow" not in given and (OVERFLOW in wanted or not had_bounds):
        fields["overflow"] = wanted.get(OVERFLOW, DROP_HEAD)
    if not (declared.last_value or declared.priority_max or declared.message_groups):
        fields[_LAST_VALUE] = wanted.get(_LAST_VALUE, "")
    for group in (_DEAD_LETTERS, _RETRY, _TIMEOUT):
        if not any(getattr(declared, name) for name in group):
            fields.update({name: wanted[name] for name in group if name in wanted})
    if declared.dead_letter_by_key and not wanted.get("dead_letter_by_key", True):
        # declared with an exchange alone: the routing key is a setting of its own
        fields.update(dead_letter=wanted["dead_letter"], dead_letter_by_key=False)
    return QueuePolicy(**fields)


def session_bounds(messages_max: int, bytes_max: int, effective: Effective) -> tuple[int, int]:
    """Return how many messages, and bytes, may wait for a session with these policies, where so many may for
    any; 0 is no bound.
    """
    for each in effective:
        if each is not None:
            messages_max = _smaller(messages_max, each.settings.get("queued_messages_max", 0))
            bytes_max = _smaller(bytes_max, each.settings.get("queued_bytes_max", 0))
    return messages_max, bytes_max


def _bound(fields: dict[str, Any], name: str, bound: int) -> None:
    fields[name] = _smaller(fields[name], bound)


def _smaller(one: int, other: int) -> int:
    """Return the smaller one of two bounds: 0 is none, NOTHING a bound of 0."""
    if NOTHING in (one, other):
        return NOTHING
    return min(one, other) if one and other else one or other
