"""What a dead letter carries, when it goes round, and who is told about trouble."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.properties import death_headers
from protocols.amqp091.content import Properties, decode_headers, decode_properties, encode_properties
from queue_manager.model import Message
from queue_manager.rules.dead_letters import Death
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

NOW_MS = 1_767_225_600_123


def amqp_template(topic: str = "orders", expiration: str | None = None, **headers: Any) -> EnvelopeTemplate:
    properties = Properties(correlation_id="c", expiration=expiration, reply_to="r", message_id="m")
    return EnvelopeTemplate(topic, PROPERTIES_AMQP, encode_properties(properties, list(headers.items())))


def die(
    template: EnvelopeTemplate, reason: str = "rejected", queue: str = "orders", target: str = "dead"
) -> bytes | None:
    message = Message(9, 4, b"body", template, NOW_MS)
    stamped = death_headers.stamp(Death(message, queue, "g", reason, 3, NOW_MS, [target]))
    if stamped.avoided:
        return None
    assert stamped.properties_kind == PROPERTIES_AMQP
    return stamped.properties


def again(raw: bytes | None) -> EnvelopeTemplate:
    assert raw is not None
    return EnvelopeTemplate("dead", PROPERTIES_AMQP, raw)


def test_every_field() -> None:
    raw = die(amqp_template(expiration="500", mine=1))
    assert raw is not None
    properties = decode_properties(raw)
    assert (properties.correlation_id, properties.reply_to, properties.message_id) == ("c", "r", "m")
    assert properties.expiration is None
    assert dict(decode_headers(raw)) == {
        "mine": 1,
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": "orders",
                "time": datetime.fromtimestamp(NOW_MS // 1000, UTC),
                "exchange": "",
                "routing-keys": ["orders"],
                "group": "g",
                "attempts": 3,
                "topic": "orders",
                "offset": 4,
                "original-expiration": "500",
            }
        ],
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "orders",
        "x-first-death-exchange": "",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "orders",
        "x-last-death-exchange": "",
    }


def test_a_second_death_keeps_the_first() -> None:
    raw = die(again(die(amqp_template())), "delivery_limit", "dead", "graves")
    assert raw is not None
    headers = dict(decode_headers(raw))
    assert [death["queue"] for death in headers["x-death"]] == ["dead", "orders"]
    assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("orders", "dead")
    assert [death.get("topic") for death in headers["x-death"]] == [None, "orders"]


def test_the_same_death_counts_and_comes_first() -> None:
    raw = die(again(die(again(die(amqp_template())), "rejected", "dead")), "rejected", "orders")
    assert raw is not None
    deaths = dict(decode_headers(raw))["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [("orders", 2), ("dead", 1)]


@pytest.mark.parametrize("reason", ["expired", "maxlen", "delivery_limit"])
def test_round_and_round_only_by_rejecting(reason: str) -> None:
    once = again(die(amqp_template(), reason))
    assert die(once, reason, "dead", "orders") is None
    assert die(once, "rejected", "dead", "orders") is not None
    assert die(once, reason, "dead", "elsewhere") is not None
    rejected = again(die(amqp_template(), "rejected"))
    assert die(rejected, reason, "dead", "orders") is not None


@pytest.mark.parametrize("history", ["text", 5, ["text", 7], [{"queue": 3}], []])
def test_a_forged_history_does_no_harm(history: Any) -> None:
    raw = die(amqp_template(**{"x-death": history}), "expired")
    assert raw is not None
    assert dict(decode_headers(raw))["x-death"][0]["queue"] == "orders"


def test_by_mqtt() -> None:
    template = EnvelopeTemplate(
        "$queue/orders/eu", PROPERTIES_MQTT, b"\x02\x00\x00\x00\x05\x26\x00\x01a\x00\x01b", persistent=True
    )
    raw = die(template)
    assert raw is not None
    properties = decode_properties(raw)
    assert (properties.delivery_mode, properties.expiration) == (2, None)
    headers = dict(decode_headers(raw))
    assert headers["a"] == "b"
    assert headers["x-death"][0]["original-expiration"] == "5000"
    assert headers["x-death"][0]["topic"] == "$queue/orders/eu"


def test_the_way_back() -> None:
    raw = die(amqp_template("$queue/orders/eu", mine=1))
    origin = death_headers.origin_of(again(raw))
    assert origin is not None
    assert (origin.queue, origin.topic, origin.exchange) == ("orders", "$queue/orders/eu", "")
    headers = dict(decode_headers(origin.properties))
    assert death_headers.OWN_FIELDS.isdisjoint(headers["x-death"][0])
    assert headers["mine"] == 1
    assert headers["x-death"][0]["count"] == 1
    # another life: what it died of before is known, where it died is told anew
    redriven = EnvelopeTemplate(origin.topic, origin.properties_kind, origin.properties)
    second = die(redriven)
    assert second is not None
    headers = dict(decode_headers(second))
    assert (headers["x-death"][0]["topic"], headers["x-death"][0]["count"]) == ("$queue/orders/eu", 2)


def test_what_is_no_dead_letter_has_no_origin() -> None:
    assert death_headers.origin_of(amqp_template()) is None
    assert death_headers.origin_of(EnvelopeTemplate("t")) is None
    assert death_headers.origin_of(amqp_template(**{"x-death": [{"queue": 5}]})) is None


@pytest.mark.parametrize("is_kept", [True, False])
def test_trouble_in_a_virtual_host_names_the_queue_as_its_clients_do(is_kept: bool) -> None:
    with capture_logs() as lines:
        death_headers.note_refused("tenant\x1dorders", "full", is_kept)
    (line,) = lines
    assert (line["queue"], line["reason"]) == ("orders", "full")
