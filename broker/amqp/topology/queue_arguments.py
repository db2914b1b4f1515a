"""Arguments of queue.declare: what they mean; what means nothing is refused by name, in RabbitMQ's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from broker.amqp.topology.bad_arguments import BadArgument, BadType, integer, unacceptable
from broker.amqp.topology.retry_arguments import (
    DELAYED_NAMES,
    LEASE_NAMES,
    RETRY_NAMES,
    delayed_retry_fields,
    lease_fields,
    retry_fields,
)
from broker.properties.amqp import field_type_name
from config import limits
from config.name_rules import check_description
from queue_manager.address import validate_queue_name
from queue_manager.errors import InvalidAddress, InvalidArgument
from queue_manager.log.stream_start import parse_interval_ms
from queue_manager.policy import DROP_HEAD, NOTHING, REJECT, REJECT_DLX, QueuePolicy

TYPE: Final = "x-queue-type"
DESCRIPTION: Final = "x-description"
CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"
EXPIRES: Final = "x-expires"
GROUP_EXPIRES: Final = "x-group-expires"
LAST_VALUE: Final = "x-last-value"
OVERFLOW: Final = "x-overflow"
_OVERFLOWS: Final = {"reject-publish": REJECT, REJECT_DLX: REJECT_DLX, DROP_HEAD: DROP_HEAD}

Fields = dict[str, Any]
_Reader = Callable[[str, Any], Fields]


def queue_type(arguments: Mapping[str, Any]) -> str:
    """Return the type that is asked for; raises BadArgument."""
    value = arguments.get(TYPE, CLASSIC)
    if not isinstance(value, str):
        raise unacceptable(TYPE, value)
    if value not in (CLASSIC, QUORUM, STREAM):
        raise BadArgument(TYPE, f": \"unsupported queue type '{value}'\"")
    return value


def queue_policy(arguments: Mapping[str, Any], default: QueuePolicy, *, durable: bool) -> QueuePolicy:
    """Return the policy a declaration asks for; raises InvalidArgument, mostly BadArgument."""
    kind = queue_type(arguments)
    readers = _STREAM_READERS if kind == STREAM else _READERS
    fields = default.fields()
    fields["message_bytes_max"] = limits.MESSAGE_BYTES_MAX
    if kind == STREAM:
        fields.update(stream=True, expires_ms=0, attempts_max=0)
    elif kind == QUORUM:
        fields.update(quorum=True, attempts_max=default.attempts_max or limits.QUORUM_ATTEMPTS_MAX)
    elif not durable:
        fields["expires_ms"] = 0  # lives until its owner, its last consumer or the broker goes
    for name, value in arguments.items():
        reader = readers.get(name)
        if reader is not None:
            fields.update(reader(name, value))
        elif name != TYPE and not _is_read_apart(name, kind):
            if name in _READERS or name in _STREAM_READERS or name in (*RETRY_NAMES, *DELAYED_NAMES):
                raise BadArgument(name, f" of queue type rabbit_{kind}_queue")
            raise BadArgument(name, ": not supported")
    if EXPIRES in arguments and durable:
        fields["unused_max_ms"], fields["expires_ms"] = fields["expires_ms"], default.expires_ms
    if fields["last_value"] and (fields["priority_max"] or fields["message_groups"]):
        raise BadArgument(LAST_VALUE, ": not with x-max-priority or x-message-groups")
    if fields["depth_max"] or fields["bytes_max"]:
        fields["overflow"] = _OVERFLOWS[arguments.get(OVERFLOW, DROP_HEAD)]
    fields.update(_dead_letter_fields(arguments))
    fields.update(lease_fields(arguments))
    if kind != STREAM:
        fields.update(retry_fields(arguments))
    if kind == QUORUM:
        fields.update(delayed_retry_fields(arguments))
    return QueuePolicy(**fields)


def _is_read_apart(name: str, kind: str) -> bool:
    """Return whether an argument of a queue of this type is read together with others."""
    return (
        name in LEASE_NAMES
        or (name in RETRY_NAMES and kind != STREAM)
        or (name in DELAYED_NAMES and kind == QUORUM)
    )


def check_kind(
    arguments: Mapping[str, Any], name: str, vhost: str, *, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    """Raise InvalidArgument if no quorum queue or stream can be so; `name` "": the server is to find one."""
    kind = queue_type(arguments)
    if kind == CLASSIC:
        return
    if not name:
        raise InvalidArgument(f"Cannot declare a server-named queue for type rabbit_{kind}_queue")
    for is_wrong, what in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive-owner"),
        (not durable, "non-durable"),
    ):
        if is_wrong:
            raise InvalidArgument(f"invalid property '{what}' for queue '{name}' in vhost '{vhost}'")


def equivalence(arguments: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments a redeclaration has to repeat: not those that ask for nothing here."""
    return {
        name: float(value) if isinstance(value, Decimal) else value
        for name, value in arguments.items()
        if name not in (TYPE, DESCRIPTION) and name not in _TAKEN
    }


def reported(arguments: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments that only are to be told to who looks at the queue."""
    return {name: value for name, value in arguments.items() if name == TYPE or name in _TAKEN}


def _dead_letter_fields(arguments: Mapping[str, Any]) -> Fields:
    if DEAD_LETTER_EXCHANGE not in arguments:
        if DEAD_LETTER_KEY in arguments:
            raise BadArgument(DEAD_LETTER_KEY, ": routing_key_but_no_dlx_defined")
        return {}
    exchange = arguments[DEAD_LETTER_EXCHANGE]
    key = arguments.get(DEAD_LETTER_KEY, "")
    if not exchange and key:
        try:
            validate_queue_name(key)
        except InvalidAddress as error:
            raise BadArgument(DEAD_LETTER_KEY, f": {error.reason}") from None
    return {
        "dead_letter_exchange": exchange,
        "dead_letter": key,
        "dead_letter_by_key": DEAD_LETTER_KEY not in arguments,
    }


# one argument


def _number(field: str, high: int, low: int = 0, least: int = 0) -> _Reader:
    """Return a reader of a whole number; what is below `least` is taken for that."""
    return lambda name, value: {field: max(least, integer(name, value, low, high))}


def _bound(field: str, high: int) -> _Reader:
    """Return a reader of how much may wait; of 0, nothing may."""
    return lambda name, value: {field: integer(name, value, 0, high) or NOTHING}


def _nothing(check: Callable[[str, Any], object]) -> _Reader:
    """Return a reader of what is checked and asks for nothing that is here."""

    def read(name: str, value: Any) -> Fields:
        check(name, value)
        return {}

    return read


def _one_of(values: tuple[object, ...], wrong: str) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if type(value) is not type(values[0]):
            raise unacceptable(name, value)
        if value not in values:
            raise BadArgument(name, f": {wrong.format(value)}")

    return check


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise unacceptable(name, value)


def _description(name: str, value: Any) -> None:
    _text(name, value)
    try:
        check_description(value)
    except ValueError as error:
        raise BadArgument(name, f": {error}") from None


def _size(name: str, value: Any) -> None:
    integer(name, value, 0, limits.SIZE_BYTES_MAX)


def _group_size(name: str, value: Any) -> None:
    integer(name, value, 1, limits.SIZE_BYTES_MAX)


def _exchange(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadType(name, field_type_name(value))


def _names(name: str, value: Any) -> None:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise unacceptable(name, value)


def _single_active(name: str, value: Any) -> Fields:
    if not isinstance(value, bool):
        raise unacceptable(name, value)
    return {"single_active": value}


def _delivery_limit(name: str, value: Any) -> Fields:
    if value == -1:
        return {"attempts_max": 0}
    return {"attempts_max": integer(name, value, 0, limits.ATTEMPTS_MAX - 1) + 1}


def _priority(name: str, value: Any) -> Fields:
    wanted = integer(name, value, 0, limits.SIZE_BYTES_MAX)
    if wanted > limits.PRIORITY_ASKED_MAX:
        raise BadArgument(name, f": {{max_value_exceeded,{wanted}}}")
    return {"priority_max": min(wanted, limits.PRIORITY_MAX)}


def _message_groups(name: str, value: Any) -> Fields:
    if value not in ("off", "sticky", "rebalance"):
        raise BadArgument(name, f": 'off', 'sticky' or 'rebalance', not {value!r}")
    return {"message_groups": "" if value == "off" else value}


def _last_value(name: str, value: Any) -> Fields:
    _text(name, value)
    if not 1 <= len(value.encode(errors="replace")) <= limits.LAST_VALUE_BYTES_MAX:
        raise BadArgument(name, f": the name of a header has 1 to {limits.LAST_VALUE_BYTES_MAX} bytes")
    return {"last_value": value}


def _max_age(name: str, value: Any) -> Fields:
    """Read `7D` and the like, or an integer of seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"retention_age_ms": integer(name, value, 1, limits.DURATION_MS_MAX // 1_000) * 1_000}
    if not isinstance(value, str):
        raise unacceptable(name, value)
    try:
        age_ms = parse_interval_ms(value)
    except ValueError:
        age_ms = 0
    if not age_ms:
        raise BadArgument(name, ": invalid_max_age")
    return {"retention_age_ms": age_ms}


_TAKEN: Final[dict[str, _Reader]] = {
    "x-queue-mode": _nothing(_one_of(("default", "lazy"), "\"unsupported queue mode '{}'\"")),
    "x-queue-version": _nothing(_one_of((1, 2), "\"unsupported queue version '{}'\"")),
    "x-quorum-initial-group-size": _nothing(_group_size),
    "x-quorum-target-group-size": _nothing(_group_size),
    "x-initial-cluster-size": _nothing(_group_size),
    "x-consumer-disconnected-timeout": _nothing(_size),
    "x-queue-leader-locator": _nothing(_one_of(("client-local", "balanced"), "invalid_queue_locator_arg")),
    "x-queue-master-locator": _nothing(_text),
    "x-max-in-memory-length": _nothing(_size),
    "x-max-in-memory-bytes": _nothing(_size),
    "x-stream-filter-size-bytes": _nothing(_size),
    "x-filter-enabled": _nothing(_one_of((True, False), "")),
    "x-filter-field-names": _nothing(_names),
    "x-ha-policy": _nothing(_names),
    "x-internal-purpose": _nothing(_text),
}
"""Arguments that ask for nothing that is there: where records lie, and on how many nodes."""

_READERS: Final[dict[str, _Reader]] = {
    **_TAKEN,
    DESCRIPTION: _nothing(_description),
    "x-message-ttl": _number(
        "message_ttl_ms", limits.DURATION_MS_MAX, least=limits.LIFETIME_MS_MIN
    ),  # 0: gone unless deliverable
    EXPIRES: _number("expires_ms", limits.DURATION_MS_MAX, low=1),
    GROUP_EXPIRES: _number("group_expires_ms", limits.DURATION_MS_MAX, low=1),
    "x-max-length": _bound("depth_max", limits.QUEUE_DEPTH_MESSAGES_MAX),
    "x-max-length-bytes": _bound("bytes_max", limits.SIZE_BYTES_MAX),
    OVERFLOW: _nothing(_one_of(tuple(_OVERFLOWS), "invalid_overflow")),
    DEAD_LETTER_EXCHANGE: _nothing(_exchange),
    DEAD_LETTER_KEY: _nothing(_text),
    "x-dead-letter-strategy": _nothing(  # always at least once here
        _one_of(("at-least-once", "at-most-once"), "invalid_dlx_strategy")
    ),
    "x-max-priority": _priority,
    "x-single-active-consumer": _single_active,
    "x-delivery-limit": _delivery_limit,
    "x-message-groups": _message_groups,
    LAST_VALUE: _last_value,
    "x-deduplication-window": _number("deduplication_window_ms", limits.DEDUPLICATION_WINDOW_MS_MAX, low=1),
}

_STREAM_READERS: Final[dict[str, _Reader]] = {
    **_TAKEN,
    DESCRIPTION: _nothing(_description),
    "x-max-length": _number("retention_count", limits.QUEUE_DEPTH_MESSAGES_MAX, low=1),
    "x-max-length-bytes": _number("retention_bytes", limits.SIZE_BYTES_MAX, low=1),
    "x-max-age": _max_age,
    GROUP_EXPIRES: _number("group_expires_ms", limits.DURATION_MS_MAX, low=1),
    "x-stream-max-segment-size-bytes": _nothing(_group_size),  # what goes at a time is much smaller here
    "x-single-active-consumer": _single_active,
}
