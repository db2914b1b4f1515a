"""What publishers ask for in properties, by either protocol."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.properties.amqp import options_of as of_amqp
from broker.properties.mqtt import options_of as of_mqtt
from protocols.amqp091.content import Properties as AmqpProperties
from protocols.amqp091.content import encode_properties as encode_amqp
from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties as MqttProperties
from protocols.mqtt.properties import encode_properties as encode_mqtt
from queue_manager.errors import InvalidArgument
from queue_manager.options import PLAIN, TIME_MS_MAX, PublishOptions


def amqp(expiration: str | None = None, priority: int | None = None, **headers: object) -> PublishOptions:
    properties = AmqpProperties()
    properties.expiration = expiration
    properties.priority = priority
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return of_amqp(encode_amqp(properties, pairs or None))


def mqtt(expiry_s: int | None = None, **pairs: str) -> PublishOptions:
    properties = MqttProperties()
    properties.message_expiry_interval_s = expiry_s
    properties.user_properties = [(name.replace("_", "-"), value) for name, value in pairs.items()]
    return of_mqtt(encode_mqtt(properties, c.PUBLISH))


def test_nothing_asked_for() -> None:
    assert amqp() is PLAIN
    assert amqp(colour="red") is PLAIN
    assert mqtt() is PLAIN
    assert of_mqtt(b"") is PLAIN
    assert mqtt(colour="red") is PLAIN


def test_both_protocols_ask_alike() -> None:
    wanted = PublishOptions(
        priority=7,
        ttl_ms=60_000,
        delay_ms=5_000,
        deliver_at_ms=4_102_444_800_000,
        deduplication_id="a1",
        producer_id="p",
        producer_sequence=3,
    )
    assert wanted == amqp(
        "60000", 7, x_delay=5_000, deliver_at=4_102_444_800_000, x_deduplication_id="a1",
        x_producer_id="p", x_producer_sequence=3,
    )  # fmt: skip
    assert wanted == mqtt(
        60, priority="7", x_delay="5000", deliver_at="4102444800000", x_deduplication_id="a1",
        x_producer_id="p", x_producer_sequence="3",
    )  # fmt: skip


def test_an_amqp_timestamp_is_a_time_too() -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    assert amqp(deliver_at=at).deliver_at_ms == 4_102_444_800_000


def test_a_time_in_the_past_is_at_once() -> None:
    assert amqp(deliver_at=1).due_ms(5_000) == 5_000


def test_a_delay_ends_within_the_year_9999() -> None:
    options = amqp(x_delay=TIME_MS_MAX - 1_000)
    assert options.due_ms(1_000) == TIME_MS_MAX
    with pytest.raises(InvalidArgument, match="x-delay .* ends after the year 9999"):
        options.due_ms(1_001)


@pytest.mark.parametrize("name", ["x-delay", "deliver-at", "x-deduplication-id"])
def test_what_is_there_twice_is_refused(name: str) -> None:
    of_both = [(name, "1"), ("colour", "red"), ("colour", "blue"), (name, "2")]
    with pytest.raises(InvalidArgument, match=f"header {name} is there more than once"):
        of_amqp(encode_amqp(AmqpProperties(), list(of_both)))
    properties = MqttProperties()
    properties.user_properties = of_both
    with pytest.raises(InvalidArgument, match=f"user property {name} is there more than once"):
        of_mqtt(encode_mqtt(properties, c.PUBLISH))


def test_priority_is_there_once() -> None:
    properties = MqttProperties()
    properties.user_properties = [("priority", "0"), ("priority", "3")]
    with pytest.raises(InvalidArgument, match="priority is there more than once"):
        of_mqtt(encode_mqtt(properties, c.PUBLISH))


@pytest.mark.parametrize(
    "headers",
    [
        {"x_delay": "soon"},
        {"x_delay": -1},
        {"x_delay": "-1"},
        {"deliver_at": -5},
        {"x_producer_sequence": -1, "x_producer_id": "p"},
        {"x_delay": 1.5},
        {"x_delay": True},
        {"x_delay": 1 << 60},
        {"deliver_at": "tomorrow"},
        {"x_deduplication_id": ""},
        {"x_deduplication_id": "x" * 256},
        {"x_producer_id": "p"},
        {"x_producer_sequence": 1},
        {"x_producer_sequence": "first", "x_producer_id": "p"},
        {"x_producer_sequence": "-1", "x_producer_id": "p"},
        {"x_producer_sequence": str(1 << 63), "x_producer_id": "p"},
    ],
)
def test_what_is_wrong_is_refused_by_name(headers: dict[str, object]) -> None:
    name = next(iter(headers)).replace("_", "-")
    with pytest.raises(InvalidArgument, match=name):
        amqp(**headers)


@pytest.mark.parametrize("expiration", ["soon", "-1", "1.5", "9" * 20])
def test_a_wrong_expiration(expiration: str) -> None:
    with pytest.raises(InvalidArgument):
        amqp(expiration)


@pytest.mark.parametrize("priority", ["high", "-1", "256", "9" * 5_000])
def test_a_wrong_priority(priority: str) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        mqtt(priority=priority)
