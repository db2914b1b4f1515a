"""broker.network.transport: a client's trouble stays its own; what it held goes back at once."""

import asyncio
import struct

import pytest
from pamqp import commands

from broker.amqp.consuming.delivery import AmqpConsumer
from broker.app import Broker
from broker.mqtt.settling.outbound import Outbound
from protocols.amqp091.content import decode_headers
from tests.e2e.raw_amqp import RawAmqp, method_frame
from tests.e2e.raw_mqtt import PUBACK, PUBLISH, SUBACK, RawMqtt, publish, subscribe, user_property
from tests.waiting import until_so

MIB = 1 << 20


@pytest.fixture
async def broker():
    async with Broker(storage="memory:") as broker:
        yield broker


@pytest.fixture
def amqp(broker):
    """Opens AMQP connections with one channel, from a thread."""
    made = []

    def open_one(**options):
        client = RawAmqp(broker.ports["amqp"], **options)
        client.open_channel()
        made.append(client)
        return client

    yield open_one
    for client in made:
        client.drop()


@pytest.fixture
def mqtt(broker):
    made = []

    def open_one(**options):
        client = RawMqtt(broker.ports["mqtt"], **options)
        made.append(client)
        return client

    yield open_one
    for client in made:
        client.drop()


def declare(client, name="q"):
    client.call(1, commands.Queue.Declare(queue=name, durable=True), commands.Queue.DeclareOk)


def consume(client, name="q", **options):
    client.call(1, commands.Basic.Consume(queue=name, **options), commands.Basic.ConsumeOk)


def delivered(client):
    return client.read_content(commands.Basic.Deliver)


def on_loop(broker, call, *arguments):
    """Call something in the broker's loop, from a thread."""

    async def run():
        return call(*arguments)

    return asyncio.run_coroutine_threadsafe(run(), broker.hub.loop).result(5)


def frontend_of(broker, kind):
    return next(t.frontend for t in broker.hub.transports if type(t.frontend).__name__ == kind)


def client_named(broker, client_id):
    return broker._drivers.frontends["mqtt"]._shared.clients.find(client_id)


# settling


async def test_a_late_tag_among_others_is_no_error(broker, amqp):
    def client():
        raw = amqp()
        declare(raw)
        consume(raw)
        for number in range(3):
            raw.publish(1, "q", b"%d" % number)
        assert [delivered(raw).method.delivery_tag for _ in range(3)] == [1, 2, 3]
        channel = frontend_of(broker, "AmqpFrontend").channels[1]

        def end_lease():
            claim = channel.unacked.claim(2)
            claim.extend(1)
            broker.hub.client.shard.expire_once()

        on_loop(broker, end_lease)
        assert delivered(raw).method.delivery_tag == 4
        raw.send_bytes(b"".join(method_frame(1, commands.Basic.Ack(tag)) for tag in (1, 2, 3, 4)))
        return raw.call(1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk)

    assert (await asyncio.to_thread(client)).message_count == 0
    group = broker.hub.client.shard.manager.queues.find("q").groups.find("")
    assert group.in_flight_count() == 0


async def test_tags_before_an_unknown_one_are_settled_and_those_behind_it_return(broker, amqp):
    def client():
        raw = amqp()
        declare(raw)
        consume(raw)
        for number in range(3):
            raw.publish(1, "q", b"%d" % number)
        for _ in range(3):
            delivered(raw)
        raw.send_bytes(b"".join(method_frame(1, commands.Basic.Ack(tag)) for tag in (1, 99, 3)))
        code, text, _ = raw.close_reason()
        raw.open_channel()
        consume(raw)
        return code, text, [delivered(raw).body for _ in range(2)]

    code, text, bodies = await asyncio.to_thread(client)
    assert (code, bodies) == (406, [b"1", b"2"])
    assert "99" in text


# ends


async def test_nothing_is_delivered_after_connection_close(broker, amqp):
    def client():
        raw = amqp()
        declare(raw)
        consume(raw, no_ack=True)
        # what is not implemented ends the connection; close-ok does not come
        raw.send(1, commands.Basic.Qos(prefetch_size=1))
        assert isinstance(raw.read().method, commands.Connection.Close)
        other = amqp()
        other.send(1, commands.Confirm.Select())
        other.expect(commands.Confirm.SelectOk)
        other.publish(1, "q", b"kept")
        other.read_confirms(1)
        return other.call(1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk)

    answer = await asyncio.to_thread(client)
    assert (answer.message_count, answer.consumer_count) == (1, 0)


async def test_a_client_that_reads_nothing_more_is_gone_when_its_keep_alive_ends(broker, mqtt):
    def client():
        silent = mqtt(client_id="silent", keep_alive=10)
        silent.send_bytes(subscribe("a/#", 0))
        silent.expect(SUBACK)
        talker = mqtt()
        for _ in range(40):
            talker.send_bytes(publish("a/b", bytes(MIB), qos=1))
            talker.expect(PUBACK)
        transport = client_named(broker, "silent").transport
        assert transport.output.buffered_bytes() > 0
        on_loop(broker, transport.check_deadline, broker.clock.monotonic() + 100)

    await asyncio.to_thread(client)
    await until_so(lambda: client_named(broker, "silent") is None)
    await until_so(lambda: len(broker.hub.transports) <= 1)


async def test_our_bug_in_a_delivery_costs_the_consumer_and_not_the_publisher(broker, amqp, monkeypatch):
    def fail(*arguments):
        raise KeyError("bug")

    monkeypatch.setattr(AmqpConsumer, "_deliver_first", fail)

    def client():
        consumer, publisher = amqp(), amqp()
        declare(consumer)
        consume(consumer)
        publisher.send(1, commands.Confirm.Select())
        publisher.expect(commands.Confirm.SelectOk)
        for number in range(2):
            publisher.publish(1, "q", b"x")
            assert publisher.read_confirms(1) == [1] if not number else True
        return consumer.close_reason()

    assert (await asyncio.to_thread(client))[0] == 541


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("consumer_kind", ["qos 0", "qos 1", "no-ack", "ack"])
async def test_our_bug_in_a_delivery_settles_nothing(
    broker, amqp, mqtt, monkeypatch, consumer_kind, returned
):
    def fail(*arguments):
        raise KeyError("bug")

    def unlucky_consumer():
        if consumer_kind.startswith("qos"):
            client = mqtt()
            client.send_bytes(subscribe("$share/g/$queue/q", int(consumer_kind[-1])))
            client.expect(SUBACK)
        else:
            client = amqp()
            consume(client, no_ack=consumer_kind == "no-ack", arguments={"x-consumer-group": "g"})
        return client

    def client():
        publisher = amqp()
        declare(publisher)
        publisher.send(1, commands.Confirm.Select())
        publisher.expect(commands.Confirm.SelectOk)
        holder = amqp()
        consume(holder, arguments={"x-consumer-group": "g"})
        if returned:
            publisher.publish(1, "q", b"x")
            delivered(holder)
        else:
            holder.call(1, commands.Channel.Close(0, "", 0, 0), commands.Channel.CloseOk)
        for sink, method in (
            (Outbound, "send_claimed"),
            (AmqpConsumer, "_deliver_first"),
            (AmqpConsumer, "_deliver_alone"),
        ):
            monkeypatch.setattr(sink, method, fail)
        unlucky = unlucky_consumer()
        if returned:
            holder.drop()
        else:
            publisher.publish(1, "q", b"x")
        reason = unlucky.farewell() if consumer_kind.startswith("qos") else unlucky.close_reason()[0]
        assert reason in (0x80, 541)
        monkeypatch.undo()
        worker = amqp()
        consume(worker, arguments={"x-consumer-group": "g"})
        return delivered(worker)

    received = await asyncio.to_thread(client)
    assert (received.body, received.method.redelivered) == (b"x", True)


# answers nobody reads


async def test_gets_sent_ahead_are_answered_as_they_are_read(broker, amqp):
    def client():
        raw = amqp()
        declare(raw)
        for _ in range(64):
            raw.publish(1, "q", bytes(MIB))
        raw.call(1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk)
        raw.send_bytes(method_frame(1, commands.Basic.Get(queue="q")) * 65)
        raw.send(1, commands.Basic.Qos(prefetch_count=1))
        frontend = frontend_of(broker, "AmqpFrontend")
        for _ in range(50):
            on_loop(broker, lambda: None)
        unread_bytes = on_loop(broker, frontend.client.transport.output.buffered_bytes)
        sizes = [len(raw.read_content(commands.Basic.GetOk).body) for _ in range(64)]
        raw.expect(commands.Basic.GetEmpty)
        raw.expect(commands.Basic.QosOk)
        return unread_bytes, sizes

    unread_bytes, sizes = await asyncio.to_thread(client)
    assert sizes == [MIB] * 64
    assert unread_bytes < 8 * MIB


async def test_a_get_that_waits_for_the_store_ends_when_the_queue_is_deleted(broker, amqp, monkeypatch):
    reading = asyncio.Event()

    async def never(load):
        reading.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(broker.hub.client.shard.reader, "read_log", never)

    def client():
        raw = amqp()
        for name in ("stuck", "q"):
            declare(raw, name)
            raw.publish(1, name, b"x")
        raw.call(1, commands.Queue.Declare(queue="q", passive=True), commands.Queue.DeclareOk)

        def forget():
            for queue in broker.hub.client.shard.manager.queues:
                queue.log.became_durable(1)
                queue.log.tail.drop_before(1)

        on_loop(broker, forget)
        raw.send(1, commands.Basic.Get(queue="stuck"))
        waiting = amqp()
        waiting.send(1, commands.Basic.Get(queue="q"))
        other = amqp()
        other.call(1, commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
        monkeypatch.undo()
        loads = broker.hub.client.shard.manager.context.loads
        on_loop(broker, lambda: loads.pop(0))
        asyncio.run_coroutine_threadsafe(broker.hub.client.shard.load_once(), broker.hub.loop).result(5)
        return waiting.close_reason()

    assert (await asyncio.to_thread(client))[0] == 404


# what one protocol has no room for


async def test_a_topic_longer_than_a_routing_key_comes_whole_in_a_header(broker, amqp, mqtt):
    topic = "$queue/q/" + "é" * 200

    def client():
        worker, device = amqp(), mqtt()
        declare(worker)
        consume(worker)
        device.send_bytes(publish(topic, b"x", qos=1))
        device.expect(PUBACK)
        return worker.read_content_bytes(commands.Basic.Deliver)

    method, header, _ = await asyncio.to_thread(client)
    assert topic.startswith(method.routing_key)
    assert len(method.routing_key.encode()) in (254, 255)
    assert decode_headers(header[12:]) == [("x-topic", topic)]


async def test_a_message_whose_properties_fit_no_frame_fails_and_the_next_is_delivered(broker, amqp, mqtt):
    props = b"".join(user_property(f"n{n}", "v" * 60_000) for n in range(3))

    def client():
        worker, device = amqp(), mqtt()
        declare(worker)
        consume(worker)
        for props_of_one in (props, b""):
            device.send_bytes(publish("$queue/q", b"x", qos=1, props=props_of_one))
            device.expect(PUBACK)
        first = delivered(worker)
        getter = amqp()
        getter.send(1, commands.Basic.Get(queue="q"))
        getter.expect(commands.Basic.GetEmpty)
        return first

    assert (await asyncio.to_thread(client)).method.delivery_tag == 2
    assert broker.hub.counters.dropped_too_large == 1
    assert broker.hub.client.shard.manager.queues.find("q").groups.find("").failed_count() == 1


async def test_no_local_on_a_queue_is_refused(broker, mqtt):
    def client():
        device = mqtt()
        device.send_bytes(subscribe("$queue/q", 1 | 4))
        return device.expect(SUBACK)

    assert (await asyncio.to_thread(client)).body[-1] == 0x83


async def test_clients_whose_identifiers_look_alike_are_groups_of_their_own(broker, mqtt):
    def client():
        devices = [mqtt(client_id=name) for name in ("a@b", "a%40b", "a\x1fb")]
        for device in devices:
            device.send_bytes(subscribe("$queue/q", 1))
            assert device.expect(SUBACK).body[-1] == 1
        devices[0].send_bytes(publish("$queue/q", b"x"))
        for device in devices:
            received = device.expect(PUBLISH)
            size = struct.unpack_from(">H", received.body)[0]
            assert received.body[2 : 2 + size] == b"$queue/q"

    await asyncio.to_thread(client)
    assert len(broker.hub.client.shard.manager.queues.find("q").groups) == 3
