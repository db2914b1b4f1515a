"""AMQP 1.0: whatever a client says, it is told what is wrong, and the broker logs no error of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.framing import encode_frame
from tests.e2e.broker_process import Broker
from tests.e2e.raw_amqp10 import Management, RawAmqp10, message, section

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    t.UInt(7),
    t.ULong(2**63),
    1.5,
    "text",
    "/queues/x",
    "/management",
    t.Symbol("symbol"),
    b"binary",
    [],
    ["a", 1],
    {},
    {"a": 1},
    {t.Symbol("x-opt"): [1]},
    t.Array("symbol", [t.Symbol("a")]),
    t.Described(t.ULong(0x28), []),
    t.Described(t.Symbol("amqp:sql-filter"), 5),
    t.Described(t.Symbol("apache.org:selector-filter:string"), ["x"]),
    t.Described(t.Symbol("apache.org:no-local-filter:list"), []),
    t.Described(t.ULong(0x173), {t.Symbol("x"): {}}),
    t.Described(t.Symbol("rabbitmq:stream-offset-spec"), True),
    t.Timestamp(-(2**62)),
    UUID(int=5),
    t.Char("x"),
]


def terminus(chance: random.Random, kind: int, address: str) -> t.Described:
    """A source (0x28) or target (0x29) with fields of the right types, and now and then of any."""
    described = [value for value in VALUES if isinstance(value, t.Described)]
    filters = {t.Symbol(f"f{number}"): chance.choice(described) for number in range(chance.randint(0, 2))}
    capability = t.symbols(chance.choice(("temporary-queue", "topic", "queue")))
    lifetime = {t.Symbol("lifetime-policy"): chance.choice(VALUES)}
    dynamic = chance.random() < 0.2
    where = None if dynamic else chance.choice((address, address, address, *VALUES))
    mode = chance.choice((None, t.Symbol("copy"), t.Symbol("move"), t.Symbol("strange")))
    fields: list[Any] = [where, t.UInt(chance.randint(0, 2)), None, t.UInt(0), dynamic]
    fields.append(chance.choice((None, lifetime)))
    if kind == 0x28:
        outcome = chance.choice((None, p.as_described(p.Released()), t.Described(t.ULong(9), [])))
        fields += [mode, chance.choice((None, filters)), outcome, None]
    fields.append(chance.choice((None, capability)))
    if chance.random() < 0.05:
        fields[chance.randrange(len(fields))] = chance.choice(VALUES)
    return t.Described(t.ULong(kind), fields)


def attach(chance: random.Random, handle: int, queue: str) -> bytes:
    address = chance.choice((f"/queues/{queue}", f"$queue/{queue}", "/exchanges/amq.topic/k", "/management"))
    properties = {
        t.Symbol(chance.choice(("paired", "consumer-group", "pattern", "consumer-priority", "exclusive"))): (
            chance.choice(VALUES)
        )
    }
    fields = [
        f"l{handle}",
        t.UInt(handle),
        chance.random() < 0.5,
        t.UByte(chance.choice((0, 1, 2))),
        t.UByte(chance.choice((0, 1))),
        terminus(chance, 0x28, address),
        terminus(chance, 0x29, address) if chance.random() < 0.8 else t.Described(t.ULong(0x30), []),
        None,
        None,
        t.UInt(0),
        chance.choice((None, t.ULong(0), t.ULong(20))),
        None,
        None,
        properties if chance.random() < 0.6 else None,
    ]
    return t.encode_value(t.Described(t.ULong(0x12), fields))


def payload(chance: random.Random) -> bytes:
    """A message that is none, or has something strange in it."""
    whole = chance.choice(
        (
            message(b"x", to="/queues/x", message_id=t.ULong(1)),
            message(b"x", annotations={"x-cc": chance.choice(VALUES), "x-delay": chance.choice(VALUES)}),
            message(b"x", application={"x-delay": chance.choice(VALUES)}),
            section(0x77, p.as_described(p.Declare())),
            section(0x77, p.as_described(p.Discharge(b"x"))),
            section(0x77, t.Described(t.ULong(0x32), [chance.choice(VALUES)])),
            p.encode(
                p.Properties(
                    to=chance.choice(("/queues/a", "/bindings", "/x")), subject="PUT", reply_to="$me"
                )
            )
            + section(0x77, chance.choice(VALUES)),
            section(0x74, {"a": chance.choice(VALUES[:14])}) + section(0x76, chance.choice(([], [1]))),
        )
    )
    if chance.random() < 0.3:
        at = chance.randrange(len(whole))
        whole = whole[:at] + bytes((chance.randrange(256),)) + whole[at + 1 :]
    return whole


def body_frame(channel: int, body: bytes) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_a_client_says_is_an_error_of_the_broker(
    broker: Broker, raw_amqp10: Callable[..., RawAmqp10], queue: str, seed: int
) -> None:
    chance = random.Random(seed)
    logged = broker.log.count("internal_error")
    for _ in range(25):
        client = raw_amqp10()
        client.begin()
        said = []
        for handle in range(4):
            said.append(body_frame(0, attach(chance, handle, queue)))
            said.append(encode_frame(0, p.Flow(0, 10, 0, 10, handle, 0, 5, drain=chance.random() < 0.3)))
        for number in range(4):
            state = chance.choice((None, None, p.TransactionalState(b"x"), p.Accepted()))
            settled = chance.random() < 0.5
            transfer = p.Transfer(chance.randrange(4), number, b"t", 0, settled, state=state)
            said.append(encode_frame(0, transfer, payload(chance)))
        due = {t.Symbol("x-opt-delivery-time"): chance.choice(VALUES)}
        outcomes = (p.Accepted(), p.Modified(), p.Received(0, 0), p.Declared(b"x"), None)
        outcome = chance.choice((*outcomes, p.Modified(message_annotations=due)))
        said.append(encode_frame(0, p.Disposition(c.RECEIVER, 0, 2**31, chance.random() < 0.5, outcome)))
        said.append(encode_frame(0, p.Close()))
        client.send_bytes(b"".join(said))
        while (frame := client.read()) is not None and not isinstance(frame.body, p.Close):
            pass
        client.drop()
    assert broker.log.count("internal_error") == logged, broker.log[-6000:]


@pytest.mark.parametrize("seed", range(6))
def test_no_payload_is_an_error_of_the_broker(
    broker: Broker, raw_amqp10: Callable[..., RawAmqp10], queue: str, seed: int
) -> None:
    chance = random.Random(seed)
    logged = broker.log.count("internal_error")
    for _ in range(20):
        client = raw_amqp10()
        client.begin()
        Management(client, begin=False)
        client.attach_sender(None, 2)
        client.attach_sender(f"/queues/{queue}", 3)
        control = p.Attach(
            "control", 4, c.SENDER, source=p.Source(), target=p.Coordinator(), initial_delivery_count=0
        )
        client.attach(control)
        client.expect(p.Flow)
        client.attach_receiver(f"/queues/{queue}", 5, credit=50)
        for _ in range(12):
            handle = chance.choice((0, 2, 2, 3, 3, 4))
            client.transfer(payload(chance), handle, settled=handle == 0)
        outcome = chance.choice(
            (
                p.Accepted(),
                p.Rejected(),
                p.Released(),
                p.Modified(undeliverable_here=True),
                p.Declared(b"x"),
                None,
            )
        )
        client.send(0, p.Disposition(c.RECEIVER, 0, 2**31, chance.random() < 0.5, outcome))
        client.send(0, p.Close())
        while (frame := client.read()) is not None and not isinstance(frame.body, p.Close):
            pass
        client.drop()
    assert broker.log.count("internal_error") == logged, broker.log[-6000:]
