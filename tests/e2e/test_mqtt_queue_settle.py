"""Explicit settling over MQTT 5: `$ack`, `$nack`, `$reject`, `$extend`, and what a stale claim is told."""

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import V311, payloads, user_property
from tests.waiting import until

pytestmark = pytest.mark.extension
WORKERS = ("consumer-group", "workers")


def worker(mqtt, queue, **options):
    client = mqtt(**options)
    client.subscribe(f"$queue/{queue}", user=[WORKERS])
    return client


def test_ack_settles_the_message(mqtt, channel, queue):
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "a", "b")
    first, _ = consumer.take(2)
    assert consumer.settle("ack", first) == 0
    consumer.drop()
    assert payloads(worker(mqtt, queue).take(1)) == ["b"]


def test_puback_does_not_settle_with_explicit_ack(mqtt, channel, queue):
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "a")
    consumer.take(1)
    consumer.publish("flush", "", 1)
    consumer.drop()
    again = worker(mqtt, queue).take_one()
    assert (again.payload, user_property(again, "attempts")) == (b"a", "2")


def test_nacked_message_returns_at_once(mqtt, channel, queue):
    """To the sole consumer too, long before the visibility timeout."""
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "again")
    for attempt in range(1, 4):
        message = consumer.take_one(3)
        assert user_property(message, "attempts") == str(attempt)
        assert consumer.settle("nack", message) == 0
    assert consumer.settle("ack", consumer.take_one(3)) == 0
    assert consumer.quiet()


def test_nacked_message_returns_to_its_place(mqtt, channel, queue):
    consumer = mqtt()
    consumer.subscribe(f"$queue/{queue}", user=[WORKERS, ("prefetch", "2")])
    amqp.publish(channel, queue, *"abcd")
    first, second = consumer.take(2)
    consumer.settle("nack", first)
    assert payloads(consumer.take(1)) == ["a"]
    consumer.settle("ack", second)
    assert payloads(consumer.take(1)) == ["c"]


def test_rejected_message_is_not_delivered_again(mqtt, channel, queue):
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "bad", "good")
    bad, good = consumer.take(2)
    assert consumer.settle("reject", bad, user=[("reason", "cannot parse")]) == 0
    assert consumer.settle("ack", good) == 0
    assert consumer.quiet()
    consumer.drop()
    assert worker(mqtt, queue).quiet()


def test_settling_in_one_group_leaves_the_other_unsettled(mqtt, channel, queue):
    first = worker(mqtt, queue)
    second = mqtt()
    second.subscribe(f"$queue/{queue}", user=[("consumer-group", "auditors")])
    amqp.publish(channel, queue, "x")
    first.settle("ack", first.take_one())
    second.settle("nack", second.take_one())
    assert user_property(second.take_one(), "group-id") == "auditors"
    assert first.quiet()


def test_claim_can_be_settled_over_another_connection(mqtt, channel, queue):
    """A claim belongs to the group; whoever names it by its attempt may settle it."""
    consumer, settler = worker(mqtt, queue), mqtt()
    amqp.publish(channel, queue, "x")
    message = consumer.take_one()
    assert settler.settle("ack", message) == 0x90
    assert settler.settle("ack", message, user=[("attempts", "1")]) == 0
    consumer.drop()
    assert worker(mqtt, queue).quiet()


def test_control_topic_with_a_routing_key_settles(mqtt, channel, queue):
    """`$queue/<name>/.../$ack`: the name is the first level."""
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "x")
    message = consumer.take_one()
    claim = [(key, user_property(message, key)) for key in ("message-id", "group-id")]
    assert consumer.publish(f"$queue/{queue}/images/$ack", "", user=claim) == 0
    consumer.drop()
    assert worker(mqtt, queue).quiet()


def test_settling_twice_is_refused(mqtt, channel, queue):
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "x")
    message = consumer.take_one()
    assert consumer.settle("ack", message) == 0
    for verb in ("ack", "nack", "reject", "extend"):
        assert consumer.settle(verb, message) >= 0x80
    assert consumer.quiet()


@pytest.mark.parametrize(
    "claim",
    [
        [],
        [("message-id", "{q}:0")],
        [("group-id", "workers")],
        [("message-id", "{q}:999999"), ("group-id", "workers")],
        [("message-id", "{q}:-1"), ("group-id", "workers")],
        [("message-id", "other:0"), ("group-id", "workers")],
        [("message-id", "nonsense"), ("group-id", "workers")],
        [("message-id", "{q}:99999999999999999999999"), ("group-id", "workers")],
        [("message-id", ""), ("group-id", "")],
        [("message-id", "{real}"), ("group-id", "no such group")],
    ],
    ids=str,
)
def test_unknown_claims_are_refused_and_change_nothing(mqtt, channel, queue, claim):
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "x")
    message = consumer.take_one()
    real = user_property(message, "message-id")
    named = [(key, value.format(q=queue, real=real)) for key, value in claim]
    for verb in ("$ack", "$nack", "$reject", "$extend"):
        assert consumer.publish(f"$queue/{queue}/{verb}", "", 1, user=named) >= 0x80
    assert consumer.quiet()
    assert consumer.settle("ack", message) == 0, "the real claim is untouched"


def test_control_topic_of_a_missing_queue_is_refused(mqtt, name):
    claim = [("message-id", f"{name}:0"), ("group-id", "g")]
    assert mqtt().publish(f"$queue/{name}/$ack", "", user=claim) >= 0x80


def test_control_publish_is_not_enqueued(mqtt, channel, queue):
    consumer = worker(mqtt, queue)
    amqp.publish(channel, queue, "x")
    consumer.settle("ack", consumer.take_one())
    assert amqp.count(channel, queue) <= 1
    assert channel.basic_get(queue, auto_ack=True)[2] in (None, b"x")
    assert channel.basic_get(queue, auto_ack=True)[2] is None


def test_ack_topic_over_311_settles_nothing(mqtt, channel, queue):
    """It has no properties: logged and counted, nothing else changes."""
    client = mqtt(version=V311, client_id=f"{queue}-c", manual_ack=True)
    client.subscribe(f"$queue/{queue}", 1)
    amqp.publish(channel, queue, "x")
    client.take_one()
    client.publish(f"$queue/{queue}/$ack", "", 1)
    client.drop()
    again = mqtt(version=V311, client_id=f"{queue}-c")
    again.subscribe(f"$queue/{queue}", 1)
    assert payloads(again.take(1)) == ["x"]


class TestVisibilityTimeout:
    """With a lease of one second."""

    @pytest.fixture
    def lease_queue(self, impatient_broker, amqp_connect, name):
        amqp_connect(impatient_broker).channel().queue_declare(name, durable=True)
        return name

    def test_unsettled_message_returns_to_the_only_consumer(self, impatient_broker, mqtt, lease_queue):
        consumer = mqtt(impatient_broker)
        consumer.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        consumer.publish(f"$queue/{lease_queue}", "slow")
        first = consumer.take_one()
        impatient_broker.pass_time(0.5)
        assert consumer.quiet()
        impatient_broker.pass_time(0.6)
        second = consumer.take_one()
        assert [user_property(message, "attempts") for message in (first, second)] == ["1", "2"]
        assert first.payload == second.payload == b"slow"
        assert consumer.settle("ack", second) == 0
        impatient_broker.pass_time(1.5)
        assert consumer.quiet()

    def test_unsettled_message_returns_to_the_group(self, impatient_broker, mqtt, lease_queue):
        first, second = mqtt(impatient_broker), mqtt(impatient_broker)
        first.subscribe(f"$queue/{lease_queue}", user=[WORKERS, ("prefetch", "1")])
        first.publish(f"$queue/{lease_queue}", "stuck")
        first.take(1)
        second.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        impatient_broker.pass_time(1.1)
        until(lambda: not first.messages.empty() or not second.messages.empty())

    def test_lease_ends_with_puback_settling_too(self, impatient_broker, mqtt, lease_queue):
        consumer = mqtt(impatient_broker, manual_ack=True)
        consumer.subscribe(f"$queue/{lease_queue}", user=[WORKERS, ("ack", "puback")])
        consumer.publish(f"$queue/{lease_queue}", "x")
        consumer.take(1)
        impatient_broker.pass_time(1.1)
        second = consumer.take_one()
        assert user_property(second, "attempts") == "2"
        consumer.puback(second)
        assert consumer.quiet()  # so that it has come
        impatient_broker.pass_time(1.5)
        assert consumer.quiet()

    def test_late_ack_is_refused(self, impatient_broker, mqtt, lease_queue):
        """The message is claimed by another consumer by then, and stays with it."""
        late, other = mqtt(impatient_broker), mqtt(impatient_broker)
        late.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        late.publish(f"$queue/{lease_queue}", "x")
        stale = late.take_one()
        late.unsubscribe(f"$queue/{lease_queue}")
        other.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        impatient_broker.pass_time(1.1)
        current = other.take_one()
        attempts = [("attempts", user_property(stale, "attempts"))]
        assert late.settle("ack", stale, user=attempts) >= 0x80
        assert other.settle("ack", current) == 0

    @pytest.mark.parametrize("verb", ["ack", "reject", "nack", "extend"])
    def test_late_settling_without_attempts_leaves_the_claim_of_another_alone(
        self, impatient_broker, mqtt, lease_queue, verb
    ):
        late, other = mqtt(impatient_broker), mqtt(impatient_broker)
        late.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        late.publish(f"$queue/{lease_queue}", "x")
        stale = late.take_one()
        other.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        impatient_broker.pass_time(1.1)
        current = other.take_one()
        assert late.settle(verb, stale) == 0x90
        assert other.settle("ack", current) == 0

    def test_extend_renews_the_lease(self, impatient_broker, mqtt, lease_queue):
        consumer = mqtt(impatient_broker)
        consumer.subscribe(f"$queue/{lease_queue}", user=[WORKERS])
        consumer.publish(f"$queue/{lease_queue}", "long work")
        message = consumer.take_one()
        for _ in range(4):
            impatient_broker.pass_time(0.5)
            assert consumer.settle("extend", message) == 0
        assert consumer.quiet()
        assert consumer.settle("ack", message) == 0

    def test_disconnect_returns_claims_before_their_lease_ends(self, broker, channel, queue, mqtt):
        """Against the default lease of 30 s."""
        leaving, staying = worker(mqtt, queue), mqtt()
        amqp.publish(channel, queue, "a", "b")
        leaving.take(2)
        staying.subscribe(f"$queue/{queue}", user=[WORKERS])
        assert staying.quiet()
        leaving.drop()
        assert payloads(staying.take(2, 3)) == ["a", "b"]
