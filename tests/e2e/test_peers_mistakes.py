"""Mistakes that users of other brokers have reported: none may happen here."""

import os
import time
from pathlib import Path

import httpx
import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.mqtt import MqttClient, payloads
from tests.e2e.raw_amqp import HEADER, content_header, frame, method_frame
from tests.waiting import pass_time, until

pytestmark = pytest.mark.extension


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_refused_declare_is_not_carried_out(amqp_connect, name):
    connection = amqp_connect()
    with pytest.raises(amqp.ChannelClosedByBroker):
        connection.channel().queue_declare(name, durable=True, arguments={"x-nonsense": 1})
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        connection.channel().queue_declare(name, passive=True)
    assert closed.value.reply_code == 404
    connection.channel().queue_declare(name, durable=True, arguments={"x-delivery-limit": 1})
    with pytest.raises(amqp.ChannelClosedByBroker):
        connection.channel().queue_declare(name, durable=True, arguments={"x-delivery-limit": 9})
    channel = connection.channel()
    amqp.publish(channel, name, "a")
    collector = Collector(channel, name)
    for tag in (1, 2):
        collector.wait(tag)
        channel.basic_nack(tag)
    assert len(collector.wait_quiet()) == 2  # the limit is still 1
    channel.queue_delete(name)


def test_lowering_the_global_prefetch_costs_no_processor_time(own_broker, amqp_connect):
    process = own_broker()
    httpx.get(
        f"{process.http_url}/api/v1/health", trust_env=False, timeout=20
    )  # HTTP is imported after the start
    channel = amqp_connect(process).channel()
    channel.queue_declare("jobs")
    channel.basic_qos(prefetch_count=50, global_qos=True)
    collector = Collector(channel, "jobs")
    amqp.publish(channel, "jobs", *map(str, range(60)))
    collector.wait(50)
    channel.basic_qos(prefetch_count=5, global_qos=True)
    before = cpu_s(process.process.pid)
    pass_time(1)
    assert cpu_s(process.process.pid) - before < 0.5
    assert len(collector.wait_quiet()) == 50
    channel.basic_ack(50, multiple=True)
    assert len(collector.wait(55)) == 55


def test_acks_sent_before_the_close_are_done(channel, amqp_connect, queue):
    amqp.publish(channel, queue, *map(str, range(20)))
    connection = amqp_connect()
    collector = Collector(connection.channel(), queue)
    collector.wait(20)
    for delivery in collector.deliveries:
        collector.channel.basic_ack(delivery.tag)
    connection.close()
    assert amqp.count(channel, queue) == 0
    assert Collector(channel, queue).wait_quiet() == []


def test_first_delivery_is_not_redelivered(channel, queue):
    amqp.publish(channel, queue, "a")
    collector = Collector(channel, queue)
    assert collector.wait(1)[0].method.redelivered is False
    channel.basic_nack(collector.deliveries[0].tag)
    assert collector.wait(2)[1].method.redelivered is True


def test_queue_with_an_idle_consumer_is_not_deleted(own_broker, amqp_connect):
    process = own_broker({"queue_manager": {"ephemeral_expires": "1s"}}, timed=True)
    consumer = MqttClient(process.mqtt_port).connect()
    consumer.subscribe("$queue/idle", user=[("consumer-group", "g")])
    worker = Collector(amqp_connect(process).channel(), "$queue/idle")
    process.pass_time(5)
    worker.wait_quiet()
    device = MqttClient(process.mqtt_port).connect()
    assert device.publish("$queue/idle", b"a") == 0
    assert payloads(consumer.take(1)) == ["a"]
    worker.wait(1)
    device.end()
    consumer.end()


def test_single_active_consumer_is_replaced_when_its_lease_ends(own_broker, amqp_connect):
    process = own_broker({"queue_manager": {"consumer_timeout": "1s"}}, timed=True)
    channel = amqp_connect(process).channel()
    channel.queue_declare("jobs", arguments={"x-single-active-consumer": True})
    workers = []
    for _ in range(2):
        working = amqp_connect(process).channel()
        working.basic_qos(prefetch_count=1)
        workers.append(Collector(working, "jobs"))
    amqp.publish(channel, "jobs", "a", "b")
    deadline = time.monotonic() + 8
    while not all(worker.deliveries for worker in workers) and time.monotonic() < deadline:
        process.pass_time(0.5)
        for worker in workers:
            worker.wait_quiet()
    assert all(worker.deliveries for worker in workers)  # either let it lie, either had its turn
    for worker in workers:
        worker._ack = True
    while not any("b" in worker.bodies() for worker in workers) and time.monotonic() < deadline:
        process.pass_time(0.5)
        for worker in workers:
            worker.wait_quiet()
    assert any("b" in worker.bodies() for worker in workers)


def test_messages_of_a_lost_share_member_go_to_the_others(mqtt, channel, queue):
    members = [mqtt(), mqtt()]
    for member in members:
        member.subscribe(f"$share/team/$queue/{queue}", user=[("ack", "explicit")])
    amqp.publish(channel, queue, *map(str, range(10)))
    until(lambda: sum(member.messages.qsize() for member in members) == 10)
    members[0].drop()
    amqp.publish(channel, queue, *map(str, range(10, 20)))
    got = {message.payload.decode() for message in members[1].take(20)}
    assert got == {str(number) for number in range(20)}


def test_messages_whose_leases_end_together_return_together(impatient_broker, amqp_connect, name):
    channel = amqp_connect(impatient_broker).channel()
    channel.queue_declare(name)
    consumer = MqttClient(impatient_broker.mqtt_port).connect()
    consumer.subscribe(f"$queue/{name}", user=[("consumer-group", "g")])
    amqp.publish(channel, name, *map(str, range(100)))
    consumer.take(100)
    impatient_broker.pass_time(1.1)
    consumer.take(100)
    consumer.end()


@pytest.mark.parametrize("closing", ["channel", "connection"])
def test_publishes_sent_before_a_close_are_done(raw_amqp, amqp_connect, name, closing):
    client = raw_amqp()
    client.open_channel()
    publish = method_frame(1, commands.Basic.Publish(0, "", name)) + frame(HEADER, 1, content_header(0))
    close = getattr(commands, closing.title()).Close(200, "", 0, 0)
    client.send_bytes(
        method_frame(1, commands.Queue.Declare(0, name, durable=True))  # answered when it is on disk
        + publish * 3
        + method_frame(1 if closing == "channel" else 0, close)
    )
    client.expect(getattr(commands, closing.title()).CloseOk)
    channel = amqp_connect().channel()
    assert amqp.count(channel, name) == 3
    channel.queue_delete(name)
