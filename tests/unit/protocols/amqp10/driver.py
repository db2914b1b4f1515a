"""A connection driven in memory: feeds frames, takes the decisions a front-end takes, reads what it says."""

from typing import Any

from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10 import performatives as p
from protocols.amqp10.connection import Amqp10Connection
from protocols.amqp10.framing import FrameReader, encode_frame, encode_sasl_frame

INIT = encode_sasl_frame(p.SaslInit("PLAIN", b"\0guest\0guest"))
OPEN = encode_frame(0, p.Open("client"))
HELLO = c.SASL_HEADER + INIT + c.AMQP_HEADER + OPEN


def begin(channel: int = 0, incoming_window: int = 1000, next_outgoing_id: int = 0) -> bytes:
    return encode_frame(channel, p.Begin(None, next_outgoing_id, incoming_window, 1000))


def attach_sender(handle: int = 0, channel: int = 0, **fields: Any) -> bytes:
    values = {"target": p.Target("/queues/q"), "initial_delivery_count": 0, **fields}
    return encode_frame(channel, p.Attach(f"sender-{handle}", handle, c.SENDER, **values))


def attach_receiver(handle: int = 1, channel: int = 0, **fields: Any) -> bytes:
    values = {"source": p.Source("/queues/q"), **fields}
    return encode_frame(channel, p.Attach(f"receiver-{handle}", handle, c.RECEIVER, **values))


def transfer(number: int, payload: bytes = b"x", handle: int = 0, channel: int = 0, **fields: Any) -> bytes:
    values = {"delivery_id": number, "delivery_tag": b"%04d" % number, "message_format": 0, **fields}
    return encode_frame(channel, p.Transfer(handle, **values), payload)


def flow(credit: int, handle: int | None = 1, channel: int = 0, **fields: Any) -> bytes:
    values = {"delivery_count": 0, "link_credit": credit} if handle is not None else {}
    return encode_frame(channel, p.Flow(0, 1000, 0, 1000, handle, **{**values, **fields}))


def new_connection(**options: Any) -> Amqp10Connection:
    mechanisms = options.pop("mechanisms", ("PLAIN", "ANONYMOUS"))
    return Amqp10Connection("sluicemq", mechanisms, 0.0, **options)


def feed(conn: Amqp10Connection, data: bytes, now: float = 0.0, credit: int = 1000) -> list[Any]:
    """Receive, and accept what is asked for."""
    return answer(conn, conn.receive(data, now), credit)


def answer(conn: Amqp10Connection, events: list[Any], credit: int = 1000) -> list[Any]:
    told = []
    for event in events:
        told.append(event)
        if isinstance(event, ev.AuthRequested):
            told += answer(conn, conn.accept_auth(), credit)
        elif isinstance(event, ev.OpenRequested):
            told += answer(conn, conn.accept_open(), credit)
        elif isinstance(event, ev.AttachRequested):
            link = event.link
            conn.accept_attach(link, link.attach.source, link.attach.target)
            if link.client_sends and credit:
                conn.grant(link, credit)
    return told


def running(*more: bytes, **options: Any) -> Amqp10Connection:
    """A connection past the handshake, and past these frames, with an empty output."""
    conn = new_connection(**options)
    feed(conn, HELLO + b"".join(more))
    conn.output.clear()
    return conn


def link_of(conn: Amqp10Connection, handle: int, channel: int = 0) -> Any:
    return conn._sessions[channel].links[handle]


def frames(conn: Amqp10Connection) -> list[Any]:
    """Take the output as frames."""
    data = b"".join(conn.output)
    conn.output.clear()
    return FrameReader().feed(data)


def said(conn: Amqp10Connection) -> list[Any]:
    """Take the output as performatives."""
    return [frame.body for frame in frames(conn)]


def links_of(run: ev.TransferRun) -> list[Any]:
    """The link of each delivery of a run."""
    return run.links or [run.link] * len(run.tags)


def flat(events: list[Any]) -> list[tuple[Any, ...]]:
    """Events as plain tuples, runs taken apart, so that chunking does not show."""
    result: list[tuple[Any, ...]] = []
    for event in events:
        name = type(event).__name__
        if isinstance(event, ev.TransferRun):
            what: tuple[Any, ...] = (event.settled, event.message_format, event.state)
            result += [
                (name, link.handle, *what, event.first_id + at, tag, payload)
                for at, (link, tag, payload) in enumerate(
                    zip(links_of(event), event.tags, event.payloads, strict=True)
                )
            ]
        elif isinstance(event, ev.DispositionRun):
            what = (event.channel, event.role, event.settled, event.state)
            result += [(name, *what, *ids) for ids in event.ranges]
        elif hasattr(event, "link"):
            result.append((name, event.link.handle))
        else:
            result.append((name, *(getattr(event, slot) for slot in type(event).__slots__)))
    return result
