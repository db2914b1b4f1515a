"""Properties as an AMQP 0.9.1 content header: the flags and list that follow the body size.

What has no field there is a header: `x-payload-format`, `x-correlation-data` (what is no text of at most 255
bytes), `JMSXGroupID`, `JMSXGroupSeq`, a topic above 255 bytes (`x-topic`; the routing key is cut), and under
`x-` and its name any other text that is too long for its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from broker.properties.neutral_model import Header, HeaderValue, Identifier, MessageProperties, RoutedHeaders
from broker.properties.single import single_values
from broker.topics import address_of
from config import limits
from protocols.amqp091 import content
from protocols.errors import LocalProtocolError
from queue_manager.errors import InvalidArgument
from queue_manager.options import DELIVER_AT, NAMES, PLAIN, PublishOptions, read_options

PERSISTENT: Final = b"\x10\x00\x02"  # flags: delivery-mode alone; 2
NONE: Final = b"\x00\x00"
PERSISTENT_MODE: Final = 2
SHORT_STRING_BYTES_MAX: Final = 255
CORRELATION_HEADER: Final = "x-correlation-data"
PAYLOAD_FORMAT_HEADER: Final = "x-payload-format"
TOPIC_HEADER: Final = "x-topic"
GROUP_HEADER: Final = "JMSXGroupID"
GROUP_SEQUENCE_HEADER: Final = "JMSXGroupSeq"

# the fields of the model that are fields here, by the names `content` has
_ATTRIBUTES: Final = {
    name: name
    for name in (
        "content_type",
        "content_encoding",
        "priority",
        "correlation_id",
        "reply_to",
        "message_id",
        "user_id",
        "app_id",
    )
} | {"message_type": "subject"}
_FIELD_TYPES: Final = frozenset((bool, float, Decimal, str, bytes, datetime, type(None)))
_NEUTRAL: Final = _FIELD_TYPES | {int}
_MODES: Final = {None: None, False: 1, True: PERSISTENT_MODE}
_IMPLIED: Final = frozenset(("group_id", "group_sequence"))
_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1
_TIMESTAMP_MS_MAX: Final = 253_402_300_799_000  # the end of the year 9999
DELIVERY_COUNT_HEADER: Final = "x-delivery-count"
ACQUIRED_COUNT_HEADER: Final = "x-acquired-count"
DEATHS_HEADER: Final = "x-death"
OWN_HEADERS: Final = (DELIVERY_COUNT_HEADER, ACQUIRED_COUNT_HEADER, DEATHS_HEADER)
"""Headers that only the broker sets; a publisher's move under another name."""
ORIGINAL_PREFIX: Final = "x-original-"
ENCODED_TYPE: Final = "amqp-1.0"  # of a body that is sections of AMQP 1.0
COPIES: Final = "CC"  # further routing keys of a publish
BLIND_COPIES: Final = "BCC"  # the same, and consumers are not told
_COPIES_NAME: Final = b"\x02CC"
_BLIND_COPIES_NAME: Final = b"\x03BCC"
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    bytearray: "binary",
    datetime: "timestamp",
    Decimal: "decimal",
    dict: "table",
    float: "double",
    list: "array",
    type(None): "void",
}
_OPTION_NAMES: Final = tuple(name.encode() for name in (*NAMES, *OWN_HEADERS))
assert all(b"x-" in name or b"deliver" in name for name in _OPTION_NAMES)


def read(raw: bytes, **known: Any) -> MessageProperties:
    """Read a raw content header that was validated. `known` is what it does not say, such as the topic."""
    for name, value in content.decode_fields(raw).items():
        attribute = _ATTRIBUTES.get(name)
        if attribute is not None:
            known[attribute] = value
            if attribute == "subject":
                known["is_encoded"] = value == ENCODED_TYPE
        elif name == "headers":
            known |= _read_headers(value)
        elif name == "delivery_mode":
            known["persistent"] = value == PERSISTENT_MODE
        elif name == "timestamp":
            known["created_at_ms"] = int(value.timestamp() * 1000)
        elif name == "expiration":
            if value.isascii() and value.isdigit():
                known["ttl_ms"] = int(value)
            elif value:
                known["headers"] = [(name, value), *known.get("headers", ())]
    return MessageProperties(**known)


def _read_headers(headers: list[tuple[str, Any]]) -> dict[str, Any]:
    named = [(name, value if type(value) in _NEUTRAL else _neutral(value)) for name, value in headers]
    known: dict[str, Any] = {"headers": named, "last_header_counts": True, "implied": _IMPLIED}
    for name, value in named:
        if name == GROUP_HEADER:
            known["group_id"] = value
        elif name == GROUP_SEQUENCE_HEADER:
            known["group_sequence"] = value
    return known


def write(properties: MessageProperties) -> bytes:
    """Return the raw content header of a message, whatever its properties were read from."""
    headers = list(properties.headers)
    implied = properties.implied
    fields = content.Properties(
        content_type=_short(properties.content_type, "x-content-type", headers),
        delivery_mode=_MODES[properties.persistent],
        priority=None if "priority" in implied else properties.priority,
        reply_to=_short(_reply_to(properties), "x-response-topic", headers),
        expiration=None if properties.ttl_ms is None else str(properties.ttl_ms),
        correlation_id=_short(properties.correlation_id, CORRELATION_HEADER, headers),
        content_encoding=_short(properties.content_encoding, "x-content-encoding", headers),
        message_id=_short(properties.message_id, "x-message-id", headers),
        timestamp=_timestamp(properties.created_at_ms),
        message_type=_message_type(properties, headers),
        user_id=_short(properties.user_id, "x-user-id", headers),
        app_id=_short(properties.app_id, "x-app-id", headers),
    )
    if properties.payload_format is not None:
        headers.append((PAYLOAD_FORMAT_HEADER, properties.payload_format))
    if "group_id" not in implied and properties.group_id is not None:
        headers.append((GROUP_HEADER, properties.group_id))
    if "group_sequence" not in implied and properties.group_sequence is not None:
        headers.append((GROUP_SEQUENCE_HEADER, properties.group_sequence))
    kept = [
        (_unshadowed(name), value if type(value) in _FIELD_TYPES else _field_value(value))
        for name, value in headers
        if len(name.encode(errors="replace")) <= SHORT_STRING_BYTES_MAX
    ]
    if properties.deaths:
        # when it last died is told by AMQP 1.0 alone
        history = [
            {name: _field_value(value) for name, value in death.items() if name != "last-time"}
            for death in properties.deaths
        ]
        kept.append((DEATHS_HEADER, history))
    raw = content.encode_properties(fields, kept or None)
    if routing_key(properties.topic) != properties.topic:
        raw = content.append_headers(raw, [(TOPIC_HEADER, properties.topic)])
    return raw


def _reply_to(properties: MessageProperties) -> str | None:
    """Return the address of answers: a response topic of one level is not to be taken for a queue."""
    topic = properties.response_topic
    if topic and topic == properties.reply_to and "/" not in topic:
        return address_of(topic)
    return properties.reply_to


def _message_type(properties: MessageProperties, headers: list[Header]) -> str | None:
    if properties.is_encoded:
        return ENCODED_TYPE
    return None if "subject" in properties.implied else _short(properties.subject, "x-type", headers)


def without_shadows(raw: bytes) -> bytes:
    """Return `raw` without headers that consumers, or dead-lettering, could take for the broker's."""
    for name in OWN_HEADERS:
        raw = content.rename_header(raw, name, ORIGINAL_PREFIX + name)
    return raw


def _unshadowed(name: str) -> str:
    return ORIGINAL_PREFIX + name if name in OWN_HEADERS else name


def routing_key(topic: str) -> str:
    """Return the topic as far as a short string holds it."""
    return topic.encode()[:SHORT_STRING_BYTES_MAX].decode(errors="ignore")


def headers_of(raw: bytes) -> dict[str, Any]:
    """Return the headers by name, as exchanges want them; of several with one name the last counts."""
    return RoutedHeaders(content.decode_headers(raw), lambda: read(raw))


def may_copy(raw: bytes) -> bool:
    """Return whether there may be a header with further routing keys."""
    return b"CC" in raw and (_COPIES_NAME in raw or _BLIND_COPIES_NAME in raw)


def copy_keys(raw: bytes) -> list[str]:
    """Return the routing keys of the headers CC and BCC; raises InvalidArgument where they are no list, or
    too many.
    """
    headers = headers_of(raw)
    keys: list[str] = []
    for name in (COPIES, BLIND_COPIES):
        value = headers.get(name, ())
        if not isinstance(value, list | tuple):
            raise InvalidArgument(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{field_type_name(value)}}}'
            )
        keys += [key for key in value if isinstance(key, str)]
    if len(keys) > limits.COPY_KEYS_MAX:
        raise InvalidArgument(f"CC and BCC have at most {limits.COPY_KEYS_MAX} routing keys")
    return keys


def field_type_name(value: object) -> str:
    """Return RabbitMQ's name for the type of a field."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    return _TYPE_NAMES.get(type(value), "longstr")


def write_fields(persistent: bool, fields: Mapping[str, Any], headers: Mapping[str, Any] | None) -> bytes:
    """Return a raw content header with these of `FIELDS` and these headers.

    Raises InvalidArgument for what is no field, or has a value that none can have.
    """
    try:
        properties = content.Properties(delivery_mode=PERSISTENT_MODE if persistent else 1, **fields)
        raw = content.encode_properties(properties, list(headers.items()) if headers else None)
        content.check_properties(raw)
    except (TypeError, ValueError, LocalProtocolError) as error:
        raise InvalidArgument(f"these are no message properties: {error}") from None
    return raw


FIELDS: Final = (
    "content_type", "content_encoding", "priority", "correlation_id", "reply_to", "expiration", "message_id",
    "timestamp", "message_type", "user_id", "app_id",
)  # fmt: skip


def read_fields(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the headers by name and those of `FIELDS` that are there, as an AMQP consumer sees them."""
    fields = content.decode_fields(raw)
    return dict(fields.get("headers", ())), {name: fields[name] for name in FIELDS if name in fields}


def expiration_of(raw: bytes) -> bytes:
    """Return the expiration as the publisher wrote it; b"" when there is none."""
    return content.peek_fields(raw)[2] or b""


def stamp(raw: bytes, headers: Sequence[Header]) -> bytes:
    """Return `raw` for a copy that the broker makes: with these headers, each in the place of what had its
    name, and without an expiration; the rest stays byte for byte.
    """
    return content.without_expiration(content.append_headers(raw, headers))


def with_headers(raw: bytes, headers: Sequence[Header]) -> bytes:
    """Return `raw` with these headers, each in the place of what had its name; the rest stays byte for
    byte.
    """
    return content.append_headers(raw, headers)


def bare(raw: bytes, names: Iterable[str]) -> bytes:
    """Return `raw` without the headers of these names and without an expiration; the rest stays byte for
    byte.
    """
    return content.without_expiration(content.without_headers(raw, names))


def without_headers(raw: bytes, names: Iterable[str]) -> bytes:
    """Return `raw` without the headers of these names; the rest stays byte for byte."""
    return content.without_headers(raw, names)


def may_ask(raw: bytes) -> bool:
    """Return whether there may be headers among the properties that the broker acts on."""
    return may_have_options(raw) or may_copy(raw)


def may_have_options(raw: bytes) -> bool:
    """Return whether `options_of` may find something in the headers."""
    # all their names have one of these in them; most properties do not
    return (b"x-" in raw or b"deliver" in raw) and any(name in raw for name in _OPTION_NAMES)


def options_of(raw: bytes) -> PublishOptions:
    """Return what a publish with these properties asks for; raises InvalidArgument."""
    _, priority, expiration = content.peek_fields(raw)
    values: dict[str, object] = {}
    if may_have_options(raw):
        values = single_values(content.decode_headers(raw), "header", NAMES)
        deliver_at = values.get(DELIVER_AT)
        if isinstance(deliver_at, datetime):
            values[DELIVER_AT] = int(deliver_at.timestamp() * 1000)
    elif not priority and expiration is None:
        return PLAIN
    ttl_ms = None if expiration is None else _ttl_ms(expiration)
    return read_options(values, priority=priority, ttl_ms=ttl_ms)


def _ttl_ms(expiration: bytes) -> int:
    """Return the milliseconds of an expiration; raises InvalidArgument for what is none, in RabbitMQ's
    words.
    """
    text = expiration.decode(errors="replace")
    number = re.match(r"[+-]?\d+", text, re.ASCII)
    if number is None:
        reason = "no_integer"
    elif number.end() < len(text):
        reason = f'{{leftover_string,"{text[number.end() :]}"}}'
    elif (ttl_ms := int(text)) < 0:
        reason = f"{{value_negative,{ttl_ms}}}"
    elif ttl_ms > limits.DURATION_MS_MAX:
        reason = f"{{value_too_large,{ttl_ms}}}"
    else:
        return ttl_ms
    raise InvalidArgument(f"invalid expiration '{text}': {reason}")


def _neutral(value: Any) -> HeaderValue:
    """Return a decoded field value as the model has it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_neutral(item) for item in value]
    if isinstance(value, dict):
        return {name: _neutral(item) for name, item in value.items()}
    result: HeaderValue = value
    return result


def _field_value(value: HeaderValue) -> Any:
    """Return a header value as a field table can hold it: what has no type there is a text."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int) and not _INTEGER_MIN <= value <= _INTEGER_MAX:
        return str(value)
    if isinstance(value, list):
        return [_field_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _field_value(item) for name, item in value.items()}
    return value


def _timestamp(time_ms: int | None) -> datetime | None:
    if time_ms is None:
        return None
    return datetime.fromtimestamp(min(max(time_ms, 0), _TIMESTAMP_MS_MAX) / 1000, UTC)


def _short(value: Identifier | None, header: str, headers: list[Header]) -> str | None:
    """Return the value as a short string; what none can hold becomes a header."""
    if value is None:
        return None
    text: str | None
    if isinstance(value, bytes):
        text = _text(value)
    else:
        text = value.urn if isinstance(value, UUID) else str(value)
        if len(text.encode(errors="replace")) > SHORT_STRING_BYTES_MAX:
            text = None
    if text is None:
        headers.append((header, value))
    return text


def _text(data: bytes) -> str | None:
    if not data or len(data) > SHORT_STRING_BYTES_MAX:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
