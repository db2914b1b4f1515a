"""broker.network.transport: a client that says very much at once is listened to in parts."""

import asyncio
import time

import pytest
from pamqp import commands

from broker.amqp.frontend import AmqpFrontend
from broker.app import Broker
from config import limits
from tests.e2e.raw_amqp import RawAmqp, method_frame

QUEUES = 50


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    monkeypatch.setattr(limits, "EVENTS_PER_TURN_MAX", 3)


@pytest.fixture
async def broker():
    async with Broker(storage="memory:") as broker:
        yield broker


def declares(*, nowait: bool) -> bytes:
    frames = [method_frame(1, commands.Queue.Declare(queue=f"q{n}", nowait=nowait)) for n in range(QUEUES)]
    return b"".join(frames)


@pytest.fixture
def parts(monkeypatch):
    """How many events were handled at a time."""
    noted = []
    handle = AmqpFrontend.handle

    def noting(frontend, events):
        noted.append(len(events))
        handle(frontend, events)

    monkeypatch.setattr(AmqpFrontend, "handle", noting)
    return noted


def connect(broker) -> RawAmqp:
    client = RawAmqp(broker.ports["amqp"])
    client.open_channel()
    return client


async def test_very_many_requests_are_answered_in_order_and_in_parts(broker, parts):
    def run():
        client = connect(broker)
        client.send_bytes(declares(nowait=False))
        names = [client.expect(commands.Queue.DeclareOk).queue for _ in range(QUEUES)]
        client.call(1, commands.Basic.Qos(0, 1), commands.Basic.QosOk)
        client.drop()
        return names

    assert await asyncio.to_thread(run) == [f"q{n}" for n in range(QUEUES)]
    assert max(parts) <= limits.EVENTS_PER_TURN_MAX


async def test_others_have_their_turn_in_between(broker, parts):
    def run():
        busy, other = connect(broker), connect(broker)
        other.send_bytes(method_frame(1, commands.Queue.Declare(queue="other")))
        busy.send_bytes(declares(nowait=True) * 20)
        other.expect(commands.Queue.DeclareOk)
        handled_count = sum(parts)
        busy.call(1, commands.Basic.Qos(0, 1), commands.Basic.QosOk)
        busy.drop()
        other.drop()
        return handled_count

    assert await asyncio.to_thread(run) < 20 * QUEUES


@pytest.mark.parametrize("closes", [True, False], ids=["connection.close", "cut off"])
async def test_what_was_said_before_the_end_is_done(broker, parts, closes):
    def run():
        client = connect(broker)
        close = method_frame(0, commands.Connection.Close(200, "bye", 0, 0)) if closes else b""
        client.send_bytes(declares(nowait=True) + close)
        if closes:
            client.expect(commands.Connection.CloseOk)
            assert client.wait_eof()
        client.drop()
        last = connect(broker)
        deadline = time.monotonic() + 10
        while True:
            try:
                ask = commands.Queue.Declare(queue=f"q{QUEUES - 1}", passive=True)
                return last.call(1, ask, commands.Queue.DeclareOk).queue
            except AssertionError:
                assert time.monotonic() < deadline
                last.drop()
                last = connect(broker)

    assert await asyncio.to_thread(run) == f"q{QUEUES - 1}"


async def test_what_takes_long_is_handled_one_by_one_and_what_does_not_ever_more_at_a_time(
    broker, parts, monkeypatch
):
    def run():
        client = connect(broker)
        parts.clear()
        client.send_bytes(declares(nowait=True))
        client.call(1, commands.Basic.Qos(0, 1), commands.Basic.QosOk)
        client.drop()
        return list(parts)

    monkeypatch.setattr(limits, "EVENTS_PER_TURN_MAX", 64)
    monkeypatch.setattr(limits, "EVENTS_TURN_MS", 60_000)
    assert max(await asyncio.to_thread(run)) >= 16
    monkeypatch.setattr(limits, "EVENTS_TURN_MS", -1)
    assert set(await asyncio.to_thread(run)) == {1}
