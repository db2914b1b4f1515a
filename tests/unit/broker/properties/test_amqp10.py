"""What the broker reads in messages of AMQP 1.0: options, routing, filters, message groups, dead letters."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from broker.properties import amqp10, death_headers
from broker.properties.amqp10_sections import PublishReader, may_ask
from broker.properties.filter_fields import fields_of
from broker.properties.message_groups import group_key
from broker.properties.templates import as_amqp, as_amqp10, copies_of, headers_of
from protocols.amqp091 import content
from protocols.amqp10 import types
from queue_manager.api import PROPERTY_KEYS
from queue_manager.errors import InvalidArgument
from queue_manager.filters import property_filters
from queue_manager.filters.property_filters import PropertyFilter
from queue_manager.model import Message
from queue_manager.options import PLAIN
from queue_manager.rules.dead_letters import Death
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_AMQP10, EnvelopeTemplate
from tests import amqp10_values as v
from tests.amqp10_values import Value

DATA = v.section(v.DATA, ("binary", b"body"))
AT_MS = 1_767_323_045_000
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")


def header(**given: Value) -> bytes:
    return v.section(v.HEADER, v.fields(given.items(), v.HEADER))


def annotated(**given: Value) -> bytes:
    pairs = [(("symbol", name.replace("_", "-")), value) for name, value in given.items()]
    return v.section(v.MESSAGE_ANNOTATIONS, ("map", pairs))


def properties(**given: Value) -> bytes:
    fields = [(name.replace("_", "-"), value) for name, value in given.items()]
    return v.section(v.PROPERTIES, v.fields(fields, v.PROPERTIES))


def application(pairs: dict[str, Value]) -> bytes:
    return v.section(
        v.APPLICATION_PROPERTIES, ("map", [(("string", name), value) for name, value in pairs.items()])
    )


def template_of(*sections: bytes, body: bytes = DATA) -> EnvelopeTemplate:
    published = PublishReader().read(b"".join(sections) + body)
    return EnvelopeTemplate(
        "k", published.properties_kind, published.block, persistent=published.persistent, exchange="e"
    )


def block_of(*sections: bytes) -> bytes:
    return PublishReader().read(b"".join(sections) + DATA).block


# options


def test_a_message_that_asks_for_nothing_has_plain_options() -> None:
    block = block_of(properties(message_id=("string", "m")), application({"k": ("int", 1)}))
    assert not may_ask(block)
    assert not PublishReader().read(properties(message_id=("string", "x-delay")) + DATA).asks
    assert amqp10.options_of(block) is PLAIN
    assert amqp10.options_of(b"") is PLAIN


def test_the_header_asks_for_priority_and_ttl() -> None:
    options = amqp10.options_of(block_of(header(priority=("ubyte", 7), ttl=("uint", 500))))
    assert (options.priority, options.ttl_ms) == (7, 500)


@pytest.mark.parametrize(
    ("name", "value", "attribute", "expected"),
    [
        ("x-opt-delivery-delay", ("ulong", 500), "delay_ms", 500),
        ("x-opt-delivery-delay", ("int", 500), "delay_ms", 500),
        ("x-opt-delivery-time", ("timestamp", AT_MS), "deliver_at_ms", AT_MS),
        ("x-opt-delivery-time", ("long", AT_MS), "deliver_at_ms", AT_MS),
        ("x-delay", ("uint", 20), "delay_ms", 20),
        ("x-deduplication-id", ("string", "d"), "deduplication_id", "d"),
    ],
)
def test_annotations_ask_of_the_broker(name: str, value: Value, attribute: str, expected: object) -> None:
    options = amqp10.options_of(block_of(annotated(**{name: value})))
    assert getattr(options, attribute) == expected


def test_application_properties_ask_as_headers_of_the_other_protocols_do() -> None:
    block = block_of(application({"x-delay": ("int", 20), "x-opt-delivery-delay": ("int", 5)}))
    assert amqp10.options_of(block).delay_ms == 20  # the second is none but as an annotation


@pytest.mark.parametrize(
    "section",
    [
        annotated(x_delay=("string", "soon")), annotated(x_opt_delivery_time=("boolean", True)),
        annotated(x_delay=("int", 1), x_opt_delivery_delay=("int", 2)),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(section: bytes) -> None:
    with pytest.raises(InvalidArgument):
        amqp10.options_of(block_of(section))


# routing


def test_further_routing_keys_stand_in_an_annotation() -> None:
    section = annotated(x_cc=("list", [("string", "a"), ("string", "b")]))
    assert amqp10.copy_keys(block_of(section)) == ["a", "b"]
    assert copies_of(template_of(section)) == ["a", "b"]
    assert may_ask(block_of(section))
    assert PublishReader().read(section + DATA).asks


@pytest.mark.parametrize("value", [("string", "a"), ("array", [("string", "a")]), ("list", [("int", 1)])])
def test_further_routing_keys_that_are_no_list_of_strings_are_refused(value: Value) -> None:
    section = annotated(x_cc=value)
    with pytest.raises(InvalidArgument, match="x-cc"):
        amqp10.copy_keys(block_of(section))
    assert copies_of(template_of(section)) == []


def test_exchanges_route_by_application_properties_annotations_and_the_message_id() -> None:
    template = template_of(
        annotated(x_a=("string", "b")), properties(message_id=("ulong", 9)),
        application({"colour": ("symbol", "red"), "n": ("ubyte", 5)}),
    )  # fmt: skip
    for found in (headers_of(template), amqp10.headers_of(template.properties)):
        assert dict(found) == {"x-a": "b", "colour": "red", "n": 5}
        assert type(found["colour"]) is str
        assert type(found["n"]) is int
        assert found[PROPERTY_KEYS["message_id"]] == 9


def test_a_field_is_read_by_itself() -> None:
    block = block_of(properties(to=("string", "/queues/q"), user_id=("binary", b"guest")))
    assert amqp10.property_of(block, "to") == "/queues/q"
    assert amqp10.property_of(block, "user-id") == b"guest"
    assert amqp10.property_of(block, "group-id") is None
    assert amqp10.property_of(b"", "to") is None


# values


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        ("32800001", Decimal(1)), ("b2800001", Decimal(-1)), ("3200000f", Decimal("1.5")),
        ("31c0000000000001", Decimal(1)), ("31a000000000000f", Decimal("1.5")),
        ("30400000000000000000000000000001", Decimal(1)), ("78000000", float("inf")),
        ("f8000000", float("-inf")), ("6ca00001", Decimal(8_388_609)),
    ],
)  # fmt: skip
def test_decimals_are_read(octets: str, expected: object) -> None:
    kind = {8: "decimal32", 16: "decimal64", 32: "decimal128"}[len(octets)]
    found = headers_of(template_of(application({"d": (kind, bytes.fromhex(octets))})))
    assert found["d"] == expected


def test_a_time_out_of_range_is_a_number() -> None:
    assert headers_of(template_of(application({"t": ("timestamp", 1 << 62)})))["t"] == 1 << 62


# filters


def test_filters_see_every_field_of_the_properties() -> None:
    fields = fields_of(
        template_of(
            properties(
                message_id=("uuid", ID), user_id=("binary", b"me"), to=("string", "t"),
                subject=("string", "s"), reply_to=("string", "r"), correlation_id=("ulong", 5),
                content_type=("symbol", "ct"), content_encoding=("symbol", "ce"),
                absolute_expiry_time=("timestamp", 7), creation_time=("timestamp", AT_MS),
                group_id=("string", "g"), group_sequence=("uint", 3), reply_to_group_id=("string", "rg"),
            ),
            application({"k": ("string", "w"), "a.b": ("int", 5), "JMSType": ("string", "no")}),
        )
    )  # fmt: skip
    assert dict(fields) == {
        "JMSDeliveryMode": "NON_PERSISTENT", "JMSPriority": 4, "header.priority": 4,
        "JMSMessageID": str(ID), "properties.message-id": ID,
        "JMSXUserID": "me", "properties.user-id": "me", "properties.to": "t",
        "JMSType": "s", "properties.subject": "s", "properties.reply-to": "r",
        "JMSCorrelationID": "5", "properties.correlation-id": 5,
        "properties.content-type": "ct", "properties.content-encoding": "ce",
        "properties.absolute-expiry-time": 7,
        "JMSTimestamp": AT_MS, "properties.creation-time": AT_MS,
        "JMSXGroupID": "g", "properties.group-id": "g",
        "JMSXGroupSeq": 3, "properties.group-sequence": 3, "properties.reply-to-group-id": "rg",
        "k": "w", "application-properties.k": "w", "application-properties.a.b": 5,
        "application-properties.JMSType": "no",
    }  # fmt: skip
    assert len(fields) == len(dict(fields))


def test_filters_get_plain_values() -> None:
    given: dict[str, Value] = {
        "n": ("ubyte", 5), "f": ("float", 1.5), "s": ("symbol", "x"), "t": ("timestamp", AT_MS),
        "d": ("decimal32", bytes.fromhex("3200000f")), "u": ("uuid", ID), "none": ("null", None),
    }  # fmt: skip
    fields = fields_of(template_of(application(given)))
    expected: dict[str, Any] = {"n": 5, "f": 1.5, "s": "x", "t": AT_MS, "d": 1.5, "u": ID, "none": None}
    for name, value in expected.items():
        assert fields.get(name) == value
        assert type(fields.get(name)) is type(value)
    assert fields.get("absent", 9) == 9
    with pytest.raises(KeyError):
        fields["absent"]


def test_filters_see_priority_and_durability() -> None:
    fields = fields_of(template_of(header(durable=("boolean", True), priority=("ubyte", 0))))
    assert (fields["JMSPriority"], fields["JMSDeliveryMode"]) == (0, "PERSISTENT")


def test_a_property_filter_matches_an_identifier_of_its_type() -> None:
    fields = fields_of(template_of(properties(message_id=("uuid", ID))))
    assert PropertyFilter(property_filters.PROPERTIES, {"message-id": ID}).matches(fields)
    assert not PropertyFilter(property_filters.PROPERTIES, {"message-id": str(ID)}).matches(fields)


def test_a_filter_decodes_only_what_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = fields_of(template_of(application({f"n{index}": ("int", index) for index in range(50)})))
    read: list[bytes] = []
    decode = types.decode_whole

    def noted(data: bytes) -> Any:
        read.append(data)
        return decode(data)

    monkeypatch.setattr(types, "decode_whole", noted)
    assert fields.get("n7") == 7
    assert fields.get("n7") == 7
    assert read == [b"\x54\x07"]


def test_what_cannot_be_read_is_absent_and_handed_on() -> None:
    broken = b"\x00\x53\x74\xc1\x07\x02\xa1\x01k\xa1\x01\xff"
    template = template_of(broken)
    assert fields_of(template).get("k") is None
    assert headers_of(template) == {}
    assert broken in as_amqp10(template, b"body").message(b"body")


# message groups


def test_the_group_is_that_of_the_properties() -> None:
    section = properties(group_id=("string", "g"), group_sequence=("uint", 2))
    assert group_key(template_of(section)) == ("g", False)


def test_an_application_property_tells_the_group_as_a_header_does() -> None:
    section = application({"JMSXGroupID": ("string", "g"), "JMSXGroupSeq": ("int", -1)})
    assert group_key(template_of(section)) == ("g", True)


# dead letters


def death_of(template: EnvelopeTemplate, reason: str = "expired", queue: str = "q", at: int = 0) -> Death:
    message = Message.__new__(Message)
    message.template = template
    message.offset = 3
    return Death(message, queue, "", reason, 1, AT_MS + at, ["dlq"])


def dead(template: EnvelopeTemplate, **death: Any) -> EnvelopeTemplate:
    stamped = death_headers.stamp(death_of(template, **death))
    return EnvelopeTemplate(
        "dlq", stamped.properties_kind, stamped.properties, persistent=template.persistent
    )


BARE = properties(message_id=("string", "m")) + application({"k": ("int", 1)}) + DATA


def test_a_dead_letter_keeps_the_bare_message_and_tells_its_deaths() -> None:
    published = template_of(
        header(durable=("boolean", True), priority=("ubyte", 3), ttl=("uint", 500)),
        annotated(x_a=("string", "b"), x_cc=("list", [("string", "c")])), body=BARE,
    )  # fmt: skip
    template = dead(published)
    assert template.properties_kind == PROPERTIES_AMQP10
    message = as_amqp10(template, b"body").message(b"body")
    assert message.endswith(BARE)
    found = v.describe(message)
    assert found["header"] == {
        "durable": "boolean True", "priority": "ubyte 3", "first-acquirer": "boolean False",
        "delivery-count": "uint 0",
    }  # fmt: skip
    (deaths,) = (found["annotations"].pop("symbol x-opt-deaths"),)
    assert found["annotations"] == {
        "symbol x-routing-key": "string dlq",
        "symbol x-exchange": "string ",
        "symbol x-first-death-reason": "string expired",
        "symbol x-first-death-queue": "string q",
        "symbol x-first-death-exchange": "string e",
        "symbol x-last-death-reason": "string expired",
        "symbol x-last-death-queue": "string q",
        "symbol x-last-death-exchange": "string e",
        "symbol x-a": "string b",
    }
    kind, death = deaths
    assert kind == "array"
    for name in ("group", "attempts", "topic", "offset"):  # the broker's own
        death.pop(f"symbol {name}")
    assert death == {
        "symbol ttl": "uint 500",
        "symbol queue": "string q",
        "symbol reason": "symbol expired",
        "symbol count": "ulong 1",
        "symbol first-time": f"timestamp {AT_MS}",
        "symbol last-time": f"timestamp {AT_MS}",
        "symbol exchange": "string e",
        "symbol routing-keys": ["array", "string k", "string c"],
    }


def test_a_second_death_in_a_queue_counts_up_and_keeps_the_first_time() -> None:
    template = dead(dead(template_of(body=BARE), reason="rejected"), reason="rejected", at=5)
    found = v.describe(as_amqp10(template, b"body").message(b"body"))
    (_, death) = found["annotations"]["symbol x-opt-deaths"]
    assert death["symbol count"] == "ulong 2"
    assert death["symbol first-time"] == f"timestamp {AT_MS}"
    assert death["symbol last-time"] == f"timestamp {AT_MS + 5}"


def test_the_newest_of_two_deaths_stands_first() -> None:
    template = dead(dead(template_of(body=BARE), reason="rejected"), queue="r")
    found = v.describe(as_amqp10(template, b"body").message(b"body"))
    _, last, first = found["annotations"]["symbol x-opt-deaths"]
    assert (last["symbol queue"], first["symbol queue"]) == ("string r", "string q")


def test_a_message_does_not_go_where_it_expired() -> None:
    template = dead(template_of(body=BARE))
    death = death_of(template, queue="r")
    death.targets = ["q", "other"]
    assert death_headers.stamp(death).avoided == {"q"}


def test_a_dead_letter_is_redriven_to_where_it_came_from() -> None:
    origin = death_headers.origin_of(dead(template_of(body=BARE)))
    assert origin is not None
    assert (origin.queue, origin.topic, origin.exchange) == ("q", "k", "e")
    assert origin.properties_kind == PROPERTIES_AMQP10
    template = EnvelopeTemplate(origin.topic, origin.properties_kind, origin.properties)
    assert as_amqp10(template, b"body").message(b"body").endswith(BARE)
    assert death_headers.origin_of(template_of(body=BARE)) is None


def test_a_consumer_of_0_9_1_sees_deaths_as_x_death() -> None:
    raw = as_amqp(dead(template_of(header(ttl=("uint", 500)), body=BARE)))
    headers = dict(content.decode_headers(raw))
    (death,) = headers["x-death"]
    assert death["queue"] == "q"
    assert death["reason"] == "expired"
    assert death["count"] == 1
    assert death["time"] == AT
    assert death["routing-keys"] == ["k"]
    assert death["original-expiration"] == "500"
    assert "last-time" not in death
    assert headers["x-first-death-queue"] == "q"


def test_a_consumer_of_1_0_sees_the_deaths_of_a_message_of_0_9_1() -> None:
    raw = content.encode_properties(content.Properties(expiration="500"), [("n", 1)])
    template = dead(EnvelopeTemplate("k", PROPERTIES_AMQP, raw, exchange="e"))
    assert template.properties_kind == PROPERTIES_AMQP
    found = v.describe(as_amqp10(template, b"body").message(b"body"))
    _, death = found["annotations"]["symbol x-opt-deaths"]
    assert death["symbol reason"] == "symbol expired"
    assert death["symbol ttl"] == "uint 500"
    assert death["symbol first-time"] == f"timestamp {AT_MS}"
    assert found["application-properties"] == {"string n": "int 1"}


def test_a_publishers_own_x_death_is_not_taken_for_a_history() -> None:
    template = template_of(annotated(x_death=("list", [("map", [(("string", "queue"), ("string", "q"))])])))
    assert death_headers.origin_of(template) is None
    headers = dict(content.decode_headers(as_amqp(template)))
    assert list(headers) == ["x-original-x-death"]


# bodies that are no data


def test_a_body_of_0_9_1_that_says_so_is_sent_as_sections() -> None:
    raw = content.encode_properties(content.Properties(message_type="amqp-1.0"), None)
    template = EnvelopeTemplate("k", PROPERTIES_AMQP, raw)
    body = v.section(v.VALUE, ("string", "text"))
    assert as_amqp10(template, body).message(body).endswith(body)


def test_a_body_of_0_9_1_that_says_so_and_is_none_is_sent_as_data() -> None:
    raw = content.encode_properties(content.Properties(message_type="amqp-1.0"), None)
    template = EnvelopeTemplate("k", PROPERTIES_AMQP, raw)
    assert v.describe(as_amqp10(template, b"body").message(b"body"))["data"] == ["binary 626f6479"]
