"""Properties as AMQP 1.0 has them: header, message annotations, properties, application properties.

What the neutral model has no field for stays in the stored block, which consumers of AMQP 1.0 get as it came.
Between the protocols it is as in RabbitMQ 4.3: headers that begin `x-` are annotations, others application
properties; 0.9.1's `type` is the annotation `x-basic-type`, its `app_id` the group-id, its CC `x-cc`; UUIDs
are `urn:uuid:...`; a body that is no data has the type `amqp-1.0`, or MQTT's content type
`message/vnd.rabbitmq.amqp`. `tests/unit/broker/properties/test_rabbitmq_translations.py` lists what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import UUID

from broker.properties.amqp10_sections import (
    APPLICATION_PROPERTIES,
    COPIES,
    DEATHS,
    DELIVERY_DELAY,
    DELIVERY_TIME,
    EXCHANGE,
    FORM_DATA,
    FORM_SECTIONS,
    MESSAGE_ANNOTATIONS,
    ROUTING_KEY,
    Annotations,
    Block,
    Delivery,
    annotation_pairs,
    decoded,
    encoded_map,
    read_block,
)
from broker.properties.amqp10_sections import (
    may_ask as may_ask,
)
from broker.properties.neutral_model import Header, HeaderMap, HeaderValue, MessageProperties
from broker.properties.single import single_values
from broker.topics import address_of as topic_address
from broker.topics import addressed_topic
from config import limits
from protocols.amqp10 import types
from protocols.amqp10.types import Array, Described, Int, Symbol, Timestamp, ULong
from queue_manager.address import address_of
from queue_manager.errors import InvalidArgument
from queue_manager.filters.field_access import PROPERTY_FIELDS
from queue_manager.filters.stream_values import FIELD as STREAM_FILTER_VALUE
from queue_manager.options import DELAY, DELIVER_AT, NAMES, PLAIN, PublishOptions, read_options

BASIC_TYPE: Final = "x-basic-type"
QUEUES_PREFIX: Final = "/queues/"
EXCHANGES_PREFIX: Final = "/exchanges/"
_COPIES_HEADER: Final = "CC"
_DEATHS_HEADER: Final = "x-death"
_URN: Final = "urn:uuid:"
_INDEX: Final = {name: index for index, name in enumerate(PROPERTY_FIELDS)}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_INT: Final = 1 << 31
_LONG: Final = 1 << 63
_UINT_MAX: Final = (1 << 32) - 1
_OPTION_NAMES: Final = frozenset(NAMES)
_COPIES_AS_BYTES: Final = COPIES.encode()
_UNTRANSLATED: Final = frozenset((BASIC_TYPE, COPIES, DEATHS, EXCHANGE, ROUTING_KEY))


# reading


def read(block: bytes, **known: Any) -> MessageProperties:
    """Read a stored block. `known` is what it does not say: the topic, whether the message is durable."""
    source = read_block(block)
    known["priority"], known["ttl_ms"] = source.header()
    field = source.property_at
    for name, attribute in _ATTRIBUTES:
        value = field(_INDEX[name])
        if value is not None:
            known[attribute] = neutral(value)
    group_id = known.get("group_id")
    if group_id is not None:
        known["app_id"] = group_id
    created = known.get("created_at_ms")
    if created is not None:
        known["created_at_ms"] = milliseconds(created)
    known |= _reply_to(known.pop("reply_to", None))
    basic_type = source.value(MESSAGE_ANNOTATIONS, BASIC_TYPE)
    if isinstance(basic_type, str):
        known["subject"] = str(basic_type)
    known["is_encoded"] = source.form == FORM_SECTIONS
    headers: list[Header] = list(_headers(source))
    copies = source.value(MESSAGE_ANNOTATIONS, COPIES)
    if isinstance(copies, list):
        headers.insert(0, (_COPIES_HEADER, [str(key) for key in copies if isinstance(key, str)]))
    known["headers"] = headers
    known["deaths"] = deaths_of(source)
    return MessageProperties(**known)


_ATTRIBUTES: Final = (
    ("message-id", "message_id"),
    ("user-id", "user_id"),
    ("subject", "subject"),
    ("reply-to", "reply_to"),
    ("correlation-id", "correlation_id"),
    ("content-type", "content_type"),
    ("content-encoding", "content_encoding"),
    ("creation-time", "created_at_ms"),
    ("group-id", "group_id"),
    ("group-sequence", "group_sequence"),
)


def _headers(source: Block) -> Iterator[Header]:
    for code in (MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES):
        for name, encoded in source.pairs(code).items():
            if code == MESSAGE_ANNOTATIONS and name in _UNTRANSLATED:
                continue
            value = decoded(encoded)
            if value is not None or encoded == b"\x40":  # what cannot be read is not translated
                yield name, neutral(value)


def _reply_to(address: object) -> dict[str, str]:
    """Return how other protocols say an address: a queue by its name (`$queue/...` over MQTT), a topic of
    MQTT as such.
    """
    if not isinstance(address, str):
        return {}
    topic = addressed_topic(address)
    if topic is not None:
        return {"reply_to": address, "response_topic": topic}
    if address.startswith(QUEUES_PREFIX):
        name = unquote(address[len(QUEUES_PREFIX) :])
        return {"reply_to": name, "response_topic": address_of(name)}
    return {"reply_to": address, "response_topic": ""}


def neutral(value: Any) -> Any:
    """Return a value of AMQP 1.0 as the neutral model has it: without the width of numbers, symbols and
    characters as texts.
    """
    convert = _NEUTRAL.get(type(value))
    return value if convert is None else convert(value)


def _time(value: int) -> datetime | int:
    try:
        return _EPOCH + int(value) * _MILLISECOND
    except OverflowError:
        return int(value)


def _decimal(octets: bytes) -> Decimal | float:
    """Return a decimal of IEEE 754-2008, encoded as a binary integer."""
    bits = 8 * len(octets)
    exponent_bits = {32: 8, 64: 10, 128: 14}[bits]
    number = int.from_bytes(octets, "big")
    coefficient_bits = bits - 1 - exponent_bits
    top = number >> (bits - 5) & 0xF
    if top == 0xF:
        return float("nan") if number >> (bits - 6) & 1 else float("-inf" if number >> (bits - 1) else "inf")
    coefficient = number & ((1 << coefficient_bits) - 1)
    exponent = number >> coefficient_bits
    if top >= 0xC:
        exponent = number >> (coefficient_bits - 2)
        coefficient = number & ((1 << (coefficient_bits - 2)) - 1) | 1 << coefficient_bits
    exponent &= (1 << exponent_bits) - 1
    bias = {32: 101, 64: 398, 128: 6_176}[bits]
    sign = number >> (bits - 1)
    return Decimal((sign, tuple(map(int, str(coefficient))), exponent - bias))


_NEUTRAL: Final[dict[type, Any]] = {
    **dict.fromkeys((types.UByte, types.UShort, types.UInt, types.ULong, types.Byte, types.Short, Int), int),
    types.Float: float,
    **dict.fromkeys((Symbol, types.Char), str),
    Timestamp: _time,
    **dict.fromkeys((types.Decimal32, types.Decimal64, types.Decimal128), _decimal),
    **dict.fromkeys((list, Array), lambda items: [neutral(item) for item in items]),
    dict: lambda pairs: {str(neutral(name)): neutral(item) for name, item in pairs.items()},
    Described: lambda described: neutral(described.value),
}


def milliseconds(value: object) -> int | None:
    """Return a time in ms since 1970."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def headers_of(block: bytes) -> dict[str, Any]:
    """Return application properties and annotations by name, as exchanges want them."""
    if not block:
        return {}
    return read(block).routed()


def options_of(block: bytes) -> PublishOptions:
    """Return what a publish asks for by its header, its annotations and its application properties; raises
    InvalidArgument.
    """
    if not may_ask(block):
        return PLAIN
    source = read_block(block)
    priority, ttl_ms = source.header()
    asked = ((name, value) for name, value in _asked(source) if value is not None)
    values: dict[str, object] = single_values(asked, "annotation or application property")
    return read_options(values, priority=priority or 0, ttl_ms=ttl_ms)


def _asked(source: Block) -> Iterator[tuple[str, object]]:
    for code in (MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES):
        for name, encoded in source.pairs(code).items():
            if name in _OPTION_NAMES or (code == MESSAGE_ANNOTATIONS and name in _DELIVERY_OPTIONS):
                value = neutral(decoded(encoded))
                if isinstance(value, datetime):
                    value = milliseconds(value)
                yield _DELIVERY_OPTIONS.get(name, name), value


_DELIVERY_OPTIONS: Final = {DELIVERY_TIME: DELIVER_AT, DELIVERY_DELAY: DELAY}


def copy_keys(block: bytes) -> list[str]:
    """Return the further routing keys of a publish (annotation `x-cc`); raises InvalidArgument where they are
    no list of strings, or too many.
    """
    if _COPIES_AS_BYTES not in block:
        return []
    value = read_block(block).value(MESSAGE_ANNOTATIONS, COPIES)
    if value is None:
        return []
    if type(value) is not list or not all(type(key) is str for key in value):
        raise InvalidArgument(f"bad value for '{COPIES}' message-annotation: {value!r}")
    if len(value) > limits.COPY_KEYS_MAX:
        raise InvalidArgument(f"{COPIES} has at most {limits.COPY_KEYS_MAX} routing keys")
    return value


def property_of(block: bytes, name: str) -> Any:
    """Return a field of the properties section as `protocols.amqp10.types` has it, such as `to`; None if
    there is none.
    """
    return read_block(block).property_at(_INDEX[name]) if block else None


# deaths: `x-opt-deaths` here, `x-death` in AMQP 0.9.1


def deaths_of(source: Block) -> list[HeaderMap]:
    """Return the history of a dead letter in the words of `x-death`."""
    value = source.value(MESSAGE_ANNOTATIONS, DEATHS)
    if not isinstance(value, list):
        return []
    return [_death_table(neutral(death)) for death in value if isinstance(death, dict)]


def _death_table(death: dict[str, Any]) -> HeaderMap:
    table = {name: item for name, item in death.items() if name not in ("first-time", "ttl")}
    if "first-time" in death:
        table["time"] = death["first-time"]
    if "ttl" in death:
        table["original-expiration"] = str(death["ttl"])
    return table


def encoded_deaths(deaths: Sequence[HeaderMap], last_ms: int | None = None) -> Array:
    """Return a history as the annotation `x-opt-deaths`. `last_ms` is when the newest death was."""
    maps = []
    for index, death in enumerate(deaths):
        first_ms = milliseconds(death.get("time"))
        made: dict[Symbol, Any] = {}
        expiration = death.get("original-expiration")
        if isinstance(expiration, bytes):
            expiration = expiration.decode(errors="replace")
        if isinstance(expiration, str) and expiration.isascii() and expiration.isdigit():
            made[Symbol("ttl")] = types.UInt(min(int(expiration), _UINT_MAX))
        for name, value in death.items():
            if name in ("queue", "exchange"):
                made[Symbol(name)] = str(value)
            elif name == "reason":
                made[Symbol(name)] = Symbol(value)
            elif name == "count":
                made[Symbol(name)] = ULong(value) if isinstance(value, int) and value >= 0 else ULong(1)
            elif name == "routing-keys":
                keys = value if isinstance(value, list) else ()
                made[Symbol(name)] = Array("string", [key for key in keys if isinstance(key, str)])
            elif name not in ("time", "last-time", "original-expiration") and name.isascii():
                made[Symbol(name)] = typed(value)
        if first_ms is not None:
            again_ms = milliseconds(death.get("last-time")) if index or last_ms is None else last_ms
            made[Symbol("first-time")] = Timestamp(first_ms)
            made[Symbol("last-time")] = Timestamp(first_ms if again_ms is None else again_ms)
        maps.append(made)
    return Array("map", maps)


def stamp(
    block: bytes, headers: Iterable[Header], deaths: Sequence[HeaderMap], last_ms: int | None = None
) -> bytes:
    """Return the block of a dead letter: with these annotations, its history and without a ttl. `last_ms` is
    when the newest death was; None: as the history says.
    """
    added = [(name, typed(value)) for name, value in headers]
    return read_block(block).stamped([*added, (DEATHS, encoded_deaths(deaths, last_ms))])


def without_copies(block: bytes) -> bytes:
    """Return the block without further routing keys."""
    if _COPIES_AS_BYTES not in block:
        return block
    return read_block(block).without((COPIES,))


# writing


def typed(value: HeaderValue) -> Any:
    """Return a header value as `protocols.amqp10.types` has it: integers as int where they fit, else long."""
    if isinstance(value, bool | str | bytes | UUID) or value is None:
        return value
    if isinstance(value, int):
        if -_INT <= value < _INT:
            return Int(value)
        if -_LONG <= value < _LONG:
            return value
        return ULong(value) if 0 <= value < 2 * _LONG else str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return Timestamp((value - _EPOCH) // _MILLISECOND)
    if isinstance(value, Mapping):
        return {_name(name): typed(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [typed(item) for item in value]
    return float(value)


def _name(name: str) -> str:
    return Symbol(name) if name.isascii() else name


def write(properties: MessageProperties, exchange: str) -> Delivery:
    """Return how a message looks to consumers of AMQP 1.0, whatever its properties were read from."""
    annotations: dict[str, Any] = {}
    application: list[bytes] = []
    for name, value in properties.header_values().items():
        if name == _COPIES_HEADER and isinstance(value, list):
            annotations[COPIES] = [key for key in value if isinstance(key, str)]
        elif name == _DEATHS_HEADER and isinstance(value, list):
            history = [death for death in value if isinstance(death, Mapping)]
            annotations[DEATHS] = encoded_deaths(history)
        elif name.startswith("x-") and name.isascii():
            annotations[name] = typed(value)
        elif not isinstance(value, list | Mapping):
            application.append(types.encode_string(name) + types.encode_value(typed(value)))
    if properties.subject is not None and "subject" not in properties.implied:
        annotations[BASIC_TYPE] = properties.subject
    pairs = [
        (name.encode(), types.encode_symbol(name) + types.encode_value(value))
        for name, value in annotations.items()
    ]
    bare = _written_properties(properties)
    if application:
        bare += b"\x00\x53\x74" + encoded_map(application)
    ttl_ms = properties.ttl_ms
    priority = None if "priority" in properties.implied else properties.priority
    return Delivery(
        properties.persistent is True,
        priority,
        None if ttl_ms is None else min(max(ttl_ms, 0), _UINT_MAX),
        Annotations(address_first(exchange, properties.topic, pairs)),
        bare,
        (FORM_SECTIONS if properties.is_encoded else FORM_DATA, b"", b""),
        is_checked=not properties.is_encoded,
    )


def as_published(block: bytes, topic: str, exchange: str, *, persistent: bool) -> Delivery:
    """Return how messages of a stored block look to consumers of AMQP 1.0: the bare message as it came."""
    source = Block(block)
    return Delivery(
        persistent,
        *source.header(),
        _addressed(source.annotations(), exchange, topic),
        source.bare_sections(),
        (source.form, source.framing, source.footer),
    )


def _addressed(section: bytes, exchange: str, topic: str) -> Annotations:
    """Return the annotations of deliveries of what was published with these."""
    if len(section) > limits.AMQP10_KEPT_SECTIONS_BYTES_MAX:
        return _with_address(section, exchange, topic)
    return _kept_addressed(section, exchange, topic)


@lru_cache(maxsize=256)
def _kept_addressed(section: bytes, exchange: str, topic: str) -> Annotations:
    return _with_address(section, exchange, topic)


def _with_address(section: bytes, exchange: str, topic: str) -> Annotations:
    return Annotations(address_first(exchange, topic, annotation_pairs(section)))


def address_first(
    exchange: str, topic: str, pairs: Iterable[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return annotations with exchange and routing key in front."""
    own = [
        (name.encode(), types.encode_symbol(name) + types.encode_string(text))
        for name, text in ((ROUTING_KEY, topic), (EXCHANGE, exchange))
    ]
    names = {name for name, _ in own}
    return own + [pair for pair in pairs if pair[0] not in names]


def _written_properties(properties: MessageProperties) -> bytes:
    user_id = properties.user_id
    group_id: object = properties.app_id
    group_sequence = None
    if group_id is None and isinstance(properties.group_id, str):
        group_id, group_sequence = properties.group_id, properties.group_sequence
    values: list[Any] = [
        _identifier(properties.message_id),
        user_id.encode(errors="replace") if isinstance(user_id, str) else user_id,
        None,
        None,
        _address(properties),
        _identifier(properties.correlation_id),
        _symbol(properties.content_type),
        _symbol(properties.content_encoding),
        None,
        None if properties.created_at_ms is None else Timestamp(properties.created_at_ms),
        group_id,
        types.UInt(group_sequence)
        if isinstance(group_sequence, int) and 0 <= group_sequence <= _UINT_MAX
        else None,
    ]
    while values and values[-1] is None:
        values.pop()
    return b"\x00\x53\x73" + types.encode_list(values) if values else b""


def _identifier(value: Any) -> Any:
    """Return an identifier; a text that says it is a UUID as that."""
    if isinstance(value, int):
        return ULong(value) if 0 <= value < 2 * _LONG else str(value)
    text: object = value
    if isinstance(value, bytes) and value.startswith(_URN.encode()):
        text = value.decode(errors="replace")
    if isinstance(text, str) and text.startswith(_URN):
        try:
            found = UUID(text[len(_URN) :])
        except ValueError:
            return value
        if found.urn == text:
            return found
    return value


def _symbol(text: str | None) -> str | None:
    """Return a symbol; what is none, since it is not ASCII, is left out."""
    return None if text is None or not text.isascii() else Symbol(text)


def _address(properties: MessageProperties) -> str | None:
    topic = properties.response_topic
    if topic:
        return topic if topic.startswith("$") else topic_address(topic)
    text = properties.reply_to
    if not text or text.startswith((QUEUES_PREFIX, EXCHANGES_PREFIX)):
        return text or None
    return QUEUES_PREFIX + quote(text, safe="")


# filters


class FilterFields(Mapping[str, object]):
    """The fields of a message under the names of `queue_manager.filters`; each is decoded when it is asked
    for. `others` are those that stand in no section.
    """

    __slots__ = ("_block", "_found", "_others")

    def __init__(self, block: bytes, others: Mapping[str, object]) -> None:
        self._block = Block(block)
        self._others = others
        self._found: dict[str, object] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field; None for what the message does not have."""
        found = self._found
        if name not in found:
            found[name] = self._read(name)
        value = found[name]
        return default if value is None else value

    def __getitem__(self, name: str) -> object:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = [*self._others, *_FIELD_NAMES]
        for key in self._block.pairs(APPLICATION_PROPERTIES):
            names += (_APPLICATION_PREFIX + key, key)
        return (name for name in dict.fromkeys(names) if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, name: str) -> object:
        other = self._others.get(name)
        if other is not None:
            return other
        field = _JMS_FIELDS.get(name, name)
        if field.startswith(_PROPERTIES_PREFIX):
            index = _INDEX.get(field[len(_PROPERTIES_PREFIX) :])
            value = None if index is None else neutral(self._block.property_at(index))
            if field == "properties.user-id" or (name in _JMS_TEXTS and isinstance(value, bytes)):
                return _text(value)
            return str(value) if name in _JMS_TEXTS and value is not None else compared(value)
        if name == STREAM_FILTER_VALUE:
            return compared(neutral(self._block.value(MESSAGE_ANNOTATIONS, name)))
        key = name
        if name.startswith(_APPLICATION_PREFIX):
            key = name[len(_APPLICATION_PREFIX) :]
        elif "." in name:
            return None
        return compared(neutral(self._block.value(APPLICATION_PROPERTIES, key)))


_PROPERTIES_PREFIX: Final = "properties."
_APPLICATION_PREFIX: Final = "application-properties."
_JMS_FIELDS: Final = {
    "JMSMessageID": "properties.message-id",
    "JMSCorrelationID": "properties.correlation-id",
    "JMSType": "properties.subject",
    "JMSTimestamp": "properties.creation-time",
    "JMSXUserID": "properties.user-id",
    "JMSXGroupID": "properties.group-id",
    "JMSXGroupSeq": "properties.group-sequence",
}
_JMS_TEXTS: Final = frozenset(("JMSMessageID", "JMSCorrelationID"))
_FIELD_NAMES: Final = (*_JMS_FIELDS, *(_PROPERTIES_PREFIX + name for name in PROPERTY_FIELDS))


def compared(value: object) -> object:
    """Return a neutral value as filters compare it."""
    if isinstance(value, datetime):
        return milliseconds(value)
    if isinstance(value, Decimal):
        return float(value)
    return value


def _text(value: object) -> object:
    if not isinstance(value, bytes):
        return compared(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
