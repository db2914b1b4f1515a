"""Messages whose translations `record_rabbitmq` records, and how what comes out is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from protocols.amqp091 import content
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties, decode_properties, encode_properties
from tests import amqp10_values as v
from tests.amqp10_values import Value

ID: Final = UUID("12345678-1234-5678-1234-567812345678")
AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AT_MS: Final = 1_767_323_045_000
DATA: Final = v.section(v.DATA, ("binary", b"body"))


def _string(text: str) -> Value:
    return "string", text


def _properties(**given: Value) -> bytes:
    fields = [(name.replace("_", "-"), value) for name, value in given.items()]
    return v.section(v.PROPERTIES, v.fields(fields, v.PROPERTIES))


def _header(**given: Value) -> bytes:
    fields = [(name.replace("_", "-"), value) for name, value in given.items()]
    return v.section(v.HEADER, v.fields(fields, v.HEADER))


def _application(*pairs: tuple[str, Value]) -> bytes:
    return v.section(v.APPLICATION_PROPERTIES, ("map", [(_string(name), value) for name, value in pairs]))


def _annotations(*pairs: tuple[str, Value]) -> bytes:
    return v.section(v.MESSAGE_ANNOTATIONS, ("map", [(("symbol", name), value) for name, value in pairs]))


_ALL: Final = _properties(
    message_id=_string("m1"), user_id=("binary", b"guest"), to=_string("/queues/q"), subject=_string("order"),
    reply_to=_string("/queues/r%20s"), correlation_id=_string("c1"), content_type=("symbol", "text/plain"),
    content_encoding=("symbol", "gzip"), absolute_expiry_time=("timestamp", AT_MS + 9_000_000_000_000),
    creation_time=("timestamp", AT_MS), group_id=_string("g"), group_sequence=("uint", 7),
    reply_to_group_id=_string("rg"),
)  # fmt: skip

AMQP10: Final[dict[str, bytes]] = {
    "body alone": DATA,
    "empty body": v.section(v.DATA, ("binary", b"")),
    "body with a long size that needs none": b"\x00\x53\x75\xb0\x00\x00\x00\x04body",
    "body of 300 bytes": v.section(v.DATA, ("binary", b"x" * 300)),
    "descriptor as eight bytes": b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x04body",
    "two data sections": DATA + v.section(v.DATA, ("binary", b"more")),
    "value string": v.section(v.VALUE, _string("text")),
    "value null": v.section(v.VALUE, ("null", None)),
    "value map": v.section(v.VALUE, ("map", [(_string("a"), ("int", 5))])),
    "two sequences": v.section(v.SEQUENCE, ("list", [("int", 1)])) + v.section(v.SEQUENCE, ("list", [])),
    "value with properties": _properties(content_type=("symbol", "text/x")) + v.section(v.VALUE, ("int", 1)),
    "footer": DATA + v.section(v.FOOTER, ("map", [(("symbol", "x-sum"), ("int", 9))])),
    "delivery annotations": v.section(v.DELIVERY_ANNOTATIONS, ("map", [(("symbol", "x-d"), ("int", 9))]))
    + DATA,
    "durable": _header(durable=("boolean", True)) + DATA,
    "not durable": _header(durable=("boolean", False)) + DATA,
    "empty header": _header() + DATA,
    "priority": _header(priority=("ubyte", 7)) + DATA,
    "priority 4": _header(priority=("ubyte", 4)) + DATA,
    "priority 200": _header(priority=("ubyte", 200)) + DATA,
    "ttl": _header(durable=("boolean", True), ttl=("uint", 600_000)) + DATA,
    "delivery count": _header(first_acquirer=("boolean", False), delivery_count=("uint", 3)) + DATA,
    "all properties": _ALL + DATA,
    "everything": _header(durable=("boolean", True), priority=("ubyte", 5))
    + _annotations(("x-a", _string("b"))) + _ALL + _application(("k", _string("w"))) + DATA,
    "message ID ulong": _properties(message_id=("ulong", 5), correlation_id=("ulong", 1 << 63)) + DATA,
    "message ID UUID": _properties(message_id=("uuid", ID), correlation_id=("uuid", ID)) + DATA,
    "message ID binary": _properties(message_id=("binary", b"ab"), correlation_id=("binary", b"cd")) + DATA,
    "message ID no text": _properties(message_id=("binary", b"\xff"), correlation_id=("binary", b"\xfe"))
    + DATA,
    "message ID of 256 letters": _properties(
        message_id=_string("m" * 256), correlation_id=_string("c" * 256)
    ) + DATA,
    "message ID of 255 letters": _properties(message_id=_string("m" * 255)) + DATA,
    "reply-to exchange": _properties(reply_to=_string("/exchanges/amq.topic/a.b")) + DATA,
    "reply-to other exchange": _properties(reply_to=_string("/exchanges/e/a.b")) + DATA,
    "reply-to text": _properties(reply_to=_string("whatever")) + DATA,
    "creation time with milliseconds": _properties(creation_time=("timestamp", AT_MS + 987)) + DATA,
    "long content type": _properties(content_type=("symbol", "t" * 256)) + DATA,
    "application properties": _application(
        ("string", _string("text")), ("true", ("boolean", True)), ("false", ("boolean", False)),
        ("ubyte", ("ubyte", 200)), ("ushort", ("ushort", 60_000)), ("uint", ("uint", 4_000_000_000)),
        ("ulong", ("ulong", 1 << 40)), ("byte", ("byte", -5)), ("short", ("short", -300)),
        ("int", ("int", -70_000)), ("long", ("long", -(1 << 40))), ("float", ("float", 1.5)),
        ("double", ("double", 2.5)), ("timestamp", ("timestamp", AT_MS)), ("binary", ("binary", b"\x01\xff")),
        ("symbol", ("symbol", "sym")), ("null", ("null", None)),
    ) + DATA,
    "application property x-": _application(("x-a", _string("b"))) + DATA,
    "application property ulong above 2^63": _application(("n", ("ulong", (1 << 63) + 5))) + DATA,
    "application property UUID": _application(("id", ("uuid", ID))) + DATA,
    "application property char": _application(("c", ("char", 65))) + DATA,
    "application property decimal": _application(("d", ("decimal32", b"\x22\x50\x00\x01"))) + DATA,
    "annotations": _annotations(
        ("x-a", _string("b")), ("x-n", ("int", 5)), ("x-opt-o", _string("p")), ("x-basic-type", _string("t")),
        ("x-list", ("list", [("int", 1), _string("two")])), ("x-map", ("map", [(_string("k"), ("int", 1))])),
        ("x-sym", ("symbol", "s")), ("x-t", ("timestamp", AT_MS)),
    ) + DATA,
    "annotation x-exchange": _annotations(("x-exchange", _string("e")), ("x-routing-key", _string("r")))
    + DATA,
    "annotation x-cc": _annotations(("x-cc", ("list", [_string("other")]))) + DATA,
}  # fmt: skip


def _raw091(headers: list[tuple[str, Any]] | None = None, **fields: Any) -> bytes:
    return content.encode_properties(content.Properties(**fields), headers)


AMQP091: Final[dict[str, tuple[bytes, bytes]]] = {
    "plain": (_raw091(), b"body"),
    "empty": (_raw091(), b""),
    "persistent": (_raw091(delivery_mode=2), b"body"),
    "transient": (_raw091(delivery_mode=1), b"body"),
    "priority": (_raw091(priority=5), b"body"),
    "expiration": (_raw091(expiration="600000"), b"body"),
    "texts": (
        _raw091(
            content_type="text/plain", content_encoding="gzip", message_id="m", correlation_id="c",
            user_id="guest", app_id="app", message_type="order", timestamp=AT,
        ),
        b"body",
    ),
    "reply-to": (_raw091(reply_to="r s/%"), b"body"),
    "UUIDs": (_raw091(message_id=f"urn:uuid:{ID}", correlation_id=f"urn:uuid:{ID}"), b"body"),
    "no UUID": (_raw091(message_id="urn:uuid:x", correlation_id=str(ID)), b"body"),
    "headers": (
        _raw091(
            [
                ("s", "text"), ("b", True), ("i", 5), ("neg", -5), ("big", 1 << 40), ("f", 1.5), ("t", AT),
                ("raw", bytearray(b"\x01\xff")), ("n", None), ("l", [1, "two"]), ("m", {"k": 1}),
            ]
        ),
        b"body",
    ),
    "x- headers": (
        _raw091(
            [
                ("x-s", "text"), ("x-i", 5), ("x-l", [1, "two"]), ("x-m", {"k": 1}), ("x-b", False),
                ("x-n", None), ("x-t", AT),
            ]
        ),
        b"body",
    ),
    "x-message-id": (_raw091([("x-message-id", "far"), ("x-correlation-id", "away")]), b"body"),
    "CC": (_raw091([("CC", ["other"])]), b"body"),
    "JMS group": (_raw091([("JMSXGroupID", "g"), ("JMSXGroupSeq", 3)]), b"body"),
    "type amqp-1.0": (_raw091(message_type="amqp-1.0"), v.section(v.VALUE, _string("text"))),
    "type amqp-1.0 sequence": (
        _raw091(message_type="amqp-1.0", content_type="t"), v.section(v.SEQUENCE, ("list", [("int", 1)]))
    ),
}  # fmt: skip


def _block(**fields: Any) -> bytes:
    return encode_properties(Properties(**fields), c.PUBLISH)


MQTT: Final[dict[str, tuple[bytes, bytes, int]]] = {
    "QoS 0": (b"", b"body", 0),
    "QoS 1": (b"", b"body", 1),
    "content type": (_block(content_type="text/plain"), b"body", 1),
    "payload format": (_block(payload_format_indicator=1), b"body", 1),
    "response": (_block(response_topic="r/s t", correlation_data=b"c1"), b"body", 1),
    "correlation data no text": (_block(correlation_data=b"\xff\x00"), b"body", 1),
    "correlation data like a UUID": (_block(correlation_data=f"urn:uuid:{ID}".encode()), b"body", 1),
    "expiry": (_block(message_expiry_interval_s=600), b"body", 1),
    "user properties": (
        _block(user_properties=[("a", "1"), ("x-b", "2"), ("x-opt-c", "3"), ("JMSXGroupID", "g")]), b"body", 1
    ),
    "user properties of one name": (_block(user_properties=[("a", "1"), ("a", "2")]), b"body", 1),
    "encoded sections": (
        _block(content_type="message/vnd.rabbitmq.amqp"), v.section(v.VALUE, _string("text")), 1
    ),
}  # fmt: skip


def shown(value: Any) -> Any:
    """Return a decoded header value as JSON can hold it: its kind before it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return f"int {value}"
    if isinstance(value, float):
        return f"float {value}"
    if isinstance(value, str):
        return f"text {value}"
    if isinstance(value, bytes | bytearray):
        return f"binary {bytes(value).hex()}"
    if isinstance(value, datetime):
        return f"time {value.replace(tzinfo=UTC).isoformat()}"
    if isinstance(value, Decimal):
        return f"decimal {value}"
    if isinstance(value, list):
        return [shown(item) for item in value]
    return {name: shown(item) for name, item in value.items()}


def shown_block(block: bytes) -> dict[str, Any]:
    """Return an MQTT property block as JSON can hold it."""
    found = decode_properties(block, c.PUBLISH)
    correlation = found.correlation_data
    named = {
        "content_type": found.content_type,
        "payload_format": found.payload_format_indicator,
        "expiry": found.message_expiry_interval_s,
        "response_topic": found.response_topic,
        "correlation": None if correlation is None else correlation.hex(),
        "user": [list(pair) for pair in found.user_properties] or None,
    }
    return {name: value for name, value in named.items() if value is not None}
