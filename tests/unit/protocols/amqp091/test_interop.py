"""Bytes from pika's encoders are read, and pika's decoders read what is written."""

import pika
import pika.frame
from pika import spec

from protocols.amqp091 import hot, methods
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.constants import CAPABILITIES
from protocols.amqp091.content import append_headers, decode_headers, decode_properties
from tests.vectors import amqp


def send(channel: int, method) -> bytes:
    return pika.frame.Method(channel, method).marshal()


def content(channel: int, method, properties: pika.BasicProperties, body: bytes) -> bytes:
    data = send(channel, method) + pika.frame.Header(channel, len(body), properties).marshal()
    return data + (pika.frame.Body(channel, body).marshal() if body else b"")


def received(conn: AmqpConnection) -> list:
    data = b"".join(conn.output)
    conn.output.clear()
    found = []
    while data:
        consumed, value = pika.frame.decode_frame(data)
        found.append(value)
        data = data[consumed:]
    return found


def connected() -> AmqpConnection:
    conn = AmqpConnection(131072, 2047, 60, {"product": "SluiceMQ", "capabilities": CAPABILITIES}, 0.0)
    assert pika.frame.ProtocolHeader().marshal() == amqp.PROTOCOL_HEADER
    conn.receive(pika.frame.ProtocolHeader().marshal(), 0.0)
    (start,) = received(conn)
    assert start.method.mechanisms == b"PLAIN AMQPLAIN"
    assert start.method.server_properties["capabilities"]["basic.nack"] is True
    client = {"product": "pika", "capabilities": {"authentication_failure_close": True}}
    start_ok = spec.Connection.StartOk(client, "PLAIN", b"\0guest\0secret", "en_US")
    (auth,) = conn.receive(send(0, start_ok), 0.0)
    assert (auth.username, auth.password) == ("guest", "secret")
    assert auth.client_properties == client
    conn.accept_auth()
    (tune,) = received(conn)
    assert (tune.method.channel_max, tune.method.frame_max, tune.method.heartbeat) == (2047, 131072, 60)
    data = send(0, spec.Connection.TuneOk(2047, 131072, 30)) + send(0, spec.Connection.Open("/"))
    (opened,) = conn.receive(data, 0.0)
    assert opened.vhost == "/"
    conn.accept_open()
    conn.receive(send(1, spec.Channel.Open()), 0.0)
    assert [type(value.method) for value in received(conn)] == [spec.Connection.OpenOk, spec.Channel.OpenOk]
    return conn


def test_declare_consume_and_confirm_agree_with_pika():
    conn = connected()
    declare = spec.Queue.Declare(queue="$queue/orders", durable=True, arguments={"x-queue-type": "quorum"})
    consume = spec.Basic.Consume(
        queue="$queue/orders", consumer_tag="c1", arguments={"x-consumer-group": "g"}
    )
    events = conn.receive(
        send(1, declare)
        + send(1, consume)
        + send(1, spec.Basic.Qos(prefetch_count=50))
        + send(1, spec.Confirm.Select()),
        0.0,
    )
    assert [event.method.name for event in events] == [
        "Queue.Declare",
        "Basic.Consume",
        "Basic.Qos",
        "Confirm.Select",
    ]
    assert events[0].method.arguments == {"x-queue-type": "quorum"}
    assert events[1].method.arguments == {"x-consumer-group": "g"}
    conn.send_method(1, methods.QueueDeclareOk("$queue/orders", 5, 1))
    conn.output.append(hot.encode_ack(1, 9, True))
    conn.output.append(hot.encode_nack(1, 10))
    declare_ok, ack, nack = (value.method for value in received(conn))
    assert (declare_ok.queue, declare_ok.message_count) == ("$queue/orders", 5)
    assert (ack.delivery_tag, ack.multiple) == (9, True)
    assert (nack.delivery_tag, nack.multiple) == (10, False)


def test_message_of_pika_passes_unchanged():
    conn = connected()
    properties = pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="1000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
        headers={
            "int": 5,
            "big": 2**40,
            "text": "ä",
            "flag": True,
            "list": [1, "x"],
            "none": None,
            "raw": b"\xff",
        },
    )
    publish = content(1, spec.Basic.Publish(routing_key="q", mandatory=True), properties, b"payload")
    (run,) = conn.receive(publish * 3, 0.0)
    assert run.bodies == [b"payload"] * 3
    raw = run.shape.properties
    assert decode_properties(raw).message_id == "m"
    assert dict(decode_headers(raw))["list"] == [1, "x"]

    raw = append_headers(raw, [("x-delivery-count", 2), ("int", 6)])
    address = hot.DeliverAddress(1, "c1", "", "q")
    hot.encode_deliver_run(conn.output, hot.DeliverTemplate(1, address, raw, 7), 4, run.bodies[:2])
    deliver, header, body, again, *_ = received(conn)
    assert (deliver.method.consumer_tag, deliver.method.delivery_tag, deliver.method.redelivered) == (
        "c1",
        4,
        False,
    )
    assert again.method.delivery_tag == 5
    expected = {**properties.headers, "x-delivery-count": 2, "int": 6}
    assert header.properties.headers == expected
    assert header.properties.timestamp == properties.timestamp
    assert body.fragment == b"payload"


def test_return_get_and_close_agree_with_pika():
    conn = connected()
    conn.send_content(1, methods.BasicReturn(312, "NO_ROUTE", "", "$queue/none"), b"\0\0", b"back")
    conn.send_content(1, methods.BasicGetOk(7, False, "", "q", 2), b"\x10\x00\x02", b"got")
    returned, _, body, get_ok, header, _ = received(conn)
    assert (returned.method.reply_code, returned.method.routing_key, body.fragment) == (
        312,
        "$queue/none",
        b"back",
    )
    assert (get_ok.method.delivery_tag, get_ok.method.message_count) == (7, 2)
    assert header.properties.delivery_mode == 2
    conn.fail_channel(1, 404, "no queue 'x' in vhost '/'", 50, 10)
    (close,) = received(conn)
    assert (close.method.reply_code, close.method.class_id) == (404, 50)
    conn.receive(send(1, spec.Channel.CloseOk()), 0.0)
    (lost,) = conn.receive(send(0, spec.Connection.Close(200, "bye", 0, 0)), 0.0)
    assert (lost.code, lost.reason, lost.by_peer) == (200, "bye", True)
    assert isinstance(received(conn)[0].method, spec.Connection.CloseOk)


def test_acks_of_pika_make_a_run():
    conn = connected()
    data = b"".join(send(1, spec.Basic.Ack(tag)) for tag in range(1, 301))
    (run,) = conn.receive(data + send(1, spec.Basic.Ack(300, multiple=True)), 0.0)[:1]
    assert run.delivery_tags == list(range(1, 301))
