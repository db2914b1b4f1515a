"""Messages that expire and queues that are full, over both protocols; unmarked tests hold for RabbitMQ."""

import httpx
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.broker_process import BrokerProcess, ForeignBroker
from tests.e2e.mqtt import user_property
from tests.e2e.test_dead_letters import declare_pair, died_in, get
from tests.waiting import until

BEYOND_32_BITS_MS = (1 << 32) + 60_000
QUOTA_EXCEEDED = 0x97


def until_expired(broker, channel, name):
    """Asking for a queue over AMQP is using it: HTTP tells when it is gone."""
    broker.pass_time(1.5)
    if not isinstance(broker, ForeignBroker):
        url = f"{broker.http_url}/api/v1/queues/{name}"
        until(lambda: httpx.get(url, trust_env=False, timeout=20).status_code == 404)
    with pytest.raises(ChannelClosedByBroker, match="404"):
        channel.queue_declare(name, passive=True)


def wait_for_count(channel, queue, count):
    until(lambda: amqp.count(channel, queue) == count, told=lambda: amqp.count(channel, queue))


def test_queue_ttl_dead_letters_messages_without_a_consumer(channel, name):
    queue, dead = declare_pair(channel, name, **{"x-message-ttl": 200})
    amqp.publish(channel, queue, "a", "b")
    assert amqp.count(channel, queue) == 2
    letters = [get(channel, dead), get(channel, dead)]
    assert [letter.body for letter in letters] == [b"a", b"b"]
    assert died_in(letters[0]) == [(queue, "expired", 1)]
    assert amqp.count(channel, queue) == 0


@pytest.mark.extension
def test_message_ttl_expires_beyond_the_head_of_the_queue(channel, name):
    queue, dead = declare_pair(channel, name)
    amqp.publish(channel, queue, "stays")
    amqp.publish(channel, queue, "second", expiration="300")
    amqp.publish(channel, queue, "first", expiration="100")
    amqp.publish(channel, queue, "long", expiration=str(BEYOND_32_BITS_MS))
    assert [get(channel, dead).body for _ in range(2)] == [b"first", b"second"]
    wait_for_count(channel, queue, 2)
    consumer = Collector(channel, queue)
    consumer.wait(2)
    assert consumer.bodies() == ["stays", "long"]
    assert consumer.wait(2)[1].properties.expiration == str(BEYOND_32_BITS_MS)


@pytest.mark.timed
def test_claimed_message_expires_when_it_returns(broker, channel, name):
    queue, dead = declare_pair(channel, name)
    amqp.publish(channel, queue, "x", expiration="2000")
    held = get(channel, queue)
    broker.pass_time(2.1)
    assert amqp.count(channel, dead) == 0
    channel.basic_nack(held.tag, requeue=True)
    assert died_in(get(channel, dead)) == [(queue, "expired", 1)]


def test_drop_head_is_the_default_of_length_limits(channel, name):
    queue, dead = declare_pair(channel, name, **{"x-max-length": 2})
    amqp.publish(channel, queue, *"abcd")
    assert [get(channel, dead).body for _ in range(2)] == [b"a", b"b"]
    assert [get(channel, queue).body for _ in range(2)] == [b"c", b"d"]


@pytest.mark.parametrize(
    "dead", [{"x-dead-letter-exchange": "no-exchange"}, {"x-dead-letter-exchange": "amq.fanout"}]
)
def test_drop_head_holds_without_a_place_for_the_dead_letters(channel, name, dead):
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 2, **dead})
    amqp.publish(channel, name, *"abcdefgh")
    wait_for_count(channel, name, 2)
    assert [get(channel, name).body for _ in range(2)] == [b"g", b"h"]


def test_byte_limit_drops_the_oldest_messages(channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-max-length-bytes": 100})
    amqp.publish(channel, name, b"a" * 60, b"b" * 40, b"c" * 50)
    wait_for_count(channel, name, 2)
    assert get(channel, name).body == b"b" * 40


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("durable", [True, False])
def test_limit_of_0_drops_what_no_consumer_takes_at_once(channel, name, argument, durable):
    """As RabbitMQ: what the prefetch of a consumer has no room for does not wait."""
    channel.confirm_delivery()
    channel.queue_declare(f"{name}-dead", exclusive=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    channel.queue_declare(name, durable=durable, arguments={argument: 0, **dead})
    amqp.publish(channel, name, "a")
    letter = get(channel, f"{name}-dead")
    assert (letter.body, died_in(letter)) == (b"a", [(name, "maxlen", 1)])
    wait_for_count(channel, name, 0)
    channel.basic_qos(prefetch_count=1)
    consumer = Collector(channel, name)
    amqp.publish(channel, name, *"bcd")
    [taken] = consumer.wait(1)
    assert taken.body == b"b"
    assert [get(channel, f"{name}-dead").body for _ in range(2)] == [b"c", b"d"]
    channel.basic_nack(taken.tag, requeue=True)
    amqp.publish(channel, name, *"ef")
    wait_for_count(channel, name, 0)
    consumer.cancel()
    channel.queue_delete(name)


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_limit_of_0_that_rejects_refuses_every_publish(channel, name, argument, overflow):
    channel.confirm_delivery()
    channel.queue_declare(name, exclusive=True, arguments={argument: 0, "x-overflow": overflow})
    Collector(channel, name)
    with pytest.raises(NackError):
        amqp.publish(channel, name, "a")


def test_reject_publish_dlx_refuses_and_dead_letters(channel, name):
    channel.confirm_delivery()
    queue, dead = declare_pair(channel, name, **{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    amqp.publish(channel, queue, "a")
    with pytest.raises(NackError):
        amqp.publish(channel, queue, "b")
    letter = get(channel, dead)
    assert (letter.body, died_in(letter)) == (b"b", [(queue, "maxlen", 1)])


@pytest.mark.timed
def test_unused_queue_is_deleted_after_x_expires(broker, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-expires": 1_000})
    consumer = Collector(channel, name)
    broker.pass_time(1.5)
    amqp.count(channel, name)
    consumer.cancel()
    until_expired(broker, channel, name)


@pytest.mark.timed
@pytest.mark.extension
def test_mqtt_delivery_has_the_remaining_expiry_interval(broker, mqtt, name):
    client = mqtt()
    client.publish(f"$queue/{name}/a", "x", MessageExpiryInterval=100)
    client.publish(f"$queue/{name}/b", "y", MessageExpiryInterval=1)
    client.publish(f"$queue/{name}/c", "z", MessageExpiryInterval=BEYOND_32_BITS_MS // 1000)
    broker.pass_time(1.05)
    client.subscribe(f"$queue/{name}", user=[("consumer-group", "g")])
    first, second = client.take(2)
    assert (first.payload, second.payload) == (b"x", b"z")
    assert 97 <= first.properties.MessageExpiryInterval <= 99
    assert (
        BEYOND_32_BITS_MS // 1000 - 3 <= second.properties.MessageExpiryInterval < BEYOND_32_BITS_MS // 1000
    )
    assert user_property(second, "offset") == "2"


@pytest.mark.extension
def test_expiry_and_limits_hold_over_a_kill(tmp_path, amqp_connect):
    config = {
        "queues": [
            {"name": "work", "limits": {"message_ttl": "1500ms"}, "dlq": "work-dead"},
            {"name": "bytes", "limits": {"max_bytes": "100B"}},
            {"name": "mixed"},
        ]
    }
    broker = BrokerProcess(tmp_path, config, timed=True).start()
    try:
        channel = amqp_connect(broker).channel()
        channel.confirm_delivery()
        channel.queue_declare("unused", durable=True, arguments={"x-expires": 700})
        amqp.publish(channel, "work", "a", "b")
        amqp.publish(channel, "bytes", b"x" * 60)
        amqp.publish(channel, "mixed", "stays")
        amqp.publish(channel, "mixed", "goes", expiration="1500")
        amqp.publish(channel, "mixed", "long", expiration=str(BEYOND_32_BITS_MS))
        broker.restart(kill=True)
        channel = amqp_connect(broker).channel()
        channel.confirm_delivery()
        with pytest.raises(NackError):
            amqp.publish(channel, "bytes", b"x" * 41)
        amqp.publish(channel, "bytes", b"x" * 40)
        broker.pass_time(1.5)
        assert [get(channel, "work-dead").body for _ in range(2)] == [b"a", b"b"]
        wait_for_count(channel, "mixed", 2)
        until_expired(broker, channel, "unused")
    finally:
        broker.kill9()


@pytest.mark.extension
def test_retention_ends_with_the_first_group_and_holds_over_a_kill(tmp_path, amqp_connect):
    config = {
        "queues": [
            {"name": "two", "retention": {"max_length_messages": 2}, "dlq": "dead"},
            {"name": "young", "retention": {"max_age": "1500ms"}, "dlq": "dead"},
        ]
    }
    broker = BrokerProcess(tmp_path, config, timed=True).start()
    try:
        channel = amqp_connect(broker).channel()
        channel.confirm_delivery()
        amqp.publish(channel, "two", "a", "b", "c")
        amqp.publish(channel, "young", "x")
        assert (amqp.count(channel, "two"), amqp.count(channel, "young")) == (2, 1)
        broker.restart(kill=True)
        channel = amqp_connect(broker).channel()
        channel.confirm_delivery()
        assert amqp.count(channel, "two") == 2
        amqp.publish(channel, "two", "d")
        wait_for_count(channel, "two", 2)
        broker.pass_time(1.5)
        wait_for_count(channel, "young", 0)
        assert get(channel, "two").body == b"c"
        amqp.publish(channel, "two", "e", "f")
        assert amqp.count(channel, "two") == 3
        assert amqp.count(channel, "dead") == 0
    finally:
        broker.kill9()


@pytest.mark.timed
def test_passive_declare_renews_x_expires(broker, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-expires": 1_000})
    for _ in range(4):
        broker.pass_time(0.5)
        channel.queue_declare(name, passive=True)
    until_expired(broker, channel, name)


@pytest.mark.parametrize(
    ("overflow", "left"), [("drop-head", [b"4", b"5"]), ("reject-publish", [b"1", b"2", b"3", b"4"])]
)
def test_what_comes_back_to_a_full_queue_is_the_oldest_in_it(channel, name, overflow, left):
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 2, "x-overflow": overflow})
    tags = []
    for number in range(1, 6):
        try:
            amqp.publish(channel, name, str(number))
        except NackError:
            assert (overflow, number) == ("reject-publish", 5)
        if number == 2:
            tags = [channel.basic_get(name)[0].delivery_tag for _ in range(2)]
    for tag in tags:
        channel.basic_nack(tag, requeue=True)
    wait_for_count(channel, name, len(left))  # what is too much goes with the next look at the limits
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in left] == left
    channel.queue_delete(name)
