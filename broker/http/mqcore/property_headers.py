"""Properties of messages as headers of MQ-Core's requests and answers: `X-Message-...`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.engine.traffic import Message
from broker.properties import amqp
from broker.properties.templates import as_amqp
from config import limits, units
from queue_manager.errors import InvalidArgument
from queue_manager.options import DEDUPLICATION_ID, DELAY

CONTENT_TYPE: Final = "content_type"
PREFIX: Final = b"x-message-"
HEADER_PREFIX: Final = PREFIX + b"header-"
_TEXTS: Final = {
    b"x-message-correlation-id": "correlation_id",
    b"x-message-reply-to": "reply_to",
    b"x-message-type": "message_type",
}
_PRIORITY: Final = b"x-message-priority"
_EXPIRATION: Final = b"x-message-expiration"
_DELAY: Final = b"x-message-delay"
_DEDUPLICATION: Final = b"x-message-deduplication-id"
_OF_ANSWERS: Final = (b"x-message-id", b"x-message-attempts")  # who passes a message on may leave them in
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

NONE: Final = amqp.write_fields(True, {}, None)


def read(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the properties that the headers of a request give a message; raises InvalidArgument."""
    fields: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in headers:
        if name in _OF_ANSWERS:
            continue
        if name == b"content-type":
            fields[CONTENT_TYPE] = _text(name, value)
        elif name.startswith(PREFIX):
            _take(name, _text(name, value), fields, own)
    return amqp.write_fields(True, fields, own) if fields or own else NONE


def _take(name: bytes, value: str, fields: dict[str, Any], own: dict[str, Any]) -> None:
    if name.startswith(HEADER_PREFIX) and name != HEADER_PREFIX:
        own[name[len(HEADER_PREFIX) :].decode("ascii")] = value
    elif name in _TEXTS:
        fields[_TEXTS[name]] = value
    elif name == _PRIORITY:
        if not (value.isascii() and value.isdigit() and int(value[:4]) <= limits.PRIORITY_ASKED_MAX):
            raise InvalidArgument(f"X-Message-Priority: a whole number up to {limits.PRIORITY_ASKED_MAX}")
        fields["priority"] = int(value)
    elif name == _EXPIRATION:
        fields["expiration"] = str(_milliseconds("X-Message-Expiration", value))
    elif name == _DELAY:
        own[DELAY] = _milliseconds("X-Message-Delay", value)
    elif name == _DEDUPLICATION:
        own[DEDUPLICATION_ID] = value
    else:
        raise InvalidArgument(f"{name.decode()}: unknown; headers of your own are X-Message-Header-NAME")


def _milliseconds(name: str, value: str) -> int:
    """Read a duration: seconds, or with a unit."""
    try:
        return units.parse_duration_ms(f"{value}s" if value.isascii() and value.isdigit() else value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


def _text(name: bytes, value: bytes) -> str:
    if len(value) > limits.PUBLISH_OPTION_BYTES_MAX:
        raise InvalidArgument(f"{name.decode()}: longer than {limits.PUBLISH_OPTION_BYTES_MAX} bytes")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def shown(message: Message) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that tell the properties of a message, as far as a header can: the rest is in
    JSON.
    """
    headers, fields = amqp.read_fields(as_amqp(message.template))
    told = {_TEXT_NAMES[field]: value for field, value in fields.items() if field in _TEXT_NAMES}
    if "expiration" in fields:
        told[_EXPIRATION.decode()] = f"{fields['expiration']}ms"
    told |= {
        HEADER_PREFIX.decode() + name: value for name, value in headers.items() if _TOKEN.fullmatch(name)
    }
    found = [(b"content-type", _content_type(fields).encode())]
    size = 0
    for name, value in told.items():
        text = _as_text(value)
        if text is None:
            continue
        size += len(name) + len(text)
        if size > limits.MQCORE_HEADERS_BYTES_MAX:
            break
        found.append((name.lower().encode(), text.encode()))
    return tuple(found)


_TEXT_NAMES: Final = {
    **{field: name.decode() for name, field in _TEXTS.items()},
    "priority": _PRIORITY.decode(),
}


def _as_text(value: Any) -> str | None:
    """Return the value in a header; None if none can have it."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, int | float | str) else ""
    return text if text and text.isascii() and text.isprintable() else None


def _content_type(fields: Mapping[str, Any]) -> str:
    kind = str(fields.get(CONTENT_TYPE) or "")
    return kind if kind and kind.isascii() and kind.isprintable() else "application/octet-stream"
