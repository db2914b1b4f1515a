"""Keys of policies: arguments of queues and exchanges without their `x-`, and what they set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.amqp.topology import queue_arguments
from broker.amqp.topology.bad_arguments import BadArgument
from config import limits
from config.settings import DefaultPolicySettings
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import APPLY_TO, Policy, QueuePolicy
from queue_manager.errors import InvalidArgument

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer-timeout": ("consumer_timeout_ms",),
    "dead-letter-exchange": ("dead_letter", "dead_letter_exchange", "dead_letter_by_key"),
    "dead-letter-routing-key": ("dead_letter", "dead_letter_exchange", "dead_letter_by_key"),
    "delayed-retry-max": ("retry_kind", "retry_initial_ms", "retry_max_ms"),
    "delayed-retry-min": ("retry_kind", "retry_initial_ms", "retry_max_ms"),
    "delayed-retry-type": ("retry_kind", "retry_initial_ms", "retry_max_ms"),
    "delivery-limit": ("attempts_max",),
    "group-expires": ("group_expires_ms",),
    "last-value": ("last_value",),
    "max-age": ("retention_age_ms",),
    "max-length": ("depth_max",),
    "max-length-bytes": ("bytes_max",),
    "message-ttl": ("message_ttl_ms",),
}
_EXPIRES: Final = "expires"
_OVERFLOW: Final = "overflow"
_ALTERNATE: Final = "alternate-exchange"
_TAKEN: Final = frozenset(
    (
        "dead-letter-strategy",
        "initial-cluster-size",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "queue-leader-locator",
        "queue-mode",
        "queue-version",
        "stream-max-segment-size-bytes",
        "target-group-size",
    )
)
"""These ask for nothing that is here, as the arguments do."""
_ARGUMENTS: Final = {"target-group-size": "x-quorum-target-group-size"}
"""Keys that are not called as their arguments."""
_OF_STREAMS: Final = frozenset(("max-age", "stream-max-segment-size-bytes"))
_SESSIONS: Final = "mqtt_sessions"
_OF_SESSIONS: Final = {
    "max-queued-bytes": "queued_bytes_max",
    "max-queued-messages": "queued_messages_max",
}
"""Keys for MQTT sessions, which have no others; operators may set them, too."""
_UPSTREAMS: Final = frozenset(("federation-upstream", "federation-upstream-set"))
_OTHERS: Final = _OF_STREAMS | _UPSTREAMS | {_ALTERNATE}
"""Keys that no queue is declared with, but streams."""
KEYS: Final = frozenset((*_FIELDS, _EXPIRES, _OVERFLOW, _ALTERNATE, *_TAKEN, *_UPSTREAMS))
ANY_KEYS: Final = KEYS | _OF_SESSIONS.keys()
OPERATOR_KEYS: Final = frozenset(
    (
        "delivery-limit",
        _EXPIRES,
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        _OVERFLOW,
    )
)
_PLAIN: Final = QueuePolicy(visibility_timeout_ms=1, message_bytes_max=1)


def make_policy(
    vhost: str,
    name: str,
    *,
    pattern: object,
    definition: object,
    apply_to: object = "all",
    priority: object = 0,
    is_operator: bool = False,
) -> Policy:
    """Return the policy that is asked for; raises InvalidArgument, in RabbitMQ's words where it has some."""
    if not isinstance(pattern, str) or len(pattern.encode()) > limits.POLICY_PATTERN_BYTES_MAX:
        raise InvalidArgument(f"pattern: a text of at most {limits.POLICY_PATTERN_BYTES_MAX} bytes")
    if (
        not isinstance(priority, int)
        or isinstance(priority, bool)
        or abs(priority) > limits.POLICY_PRIORITY_MAX
    ):
        raise InvalidArgument(f"priority should be a number, actually was {priority!r}")
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        raise InvalidArgument(f"apply-to '{apply_to}' unrecognised; should be one of: {', '.join(APPLY_TO)}")
    if not isinstance(definition, dict) or not definition:
        raise InvalidArgument("definition: an object with at least one key")
    if not 1 <= len(name.encode()) <= limits.POLICY_NAME_BYTES_MAX or "\0" in name:
        raise InvalidArgument(f"a name of 1 to {limits.POLICY_NAME_BYTES_MAX} bytes")
    if apply_to == _SESSIONS:
        settings = _session_settings(definition)
    else:
        settings = _settings(definition, OPERATOR_KEYS if is_operator else KEYS)
    try:
        return Policy(
            vhost=vhost,
            name=name,
            pattern=pattern,
            apply_to=apply_to,
            priority=priority,
            definition=definition,
            settings=settings,
            is_operator=is_operator,
        )
    except re.error as error:
        raise InvalidArgument(f"pattern should be regex, but {pattern!r} is none: {error}") from None


def default_policies(wanted: Iterable[DefaultPolicySettings], vhost: str) -> list[Policy]:
    """Return the policies that a virtual host of this name begins with; raises InvalidArgument."""
    return [_default_policy(each, vhost) for each in wanted if re.search(each.vhost_pattern, vhost)]


def check_default_policies(wanted: Iterable[DefaultPolicySettings]) -> None:
    """Raise InvalidArgument that names a default policy which is none."""
    for index, each in enumerate(wanted):
        try:
            _default_policy(each, DEFAULT_VHOST)
        except InvalidArgument as error:
            raise InvalidArgument(f"default_policies[{index}]: {error}") from None


def _default_policy(wanted: DefaultPolicySettings, vhost: str) -> Policy:
    return make_policy(
        vhost,
        wanted.name,
        pattern=wanted.pattern,
        definition=dict(wanted.definition),
        apply_to=wanted.apply_to,
        priority=wanted.priority,
        is_operator=wanted.operator,
    )


def _session_settings(definition: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(definition.keys() - _OF_SESSIONS.keys())
    if unknown:
        raise InvalidArgument(f"[{', '.join(unknown)}] are not recognised settings of policies for sessions")
    for key, value in definition.items():
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not 1 <= value <= limits.SESSION_QUEUED_MESSAGES_MAX
        ):
            raise InvalidArgument(
                f"{key}: a number from 1 to {limits.SESSION_QUEUED_MESSAGES_MAX}, not {value!r}"
            )
    return {_OF_SESSIONS[key]: value for key, value in definition.items()}


def _settings(definition: Mapping[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    unknown = sorted(definition.keys() - allowed)
    if unknown:
        raise InvalidArgument(f"[{', '.join(unknown)}] are not recognised policy settings")
    settings: dict[str, Any] = {}
    if _ALTERNATE in definition:
        settings["alternate_exchange"] = _text(_ALTERNATE, definition[_ALTERNATE])
    for key in definition.keys() & _UPSTREAMS:
        _text(key, definition[key])
    if definition.keys() >= _UPSTREAMS:
        raise InvalidArgument("cannot specify federation-upstream and federation-upstream-set together")
    of_streams = {key: value for key, value in definition.items() if key in _OF_STREAMS}
    of_queues = {key: value for key, value in definition.items() if key not in _OTHERS}
    for kind, part in (("stream", of_streams), ("quorum", of_queues)):
        asked = _read(kind, part)
        settings |= {field: getattr(asked, field) for key in part for field in _FIELDS.get(key, ())}
        if _EXPIRES in part:
            settings["unused_ms"] = asked.unused_max_ms
        if _OVERFLOW in part:
            bounded = _read(kind, {**part, "max-length": part.get("max-length", 1)})
            settings["overflow"] = bounded.overflow
    return settings


def _read(kind: str, part: Mapping[str, Any]) -> QueuePolicy:
    """Read keys as the arguments of a queue of that type; raises InvalidArgument that names one."""
    arguments = {queue_arguments.TYPE: kind, **{_ARGUMENTS.get(key, f"x-{key}"): part[key] for key in part}}
    try:
        return queue_arguments.queue_policy(arguments, _PLAIN, durable=True)
    except BadArgument as error:
        raise InvalidArgument(f"invalid policy: {error.reason.removeprefix('x-')}") from None


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{key} is a text, not {value!r}")
    return value
