"""Values out of range and repeated properties are refused with the reason."""

import pytest

from tests.e2e import amqp

pytestmark = pytest.mark.extension

YEAR_9999_MS = 253_402_300_799_999


@pytest.mark.parametrize(("name", "value"), [("x-delay", -1), ("x-delay", YEAR_9999_MS), ("deliver-at", -5)])
def test_time_out_of_range_is_refused(mqtt, channel, queue, name, value):
    assert mqtt().publish(f"$queue/{queue}", b"", user=[(name, str(value))]) == 0x83
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        amqp.publish(channel, queue, "x", headers={name: value})
    assert closed.value.reply_code == 406
    assert name in closed.value.reply_text


def test_repeated_property_of_a_publish_is_refused(mqtt, queue):
    twice = [("x-delay", "1"), ("x-delay", "2")]
    assert mqtt().publish(f"$queue/{queue}", b"", user=twice) == 0x83


def test_repeated_property_of_a_subscription_is_refused(mqtt, queue):
    group = ("consumer-group", "g")
    assert mqtt().subscribe(f"$queue/{queue}", user=[group, ("prefetch", "1"), ("prefetch", "2")]) == 0x83
    assert mqtt().subscribe(f"$queue/{queue}", user=[group, ("colour", "1"), ("colour", "2")]) == 1


def test_settlement_that_names_two_claims_is_refused(mqtt, channel, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[("consumer-group", "g")])
    amqp.publish(channel, queue, "x")
    message = consumer.take_one()
    assert consumer.settle("ack", message, user=[("message-id", f"{queue}:7")]) == 0x90
    assert consumer.settle("ack", message) == 0
