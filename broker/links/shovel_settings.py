"""What a shovel is told to do: RabbitMQ's keys of the parameter, checked in its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.links.amqp_uri import AmqpUri, read_uri
from broker.links.haul import ACK_MODES, NO_ACK, ON_CONFIRM
from config import limits
from queue_manager.errors import InvalidArgument

NEVER: Final = "never"
QUEUE_LENGTH: Final = "queue-length"
_PROTOCOL: Final = "amqp091"
PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "message_type",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
    "headers",
)
"""Of messages, which a shovel may set."""
_NUMBERS_OF_PROPERTIES: Final = frozenset(("delivery_mode", "priority", "timestamp"))


@dataclass(frozen=True, slots=True)
class End:
    """One end of a shovel: of the source a `queue`, or an `exchange` whose messages of a `key` come by a
    queue of the shovel's; of the target a queue, an exchange, or (neither) the exchange that a message came
    by.
    """

    uris: tuple[AmqpUri, ...]
    shown: tuple[str, ...]
    queue: str | None
    exchange: str | None
    key: str | None
    arguments: Mapping[str, Any]
    is_predeclared: bool


@dataclass(frozen=True, slots=True)
class ShovelSettings:
    """A shovel. `delete_after`: it is over after so many messages, those that were there (`QUEUE_LENGTH`), or
    never.
    """

    source: End
    target: End
    ack_mode: str
    prefetch: int
    reconnect_s: float
    delete_after: int | str
    consumer_arguments: Mapping[str, Any]
    properties: Mapping[str, Any]
    adds_forward_headers: bool
    adds_timestamp: bool


def flag(value: object) -> str:
    """Return what is wrong with a value that is no boolean, "": nothing."""
    return "" if isinstance(value, bool) else "should be boolean"


def text(value: object) -> str:
    """Return as `flag`, of a text."""
    return "" if isinstance(value, str) else "should be binary"


def number(value: object) -> str:
    """Return as `flag`, of a number that is not below 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return "" if is_number else "should be a number"


def whole(value: object) -> str:
    """Return as `flag`, of a whole number above 0."""
    return "" if isinstance(value, int) and not number(value) and value else "should be a number"


def table(value: object) -> str:
    """Return as `flag`, of an object."""
    return "" if isinstance(value, dict) or value == [] else "should be an object"


def one_of(*values: object) -> Callable[[object], str]:
    """Return what checks as `flag` that a value is one of these."""
    told = ", ".join(map(str, values))
    return lambda value: "" if value in values else f"should be one of [{told}]"


def _after(value: object) -> str:
    if value in (NEVER, QUEUE_LENGTH) or not (number(value) or isinstance(value, float)):
        return ""
    return "should be a number greater than or equal to 0, queue-length or never"


def _properties(value: object) -> str:
    if table(value):
        return table(value)
    for key, each in dict(value or {}).items():  # type: ignore[call-overload]
        if key not in PROPERTIES:
            return f"has a property that is not known: {key}"
        check = number if key in _NUMBERS_OF_PROPERTIES else table if key == "headers" else text
        if check(each):
            return f"{key} {check(each)}"
    return ""


def uris(value: object) -> str:
    """Return as `flag`, of one URI or a list of them."""
    found = value if isinstance(value, list) else [value]
    if not 1 <= len(found) <= limits.LINK_URIS_MAX:
        return f"should be 1 to {limits.LINK_URIS_MAX} URIs"
    try:
        for each in found:
            read_uri(each, "/")
    except InvalidArgument as error:
        return error.reason
    return ""


Checks = Mapping[str, Callable[[object], str]]
_CHECKS: Final[Checks] = {
    "src-uri": uris,
    "src-protocol": one_of(_PROTOCOL),
    "src-queue": text,
    "src-queue-args": table,
    "src-exchange": text,
    "src-exchange-key": text,
    "src-prefetch-count": whole,
    "prefetch-count": whole,
    "src-delete-after": _after,
    "delete-after": _after,
    "src-consumer-args": table,
    "src-predeclared": flag,
    "dest-uri": uris,
    "dest-protocol": one_of(_PROTOCOL),
    "dest-queue": text,
    "dest-queue-args": table,
    "dest-exchange": text,
    "dest-exchange-key": text,
    "dest-predeclared": flag,
    "dest-add-forward-headers": flag,
    "add-forward-headers": flag,
    "dest-add-timestamp-header": flag,
    "add-timestamp-header": flag,
    "dest-publish-properties": _properties,
    "publish-properties": _properties,
    "ack-mode": one_of(*ACK_MODES),
    "reconnect-delay": number,
}
_OTHER_NAMES: Final = {
    "dest-properties": "dest-publish-properties",
    "publish-properties": "dest-publish-properties",
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
}


def problems_of(value: Mapping[str, Any], checks: Checks) -> list[str]:
    """Return what is wrong with an object: keys that are not known, and values that are none for their
    keys.
    """
    problems = [f"Unrecognised term {key}" for key in sorted(value.keys() - checks.keys())]
    for key in checks.keys() & value.keys():
        problem = checks[key](value[key])
        if problem.startswith("should"):
            problems.append(f"{key} {problem}, actually was {value[key]!r}")
        elif problem:
            problems.append(f"{key}: {problem}")
    return problems


def refuse(problems: list[str]) -> None:
    """Raise InvalidArgument, in RabbitMQ's words, if there are problems."""
    if problems:
        raise InvalidArgument("Validation failed\n\n" + "\n".join(problems) + "\n")


def read_shovel(value: Mapping[str, Any], vhost: str) -> ShovelSettings:
    """Read a shovel of a virtual host; raises InvalidArgument."""
    problems = problems_of(value, _CHECKS)
    problems += [f'Key "{key}" not found' for key in ("dest-uri", "src-uri") if key not in value]
    if "src-queue" in value and "src-exchange" in value:
        problems.append("Cannot specify 'src-exchange' and 'src-queue'")
    if not ("src-queue" in value or "src-exchange" in value):
        problems.append("Must specify 'src-exchange' or 'src-queue'")
    if "dest-queue" in value and "dest-exchange" in value:
        problems.append("Cannot specify 'dest-exchange' and 'dest-queue'")
    refuse(problems)
    said = {_OTHER_NAMES.get(key, key): each for key, each in value.items()}
    settings = _settings(said, vhost)
    if settings.delete_after != NEVER:
        if settings.ack_mode == NO_ACK:
            problems.append("Cannot specify 'no-ack' and numerical 'delete-after'")
        if settings.source.queue is None and settings.delete_after == QUEUE_LENGTH:
            problems.append("queue-length is that of a src-queue")
    refuse(problems)
    return settings


def _settings(said: Mapping[str, Any], vhost: str) -> ShovelSettings:
    return ShovelSettings(
        source=_end(said, "src", vhost),
        target=_end(said, "dest", vhost),
        ack_mode=said.get("ack-mode", ON_CONFIRM),
        prefetch=min(said.get("src-prefetch-count", limits.SHOVEL_PREFETCH_MESSAGES), 0xFFFF),
        reconnect_s=said.get("reconnect-delay", limits.SHOVEL_RETRY_S),
        delete_after=said.get("src-delete-after", NEVER),
        consumer_arguments=said.get("src-consumer-args") or {},
        properties=said.get("dest-publish-properties") or {},
        adds_forward_headers=said.get("dest-add-forward-headers", False),
        adds_timestamp=said.get("dest-add-timestamp-header", False),
    )


def _end(said: Mapping[str, Any], side: str, vhost: str) -> End:
    found = said[f"{side}-uri"]
    shown = tuple(found if isinstance(found, list) else [found])
    return End(
        uris=tuple([read_uri(each, vhost) for each in shown]),
        shown=shown,
        queue=said.get(f"{side}-queue"),
        exchange=said.get(f"{side}-exchange"),
        key=said.get(f"{side}-exchange-key"),
        arguments=said.get(f"{side}-queue-args") or {},
        is_predeclared=said.get(f"{side}-predeclared", False),
    )
