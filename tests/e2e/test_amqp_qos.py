"""basic.qos, and how messages are shared among consumers."""

from collections import Counter

import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.waiting import until


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_prefetch_limits_unacked_messages(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(10))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=3)
    consumer = Collector(consuming, queue)
    consumer.wait(3)
    consumer.wait_quiet()
    assert consumer.bodies() == ["0", "1", "2"]
    assert amqp.count(channel, queue) == 7
    consuming.basic_ack(1)
    consumer.wait(4)
    consumer.wait_quiet()
    assert consumer.bodies() == ["0", "1", "2", "3"]


def test_prefetch_is_per_consumer(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(10))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=2)
    first, second = Collector(consuming, queue), Collector(consuming, queue)
    first.wait(2)
    second.wait(2)
    second.wait_quiet()
    assert (len(first.deliveries), len(second.deliveries)) == (2, 2)


def test_prefetch_applies_to_later_consumers_only(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(10))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=1)
    first = Collector(consuming, queue)
    first.wait(1)
    consuming.basic_qos(prefetch_count=4)
    second = Collector(consuming, queue)
    second.wait(4)
    second.wait_quiet()
    assert (len(first.deliveries), len(second.deliveries)) == (1, 4)


def test_global_prefetch_limits_the_channel(channel, amqp_connect, queue, name):
    other = f"{name}-2"
    channel.queue_declare(other, durable=True)
    amqp.publish(channel, queue, *numbers(5))
    amqp.publish(channel, other, *numbers(5))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=3, global_qos=True)
    first, second = Collector(consuming, queue), Collector(consuming, other)
    until(lambda: len(first.deliveries) + len(second.wait_quiet()) >= 3)
    assert len(first.deliveries) + len(second.wait_quiet()) == 3
    consuming.basic_ack(0, multiple=True)
    until(lambda: len(first.deliveries) + len(second.wait_quiet()) >= 6)
    assert len(first.deliveries) + len(second.wait_quiet()) == 6
    channel.queue_delete(other)


def test_lowered_global_prefetch_stops_deliveries_until_enough_are_settled(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(10))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=5, global_qos=True)
    consumer = Collector(consuming, queue)
    consumer.wait(5)
    consuming.basic_qos(prefetch_count=2, global_qos=True)
    consuming.basic_ack(3, multiple=True)
    consumer.wait_quiet()
    assert len(consumer.deliveries) == 5, "two are unacked, as many as allowed"
    consuming.basic_ack(5, multiple=True)
    consumer.wait(7)
    consumer.wait_quiet()
    assert len(consumer.deliveries) == 7


def test_raised_prefetch_delivers_more(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(10))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=2, global_qos=True)
    consumer = Collector(consuming, queue)
    consumer.wait(2)
    consuming.basic_qos(prefetch_count=6, global_qos=True)
    consumer.wait(6)
    consumer.wait_quiet()
    assert len(consumer.deliveries) == 6


def test_prefetch_0_is_no_limit(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(300))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=0)
    consumer = Collector(consuming, queue)
    consumer.wait(300)
    assert consumer.bodies() == numbers(300)


def test_prefetch_does_not_limit_no_ack_consumers(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(20))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=1)
    consumer = Collector(consuming, queue, auto_ack=True)
    consumer.wait(20)


def test_prefetch_does_not_limit_get(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(3))
    getting = amqp_connect().channel()
    getting.basic_qos(prefetch_count=1)
    assert [getting.basic_get(queue)[2] for _ in range(3)] == [b"0", b"1", b"2"]


def test_reject_gives_credit_back(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *numbers(3))
    consuming = amqp_connect().channel()
    consuming.basic_qos(prefetch_count=1)
    consumer = Collector(consuming, queue)
    for number in range(3):
        consuming.basic_reject(consumer.wait(number + 1)[number].tag, requeue=False)
    assert consumer.bodies() == numbers(3)


def test_prefetch_size_is_540(raw_amqp):
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, commands.Basic.Qos(1000, 0, False))
    assert connection.close_reason()[0] == 540


def test_slow_worker_with_prefetch_1_does_not_delay_the_others(channel, amqp_connect, queue):
    """Fair dispatch: the next message goes to a worker that is free."""
    connections = [amqp_connect() for _ in range(3)]
    channels = [connection.channel() for connection in connections]
    for each in channels:
        each.basic_qos(prefetch_count=1)
    slow, *quick = [Collector(each, queue, ack=position > 0) for position, each in enumerate(channels)]
    amqp.publish(channel, queue, *numbers(30))
    for _ in range(40):
        for consumer in (slow, *quick):
            consumer.wait_quiet()
    assert len(slow.deliveries) == 1
    assert len(quick[0].deliveries) + len(quick[1].deliveries) == 29
    assert min(len(consumer.deliveries) for consumer in quick) >= 1


@pytest.mark.parametrize("first", ["consumers", "messages"])
def test_workers_with_a_large_prefetch_share_evenly(channel, amqp_connect, queue, first):
    if first == "messages":
        amqp.publish(channel, queue, *numbers(90))
    workers = []
    for _ in range(3):
        each = amqp_connect().channel()
        each.basic_qos(prefetch_count=30)
        workers.append(Collector(each, queue))
    if first == "consumers":
        amqp.publish(channel, queue, *numbers(90))
    for worker in workers:
        worker.wait(30)
    received = Counter(body for worker in workers for body in worker.bodies())
    assert received == Counter(numbers(90))


def test_workers_without_prefetch_share_new_messages(channel, amqp_connect, queue):
    workers = [Collector(amqp_connect().channel(), queue, ack=True) for _ in range(3)]
    amqp.publish(channel, queue, *numbers(90))
    for worker in workers:
        worker.wait(20)
        worker.wait_quiet()
    shares = [len(worker.deliveries) for worker in workers]
    assert sum(shares) == 90
    assert max(shares) <= 45
