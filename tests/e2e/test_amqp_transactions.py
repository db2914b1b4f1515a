"""tx.*: what is published and settled between two commits takes effect together, or not at all."""

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.e2e import amqp
from tests.e2e.amqp import Collector


@pytest.fixture
def transacted(amqp_connect):
    channel = amqp_connect().channel()
    channel.tx_select()
    return channel


def take(channel, queue):
    method, _, body = channel.basic_get(queue)
    assert method is not None
    return method, body


def test_publishes_are_there_once_committed(transacted, channel, queue):
    amqp.publish(transacted, queue, "a", "b")
    transacted.basic_qos(prefetch_count=1)  # a round trip
    assert amqp.count(channel, queue) == 0
    transacted.tx_commit()
    assert amqp.count(channel, queue) == 2
    assert [take(channel, queue)[1] for _ in range(2)] == [b"a", b"b"]


def test_publishes_that_differ_in_their_properties_keep_them(transacted, channel, queue):
    for number in range(40):
        mode = 1 + number % 2
        properties = pika.BasicProperties(message_id=str(number), delivery_mode=mode, headers={"n": number})
        transacted.basic_publish("", queue, str(number), properties)
    transacted.tx_commit()
    for number in range(40):
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        assert (properties.message_id, body) == (str(number), str(number).encode())
        assert (properties.delivery_mode, properties.headers) == (1 + number % 2, {"n": number})


def test_publishes_are_dropped_by_rollback_and_by_the_end_of_the_channel(transacted, channel, queue):
    amqp.publish(transacted, queue, "rolled back")
    transacted.tx_rollback()
    transacted.tx_commit()
    assert amqp.count(channel, queue) == 0
    amqp.publish(transacted, queue, "never committed")
    transacted.close()
    assert amqp.count(channel, queue) == 0


def test_varied_publishes_of_a_transaction_keep_their_properties(transacted, channel, queue):
    for number in range(200):
        transacted.basic_publish(
            "", queue, str(number), pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
        )
    transacted.tx_commit()
    deliveries = Collector(channel, queue, ack=True).wait(200)
    assert [d.properties.message_id for d in deliveries] == [f"m{number}" for number in range(200)]


def test_acknowledgements_take_effect_at_commit(transacted, channel, queue):
    amqp.publish(channel, queue, "a", "b", "c")
    tags = [take(transacted, queue)[0].delivery_tag for _ in range(3)]
    transacted.basic_ack(tags[0])
    transacted.tx_commit()
    transacted.basic_ack(tags[1])
    transacted.close()
    assert amqp.count(channel, queue) == 2
    assert take(channel, queue)[0].redelivered


def test_rolled_back_acknowledgements_can_be_given_again_with_the_same_tag(transacted, channel, queue):
    amqp.publish(channel, queue, "a", "b")
    first, second = (take(transacted, queue)[0].delivery_tag for _ in range(2))
    transacted.basic_ack(second)
    transacted.tx_rollback()
    assert amqp.count(channel, queue) == 0  # unacknowledged, not redelivered
    transacted.basic_ack(first)
    transacted.basic_ack(second)
    transacted.tx_commit()
    transacted.close()
    assert amqp.count(channel, queue) == 0


def test_nack_with_requeue_brings_the_message_back_at_commit(transacted, channel, queue):
    amqp.publish(channel, queue, "again")
    method, _ = take(transacted, queue)
    transacted.basic_nack(method.delivery_tag, requeue=True)
    transacted.basic_qos(prefetch_count=1)
    assert amqp.count(channel, queue) == 0
    transacted.tx_commit()
    assert amqp.count(channel, queue) == 1


def test_second_acknowledgement_in_one_transaction_is_406(transacted, channel, queue):
    amqp.publish(channel, queue, "a")
    method, _ = take(transacted, queue)
    transacted.basic_ack(method.delivery_tag)
    transacted.basic_ack(method.delivery_tag)
    with pytest.raises(ChannelClosedByBroker, match=r"406.*unknown delivery tag 1"):
        transacted.tx_commit()
    assert amqp.count(channel, queue) == 1


def test_recover_leaves_what_the_transaction_settles(transacted, channel, queue):
    amqp.publish(channel, queue, "settled", "recovered")
    first, _ = take(transacted, queue)
    take(transacted, queue)
    transacted.basic_ack(first.delivery_tag)
    transacted.basic_recover(requeue=True)
    assert amqp.count(channel, queue) == 1
    transacted.tx_commit()
    assert take(channel, queue)[1] == b"recovered"


def test_settling_a_delivery_whose_lease_ended_meanwhile_is_406_and_nothing_is_done(
    transacted, channel, name
):
    channel.queue_declare(name, durable=True, arguments={"x-consumer-timeout": 300})
    amqp.publish(channel, name, "slow")
    consumer = Collector(transacted, name)
    transacted.basic_ack(consumer.wait(1)[0].tag)
    amqp.publish(transacted, name, "with it")
    consumer.wait(2)  # it came back
    with pytest.raises(ChannelClosedByBroker, match="406"):
        transacted.tx_commit()
    assert [take(channel, name)[1], channel.basic_get(name)[0]] == [b"slow", None]


def test_control_topics_act_at_once(transacted, channel, queue):
    amqp.publish(channel, queue, "a")
    answers = transacted.queue_declare("", exclusive=True).method.queue
    asked = pika.BasicProperties(reply_to=answers, headers={"x-limit": 1})
    transacted.basic_publish("", f"$queue/{queue}/$browse", b"", asked)
    assert Collector(transacted, answers, ack=True).wait(1), "an answer before any commit"


def test_mandatory_returns_come_at_commit(transacted, name):
    returned = []
    transacted.add_on_return_callback(lambda *parts: returned.append(parts[3]))
    transacted.basic_publish("", name, "nowhere", mandatory=True)
    transacted.basic_qos(prefetch_count=1)
    assert returned == []
    transacted.tx_commit()
    transacted.connection.process_data_events(0)
    assert returned == [b"nowhere"]


def test_transaction_that_a_queue_has_no_room_for_does_nothing(transacted, channel, name):
    other = f"{name}-other"
    channel.queue_declare(other, durable=True)
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    amqp.publish(transacted, other, "beside")
    amqp.publish(transacted, name, "1", "2", "3")
    with pytest.raises(ChannelClosedByBroker, match=r"406.*has no room"):
        transacted.tx_commit()
    assert amqp.count(channel, other) == amqp.count(channel, name) == 0


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (("confirm_delivery", "tx_select"), "cannot switch from confirm to tx mode"),
        (("tx_select", "confirm_delivery"), "cannot switch from tx to confirm mode"),
        (("tx_commit",), "channel is not transactional"),
        (("tx_rollback",), "channel is not transactional"),
    ],
)
def test_what_does_not_go_with_transactions_is_406(amqp_connect, calls, reason):
    channel = amqp_connect().channel()
    for call in calls[:-1]:
        getattr(channel, call)()
    with pytest.raises(ChannelClosedByBroker, match=f"406.*{reason}"):
        getattr(channel, calls[-1])()


def test_publish_to_a_missing_exchange_closes_the_channel_at_once(transacted):
    transacted.basic_publish("no-such-exchange", "q", "x")
    with pytest.raises(ChannelClosedByBroker, match="404"):
        transacted.basic_qos(prefetch_count=1)


def test_commit_after_the_exchange_is_deleted_is_404_and_does_nothing(broker, amqp_connect, transacted):
    """RabbitMQ routes at the publish; here nothing of a transaction is routed before its commit."""
    other = amqp_connect(broker).channel()
    other.queue_declare("q-tx-gone", durable=True)
    other.exchange_declare("x-tx-gone", "fanout")
    transacted.basic_publish("", "q-tx-gone", "x")
    transacted.basic_publish("x-tx-gone", "", "x")
    transacted.basic_qos(prefetch_count=1)  # answered: the publishes were read
    other.exchange_delete("x-tx-gone")
    with pytest.raises(ChannelClosedByBroker, match="404"):
        transacted.tx_commit()
    assert other.queue_declare("q-tx-gone", passive=True).method.message_count == 0


def test_committed_transaction_survives_a_kill(own_broker, amqp_connect):
    broker = own_broker()
    channel = amqp_connect(broker).channel()
    for queue in ("in", "out"):
        channel.queue_declare(queue, durable=True)
    amqp.publish(channel, "in", *map(str, range(20)))
    channel.tx_select()
    for _ in range(20):
        method, body = take(channel, "in")
        amqp.publish(channel, "out", body)
        channel.basic_ack(method.delivery_tag)
        if body == b"9":
            channel.tx_commit()
    broker.kill9()
    broker.start()
    after = amqp_connect(broker).channel()
    assert (amqp.count(after, "in"), amqp.count(after, "out")) == (10, 10)
