"""Deliveries of queues within a client's Receive Maximum, beside what topics send it (MQTT 5, 3.3.4)."""

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import payloads, user_property

pytestmark = pytest.mark.extension
BY_PUBACK = [("consumer-group", "workers"), ("ack", "puback")]
BY_HAND = [("consumer-group", "workers"), ("ack", "explicit")]


@pytest.fixture(params=[BY_PUBACK, BY_HAND], ids=["puback", "explicit"])
def settling(request):
    return request.param


def full_client(mqtt, name, receive_maximum=2, **options):
    """A client that holds as many messages of a topic as its Receive Maximum allows."""
    client = mqtt(ReceiveMaximum=receive_maximum, manual_ack=True, **options)
    client.subscribe(name, 2)
    publisher = mqtt()
    for number in range(receive_maximum):
        publisher.publish(name, f"t{number}", 1)
    return client, client.take(receive_maximum)


def test_a_client_whose_topics_take_all_places_keeps_no_message_from_others(
    mqtt, channel, queue, name, settling
):
    full, _ = full_client(mqtt, name)
    full.subscribe(f"$queue/{queue}", user=settling)
    amqp.publish(channel, queue, "a", "b")
    assert full.quiet()
    other = mqtt()
    other.subscribe(f"$queue/{queue}", user=settling)
    assert payloads(other.take(2)) == ["a", "b"]


def test_what_was_never_sent_was_no_attempt(mqtt, channel, queue, name, settling):
    full, _ = full_client(mqtt, name)
    full.subscribe(f"$queue/{queue}", user=settling)
    amqp.publish(channel, queue, "a")
    assert full.quiet()
    full.drop()
    other = mqtt()
    other.subscribe(f"$queue/{queue}", user=settling)
    message = other.take_one()
    assert (message.payload, user_property(message, "attempts")) == (b"a", "1")


def test_places_that_topics_leave_are_the_queues(mqtt, channel, queue, name, settling):
    full, topics = full_client(mqtt, name, 3)
    full.subscribe(f"$queue/{queue}", user=settling)
    amqp.publish(channel, queue, *"abcd")
    assert full.quiet()
    full.puback(topics[0])
    assert payloads(full.take(1)) == ["a"]
    assert full.quiet()
    full.puback(topics[1])
    full.puback(topics[2])
    assert payloads(full.take(2)) == ["b", "c"]
    assert full.quiet()


def test_a_message_settled_by_hand_keeps_its_place_until_its_puback(mqtt, channel, queue):
    client = mqtt(ReceiveMaximum=1, manual_ack=True)
    client.subscribe(f"$queue/{queue}", user=BY_HAND)
    amqp.publish(channel, queue, "a", "b")
    first = client.take_one()
    assert client.settle("reject", first) == 0
    assert client.quiet()
    assert channel.queue_purge(queue).method.message_count == 1
    client.puback(first)
    assert client.quiet()


@pytest.mark.parametrize("is_lasting", [False, True], ids=["clean", "session"])
@pytest.mark.parametrize("receive_maximum", [1, 3])
def test_queues_and_topics_take_turns(mqtt, channel, queue, name, receive_maximum, is_lasting):
    session = {"SessionExpiryInterval": 60} if is_lasting else {}
    client = mqtt(ReceiveMaximum=receive_maximum, manual_ack=True, **session)
    client.subscribe(name, 1)
    client.subscribe(f"$queue/{queue}", user=BY_PUBACK)
    client.subscribe(f"$queue/{queue}-2", user=BY_PUBACK)
    publisher = mqtt()
    count = 30
    for number in range(count):
        publisher.publish(name, f"topic {number}", 1)
        publisher.publish(f"$queue/{queue}", f"one {number}", 1)
        publisher.publish(f"$queue/{queue}-2", f"two {number}", 1)
    received = []
    for _ in range(3 * count):
        message = client.take_one()
        received.append(message.payload.decode())
        client.puback(message)
    for kind in ("topic", "one", "two"):
        places = [place for place, payload in enumerate(received) if payload.startswith(kind)]
        assert [received[place] for place in places] == [f"{kind} {number}" for number in range(count)]
        gaps = [later - earlier for earlier, later in zip(places, places[1:], strict=False)]
        assert max(gaps[:10]) <= 4 * receive_maximum
    assert client.quiet()
    channel.queue_delete(f"{queue}-2")


def test_a_resumed_session_is_sent_what_it_had_before_anything_of_a_queue(mqtt, channel, queue, name):
    client, held = full_client(mqtt, name, SessionExpiryInterval=60, client_id=name)
    client.subscribe(f"$queue/{queue}", user=BY_PUBACK)
    amqp.publish(channel, queue, "a")
    client.drop()
    again = mqtt(ReceiveMaximum=1, manual_ack=True, clean=False, SessionExpiryInterval=60, client_id=name)
    assert again.session_present
    resent = [again.take_one()]
    again.puback(resent[0])
    resent += again.take(1)
    assert payloads(resent) == payloads(held)
    assert again.quiet()
    again.puback(resent[1])
    message = again.take_one()
    assert (message.payload, user_property(message, "attempts")) == (b"a", "1")
    again.puback(message)
    again.disconnect(SessionExpiryInterval=0)


def test_a_window_filled_by_retained_messages_lets_a_queue_have_its_turn(mqtt, channel, queue, name):
    publisher = mqtt()
    for number in range(6):
        publisher.publish(f"{name}/{number}", f"r{number}", 1, retain=True)
    client = mqtt(ReceiveMaximum=2, manual_ack=True)
    client.subscribe(f"{name}/+", 1)
    held = client.take(2)
    client.subscribe(f"$queue/{queue}", user=BY_PUBACK)
    amqp.publish(channel, queue, "a")
    received = payloads(held)
    while len(received) < 7:
        client.puback(held.pop(0))
        held += client.take(1)
        received.append(held[-1].payload.decode())
    assert received.index("a") < 5
    assert sorted(received) == ["a", *(f"r{number}" for number in range(6))]
    for number in range(6):
        publisher.publish(f"{name}/{number}", "", 1, retain=True)


def test_qos_0_of_a_queue_needs_no_place(mqtt, channel, queue, name):
    full, _ = full_client(mqtt, name)
    full.subscribe(f"$queue/{queue}", 0, user=BY_PUBACK)
    amqp.publish(channel, queue, "a", "b", "c")
    assert payloads(full.take(3)) == ["a", "b", "c"]
