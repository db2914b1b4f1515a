"""Arguments of queue.declare and basic.consume: what they mean; the rest is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from broker import consumer_filters
from broker.amqp.retry_arguments import (
    CONSUMER_TIMEOUT,
    LEASE_NAMES,
    RETRY_NAMES,
    integer,
    lease_fields,
    retry_fields,
)
from broker.amqp.stream_arguments import AUTO_COMMIT_ARGUMENT, CONSUMER_ARGUMENTS
from broker.consumer_filters import Filters
from config import limits
from queue_manager.address import validate_queue_name
from queue_manager.errors import InvalidAddress, InvalidArgument
from queue_manager.log.stream_start import NAME as START_ARGUMENT
from queue_manager.policy import DROP_HEAD, REJECT, REJECT_DLX, QueuePolicy

GROUP_ARGUMENT: Final = "x-consumer-group"
PRIORITY_ARGUMENT: Final = "x-priority"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"
DEAD_LETTER_STRATEGY: Final = "x-dead-letter-strategy"  # always at least once here

_CONSUMER_NAMES: Final = frozenset(
    (GROUP_ARGUMENT, PRIORITY_ARGUMENT, CONSUMER_TIMEOUT, *CONSUMER_ARGUMENTS, *consumer_filters.NAMES)
)
_OVERFLOWS: Final = {"reject-publish": REJECT, REJECT_DLX: REJECT_DLX, DROP_HEAD: DROP_HEAD}

_LATER: Final = "is not supported by this version"


def queue_type(arguments: Mapping[str, Any]) -> None:
    """Check `x-queue-type`: classic and quorum both mean a durable work queue."""
    value = arguments.get("x-queue-type", "classic")
    if value not in ("classic", "quorum"):
        raise InvalidArgument(f"x-queue-type {value!r} {_LATER}; use 'classic', 'quorum' or 'stream'")


def queue_policy(arguments: Mapping[str, Any], default: QueuePolicy, *, durable: bool) -> QueuePolicy:
    """The policy a declaration asks for; raises InvalidArgument naming what is wrong or unsupported."""
    queue_type(arguments)
    fields = default.fields()
    if not durable:
        fields["expires_ms"] = 0  # lives until its owner, its last consumer or the broker goes
    for name, value in arguments.items():
        if name == "x-queue-type" or name in LEASE_NAMES or name in RETRY_NAMES:
            continue
        if name == "x-delivery-limit":
            fields["attempts_max"] = integer(name, value, 0, limits.ATTEMPTS_MAX - 1) + 1
        elif name == "x-max-length":
            fields["depth_max"] = integer(name, value, 1, limits.QUEUE_DEPTH_MESSAGES_MAX)
        elif name == "x-max-length-bytes":
            fields["bytes_max"] = integer(name, value, 1, limits.SIZE_BYTES_MAX)
        elif name == "x-overflow":
            if value not in _OVERFLOWS:
                raise InvalidArgument(f"{name} must be one of {', '.join(_OVERFLOWS)}, not {value!r}")
        elif name == "x-message-ttl":
            # 0: gone unless it can be delivered at once
            fields["message_ttl_ms"] = max(1, integer(name, value, 0, limits.DURATION_MS_MAX))
        elif name == "x-single-active-consumer":
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} must be true or false, not {value!r}")
            fields["single_active"] = value
        elif name == "x-message-groups":
            if value not in ("off", "sticky", "rebalance"):
                raise InvalidArgument(f"{name} must be 'off', 'sticky' or 'rebalance', not {value!r}")
            fields["message_groups"] = "" if value == "off" else value
        elif name == "x-expires":
            fields["unused_max_ms" if durable else "expires_ms"] = integer(
                name, value, 1, limits.DURATION_MS_MAX
            )
        elif name == "x-max-priority":
            wanted = integer(name, value, 0, limits.PRIORITY_ASKED_MAX)
            fields["priority_max"] = min(wanted, limits.PRIORITY_MAX)
        elif name == "x-deduplication-window":
            window_ms = integer(name, value, 1, limits.DEDUPLICATION_WINDOW_MS_MAX)
            fields["deduplication_window_ms"] = window_ms
        elif name in (DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY, DEAD_LETTER_STRATEGY):
            _check_dead_letter(name, value, arguments)
        else:
            raise InvalidArgument(f"queue argument {name!r} {_LATER}")
    if fields["depth_max"] or fields["bytes_max"]:
        fields["overflow"] = _OVERFLOWS[arguments.get("x-overflow", DROP_HEAD)]
    if DEAD_LETTER_EXCHANGE in arguments:
        fields["dead_letter_exchange"] = arguments[DEAD_LETTER_EXCHANGE]
        fields["dead_letter"] = arguments.get(DEAD_LETTER_KEY, "")
        fields["dead_letter_by_key"] = DEAD_LETTER_KEY not in arguments
    fields.update(**lease_fields(arguments), **retry_fields(arguments))
    return QueuePolicy(**fields)


def _check_dead_letter(name: str, value: Any, arguments: Mapping[str, Any]) -> None:
    if name == DEAD_LETTER_STRATEGY:
        if value not in ("at-least-once", "at-most-once"):
            raise InvalidArgument(f"{name} must be 'at-least-once' or 'at-most-once', not {value!r}")
    elif name == DEAD_LETTER_EXCHANGE:
        if not isinstance(value, str):
            raise InvalidArgument(f"{name} must be a string, not {value!r}")
    else:
        if DEAD_LETTER_EXCHANGE not in arguments:
            raise InvalidArgument(f"{name} needs {DEAD_LETTER_EXCHANGE}")
        if not isinstance(value, str):
            raise InvalidArgument(f"{name} must be a string, not {value!r}")
        if not arguments[DEAD_LETTER_EXCHANGE]:  # the key is the name of a queue
            try:
                validate_queue_name(value)
            except InvalidAddress as error:
                raise InvalidArgument(f"{name}: {error.reason}") from None


def equivalence(arguments: Mapping[str, Any]) -> dict[str, object]:
    """The arguments a redeclaration has to repeat."""
    return {
        name: float(value) if isinstance(value, Decimal) else value
        for name, value in arguments.items()
        if name != "x-queue-type"
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerArguments:
    """What the arguments of a basic.consume ask for; group "" is the default group."""

    group: str = ""
    priority: int = 0
    filters: Filters = Filters()
    stream_offset: object = None
    auto_commit: object = None
    lease_ms: int = 0  # 0: as the queue has it

    def check_no_stream(self, queue_name: str) -> None:
        """Raise InvalidArgument if there is something in them that only a stream can do."""
        for name, value in zip(CONSUMER_ARGUMENTS, (self.stream_offset, self.auto_commit), strict=True):
            if value is not None:
                raise InvalidArgument(f"consumer argument {name!r}: queue {queue_name!r} is no stream")


def consumer_arguments(arguments: Mapping[str, Any]) -> ConsumerArguments:
    """Read the arguments of a basic.consume; refuses those that mean nothing here."""
    for name in arguments:
        if name not in _CONSUMER_NAMES:
            raise InvalidArgument(f"consumer argument {name!r} {_LATER}")
    group = arguments.get(GROUP_ARGUMENT, "")
    if not isinstance(group, str):
        raise InvalidArgument(f"{GROUP_ARGUMENT} must be a string")
    lease_ms = 0
    if CONSUMER_TIMEOUT in arguments:
        lease_ms = integer(CONSUMER_TIMEOUT, arguments[CONSUMER_TIMEOUT], 1, limits.DURATION_MS_MAX)
    return ConsumerArguments(
        group=group,
        lease_ms=lease_ms,
        priority=integer(
            PRIORITY_ARGUMENT,
            arguments.get(PRIORITY_ARGUMENT, 0),
            -limits.CONSUMER_PRIORITY_MAX,
            limits.CONSUMER_PRIORITY_MAX,
        ),
        stream_offset=arguments.get(START_ARGUMENT),
        auto_commit=arguments.get(AUTO_COMMIT_ARGUMENT),
        filters=consumer_filters.filters_of(arguments),
    )
