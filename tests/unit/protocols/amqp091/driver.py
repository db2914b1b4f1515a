"""A connection driven in memory: feeds bytes, takes the decisions a front-end takes, flattens events."""

from typing import Any

from pamqp import body, commands, frame, header

from protocols.amqp091 import events as ev
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.constants import CAPABILITIES
from tests.vectors import amqp

FRAME_MAX = 4096
PAYLOAD_MAX = FRAME_MAX - 8


def new_connection(**options: Any) -> AmqpConnection:
    values: dict[str, Any] = {"frame_max": FRAME_MAX, "channel_max": 8, "heartbeat_s": 60, **options}
    properties = {"product": "SluiceMQ", "capabilities": CAPABILITIES}
    return AmqpConnection(
        values.pop("frame_max"),
        values.pop("channel_max"),
        values.pop("heartbeat_s"),
        properties,
        0.0,
        **values,
    )


def feed(conn: AmqpConnection, data: bytes, now: float = 0.0) -> list[Any]:
    """Receive, and accept what is asked for."""
    events = conn.receive(data, now)
    for event in events:
        if isinstance(event, ev.AuthRequested):
            conn.accept_auth()
        elif isinstance(event, ev.OpenRequested):
            conn.accept_open()
    return events


def method(channel: int, command: Any) -> bytes:
    return frame.marshal(command, channel)


def tune_ok(channel_max: int = 8, frame_max: int = FRAME_MAX, heartbeat: int = 60) -> bytes:
    return method(0, commands.Connection.TuneOk(channel_max, frame_max, heartbeat))


def running(channels: int = 1, **options: Any) -> AmqpConnection:
    """A connection past the handshake with these many channels open and an empty output."""
    conn = new_connection(**options)
    feed(conn, amqp.PROTOCOL_HEADER)
    feed(conn, amqp.START_OK)
    feed(conn, tune_ok(frame_max=options.get("frame_max", FRAME_MAX)) + amqp.OPEN)
    for number in range(1, channels + 1):
        feed(conn, method(number, commands.Channel.Open()))
    conn.output.clear()
    return conn


def publish(
    channel: int,
    routing_key: str,
    payload: bytes,
    *,
    exchange: str = "",
    mandatory: bool = False,
    piece_bytes: int = PAYLOAD_MAX,
    **properties: Any,
) -> bytes:
    parts = [
        method(channel, commands.Basic.Publish(0, exchange, routing_key, mandatory)),
        frame.marshal(
            header.ContentHeader(0, len(payload), commands.Basic.Properties(**properties)), channel
        ),
    ]
    parts += [
        frame.marshal(body.ContentBody(payload[start : start + piece_bytes]), channel)
        for start in range(0, len(payload), piece_bytes)
    ]
    return b"".join(parts)


def frames(conn: AmqpConnection) -> list[tuple[int, Any]]:
    """Take the output as (channel, pamqp frame) pairs."""
    data = b"".join(conn.output)
    conn.output.clear()
    found = []
    while data:
        consumed, channel, value = frame.unmarshal(data)
        found.append((channel, value))
        data = data[consumed:]
    return found


def flat(events: list[Any]) -> list[tuple[Any, ...]]:
    """Events as plain tuples, runs taken apart, so that chunking does not show."""
    result: list[tuple[Any, ...]] = []
    for event in events:
        name = type(event).__name__
        if isinstance(event, ev.PublishRun):
            shape = event.shape
            what = (
                shape.address.exchange,
                shape.address.routing_key,
                shape.address.mandatory,
                shape.properties,
            )
            result += [(name, event.channel, *what, payload) for payload in event.bodies]
        elif isinstance(event, ev.VariedPublishRun):
            result += flat(list(event.singles()))
        elif isinstance(event, ev.SettleRun):
            what_kind = (event.kind, event.multiple, event.requeue)
            result += [(name, event.channel, *what_kind, tag) for tag in event.delivery_tags]
        elif isinstance(event, ev.MethodReceived):
            result.append((name, event.channel, event.method.name, tuple(event.method)))
        else:
            result.append((name, *(getattr(event, slot) for slot in sorted(type(event).__slots__))))
    return result
