"""Messages that come by one protocol and leave by another, beside what RabbitMQ 4.3.6 makes of them.

What it makes is in `rabbitmq43_translations.json`, recorded by `record_rabbitmq`. Where this broker differs
stands in `DIFFERENCES`, with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from broker.properties.amqp10_sections import PublishReader
from broker.properties.templates import as_amqp, as_amqp10, as_mqtt
from protocols.amqp091 import content
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, PROPERTIES_NONE, EnvelopeTemplate
from tests import amqp10_values as v
from tests.unit.broker.properties.translation_cases import ID, shown, shown_block

Case = dict[str, Any]
FILE: Final = Path(__file__).with_name("rabbitmq43_translations.json")
CASES: Final[list[Case]] = json.loads(FILE.read_text())

# why what comes out here is something else
KEPT: Final = "RabbitMQ drops it; here what a protocol has no field for is a header or a user property"
BY_PIKA: Final = "pika, which recorded it, takes doubles for integers"
ONE_NAME: Final = "the header of what is no short string is called so whatever protocol it came by"
AS_TEXT: Final = (
    "bytes that are a text are an identifier in 0.9.1, as MQTT's correlation data is in RabbitMQ, too"
)
NO_ANSWER: Final = "RabbitMQ closes the consumer's connection, or gives it nothing"
WIDTH: Final = (
    "the widths of 0.9.1's integers are not kept; JMS reads an int as a long, too, but no long as an int"
)
SIGN: Final = "RabbitMQ makes a negative number of it"
SHORTER: Final = "a number is written in as few digits as say it"
OWN_ADDRESS: Final = "a publisher's word for what the broker tells of each delivery is told to no one"
GROUPS: Final = "message groups go by it, whatever protocol the consumer has"
FORMAT: Final = "MQTT's payload format comes back when the message does"
TOPICS: Final = "answers go to the topic by `reply_to` as it is"
EXPIRY: Final = "RabbitMQ does not say when the message expires"
TIME: Final = "RabbitMQ adds its own time"
TWICE: Final = "both are there; the client that recorded it takes the last, RabbitMQ drops it"

_LETTERS: Final = 256
DIFFERENCES: Final[dict[tuple[str, str, str], tuple[str, dict[str, Any]]]] = {
    ("amqp10", "mqtt", "priority"): (KEPT, {"user": [["priority", "7"]]}),
    ("amqp10", "mqtt", "priority 4"): (KEPT, {"user": [["priority", "4"]]}),
    ("amqp10", "mqtt", "priority 200"): (KEPT, {"user": [["priority", "200"]]}),
    ("amqp10", "mqtt", "ttl"): (EXPIRY, {"expiry": 600}),
    ("amqp10", "amqp091", "all properties"): (
        KEPT,
        {"type": "order", "headers: JMSXGroupID": "text g", "headers: JMSXGroupSeq": "int 7"},
    ),
    ("amqp10", "mqtt", "all properties"): (
        KEPT,
        {
            "response_topic": "$queue/r s",
            "user": [
                ["content-encoding", "gzip"], ["x-message-id", "m1"], ["timestamp", "1767323045"],
                ["type", "order"], ["user-id", "guest"], ["group-id", "g"], ["group-sequence", "7"],
            ],
        },
    ),
    ("amqp10", "amqp091", "everything"): (
        KEPT,
        {"type": "order", "headers: JMSXGroupID": "text g", "headers: JMSXGroupSeq": "int 7"},
    ),
    ("amqp10", "mqtt", "everything"): (
        KEPT,
        {
            "response_topic": "$queue/r s",
            "user": [
                ["x-a", "b"], ["k", "w"], ["content-encoding", "gzip"], ["priority", "5"],
                ["x-message-id", "m1"], ["timestamp", "1767323045"], ["type", "order"],
                ["user-id", "guest"], ["group-id", "g"], ["group-sequence", "7"],
            ],
        },
    ),
    ("amqp10", "mqtt", "message ID ulong"): (KEPT, {"user": [["x-message-id", "5"]]}),
    ("amqp10", "mqtt", "message ID UUID"): (KEPT, {"user": [["x-message-id", ID.urn]]}),
    ("amqp10", "amqp091", "message ID binary"): (
        AS_TEXT,
        {
            "headers: x-correlation-id": None, "headers: x-message-id": None, "correlation_id": "cd",
            "message_id": "ab",
        },
    ),
    ("amqp10", "mqtt", "message ID binary"): (KEPT, {"user": [["x-message-id", "ab"]]}),
    ("amqp10", "amqp091", "message ID no text"): (
        ONE_NAME, {"headers: x-correlation-id": None, "headers: x-correlation-data": "binary fe"}
    ),
    ("amqp10", "mqtt", "message ID no text"): (KEPT, {"user": [["x-message-id", "\\xff"]]}),
    ("amqp10", "amqp091", "message ID of 256 letters"): (
        ONE_NAME,
        {"headers: x-correlation-id": None, "headers: x-correlation-data": "text " + "c" * _LETTERS},
    ),
    ("amqp10", "mqtt", "message ID of 256 letters"): (KEPT, {"user": [["x-message-id", "m" * _LETTERS]]}),
    ("amqp10", "mqtt", "message ID of 255 letters"): (
        KEPT, {"user": [["x-message-id", "m" * (_LETTERS - 1)]]}
    ),
    ("amqp10", "mqtt", "reply-to other exchange"): (KEPT, {"user": [["reply-to", "/exchanges/e/a.b"]]}),
    ("amqp10", "mqtt", "reply-to text"): (KEPT, {"user": [["reply-to", "whatever"]]}),
    ("amqp10", "mqtt", "creation time with milliseconds"): (KEPT, {"user": [["timestamp", "1767323045"]]}),
    ("amqp10", "amqp091", "long content type"): (
        NO_ANSWER,
        {"fails": None, "headers: x-content-type": "text " + "t" * _LETTERS, "body": "626f6479"},
    ),
    ("amqp10", "amqp091", "application properties"): (
        BY_PIKA, {"headers: double": "float 2.5", "headers: float": "float 1.5"}
    ),
    ("amqp10", "mqtt", "application properties"): (
        f"{KEPT}; {SHORTER}",
        {
            "user": [
                ["string", "text"], ["true", "true"], ["false", "false"], ["ubyte", "200"],
                ["ushort", "60000"], ["uint", "4000000000"], ["ulong", "1099511627776"], ["byte", "-5"],
                ["short", "-300"], ["int", "-70000"], ["long", "-1099511627776"], ["float", "1.5"],
                ["double", "2.5"], ["timestamp", "1767323045"], ["binary", "\x01\\xff"], ["symbol", "sym"],
                ["null", ""],
            ]
        },
    ),
    ("amqp10", "amqp091", "application property ulong above 2^63"): (
        SIGN, {"headers: n": "text 9223372036854775813"}
    ),
    ("amqp10", "amqp091", "application property UUID"): (
        NO_ANSWER, {"fails": None, "headers: id": f"text {ID}", "body": "626f6479"}
    ),
    ("amqp10", "mqtt", "application property UUID"): (
        NO_ANSWER, {"fails": None, "qos": 0, "body": "626f6479", "user": [["id", str(ID)]]}
    ),
    ("amqp10", "amqp091", "application property char"): (
        NO_ANSWER, {"fails": None, "headers: c": "text A", "body": "626f6479"}
    ),
    ("amqp10", "mqtt", "application property char"): (
        NO_ANSWER, {"fails": None, "qos": 0, "body": "626f6479", "user": [["c", "A"]]}
    ),
    ("amqp10", "amqp091", "application property decimal"): (KEPT, {"headers: d": "decimal 5.242881E-27"}),
    ("amqp10", "mqtt", "application property decimal"): (
        NO_ANSWER, {"fails": None, "qos": 0, "body": "626f6479", "user": [["d", "5.242881E-27"]]}
    ),
    ("amqp10", "mqtt", "annotations"): (
        KEPT,
        {
            "user": [
                ["x-a", "b"], ["x-n", "5"], ["x-opt-o", "p"], ["x-list", '[1,"two"]'],
                ["x-map", '{"k":1}'], ["x-sym", "s"], ["x-t", "1767323045"], ["type", "t"],
            ]
        },
    ),
    ("amqp10", "mqtt", "annotation x-exchange"): (OWN_ADDRESS, {"user": None}),
    ("amqp10", "mqtt", "annotation x-cc"): (KEPT, {"user": [["CC", '["other"]']]}),
    ("amqp091", "amqp10", "headers"): (
        f"{BY_PIKA}; {WIDTH}",
        {
            "application-properties: string f": "double 1.5",
            "application-properties: string i": "int 5",
            "application-properties: string neg": "int -5",
        },
    ),
    ("amqp091", "amqp10", "x- headers"): (
        WIDTH,
        {
            "annotations: symbol x-i": "int 5",
            "annotations: symbol x-l": ["list", "int 1", "string two"],
            "annotations: symbol x-m": {"symbol k": "int 1"},
        },
    ),
    ("amqp091", "amqp10", "JMS group"): (
        GROUPS,
        {
            "application-properties: string JMSXGroupSeq": "int 3",
            "properties: group-id": "string g",
            "properties: group-sequence": "uint 3",
        },
    ),
    ("mqtt", "amqp091", "payload format"): (FORMAT, {"headers: x-payload-format": "int 1"}),
    ("mqtt", "amqp091", "response"): (TOPICS, {"headers: x-reply-to-topic": None, "reply_to": "r/s t"}),
    ("mqtt", "amqp091", "correlation data no text"): (
        ONE_NAME, {"headers: x-correlation-id": None, "headers: x-correlation-data": "binary ff00"}
    ),
    ("mqtt", "amqp10", "expiry"): (EXPIRY, {"header: ttl": "uint 600000"}),
    ("mqtt", "amqp091", "expiry"): (TIME, {"timestamp": None}),
    ("mqtt", "amqp091", "user properties of one name"): (TWICE, {"headers: a": "text 2"}),
}  # fmt: skip


def ours(case: Case) -> dict[str, Any]:
    sent = bytes.fromhex(case["sent"])
    if case["from"] == "amqp10":
        published = PublishReader().read(sent)
        body = published.body
        template = EnvelopeTemplate(
            "q", published.properties_kind, published.block, persistent=published.persistent
        )
    elif case["from"] == "amqp091":
        body = bytes.fromhex(case["body"])
        durable = content.decode_properties(sent).delivery_mode == 2
        template = EnvelopeTemplate("q", PROPERTIES_AMQP, sent, persistent=durable)
    else:
        body = bytes.fromhex(case["body"])
        durable = case["qos"] > 0
        kind = PROPERTIES_NONE if durable and not sent else PROPERTIES_MQTT
        template = EnvelopeTemplate("m.a", kind, sent, persistent=durable, exchange="amq.topic")
    if case["to"] == "amqp10":
        raw = as_amqp10(template, body).message(body)
        return {**v.describe(raw), "raw": raw.hex()}
    if case["to"] == "mqtt":
        block = as_mqtt(template) if template.properties else b""
        return {"qos": int(template.persistent), "body": body.hex(), **shown_block(block)}
    return {**amqp091_view(template), "body": body.hex()}


def amqp091_view(template: EnvelopeTemplate) -> dict[str, Any]:
    raw = as_amqp(template)
    fields = content.decode_fields(raw)
    named = {"message_type": "type"}
    seen = {named.get(name, name): value for name, value in fields.items() if name != "headers"}
    if "timestamp" in seen:
        seen["timestamp"] = int(seen["timestamp"].timestamp())
    return {**seen, "headers": {name: shown(value) for name, value in fields.get("headers", ())}}


def flat(view: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be compared: each thing by its own name."""
    result: dict[str, Any] = {}
    for name, value in view.items():
        if name in ("raw", "block"):
            continue
        if isinstance(value, dict):
            result |= {f"{name}: {key}": item for key, item in value.items()}
        else:
            result[name] = value
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['from']}-{case['to']}-{case['name']}")
def test_a_message_comes_out_as_of_rabbitmq_but_where_a_reason_is_told(case: Case) -> None:
    _, other = DIFFERENCES.get((case["from"], case["to"], case["name"]), ("", {}))
    expected = {name: value for name, value in (flat(case["got"]) | other).items() if value is not None}
    found = ours(case)
    assert {name: value for name, value in flat(found).items() if value is not None} == expected
    if case["from"] == case["to"] == "amqp10":
        # from the properties on, octet for octet
        assert bare(bytes.fromhex(found["raw"])) == bare(bytes.fromhex(case["sent"]))
        assert bare(bytes.fromhex(found["raw"])) == bare(bytes.fromhex(case["got"]["raw"]))


def bare(message: bytes) -> bytes:
    """Return the bare message and the footer of a message."""
    at = 0
    while message[at + 2] < v.PROPERTIES and message[at + 1] == 0x53:
        _, at = v.decode(message, at)
    return message[at:]


def test_every_difference_is_one_of_a_case_that_was_recorded() -> None:
    recorded = {(case["from"], case["to"], case["name"]) for case in CASES}
    assert set(DIFFERENCES) <= recorded
