"""broker.hub: many connections are written to, and asked for their deadlines, in steps."""

import asyncio

import pytest

from broker.access.access import Access
from broker.clock import Clock
from broker.hub import Hub
from config import limits
from config.access import AccessSettings
from config.settings import Settings


class Nothing:
    """A core without work."""

    class turns:
        @staticmethod
        def has_work() -> bool:
            return False

    class commits:
        @staticmethod
        def on_committed(call) -> None:
            pass


class Peer:
    def __init__(self, log: list["Peer"]) -> None:
        self._log = log

    def flush(self) -> None:
        self._log.append(self)

    def check_deadline(self, now: float) -> None:
        self._log.append(self)


@pytest.fixture
async def hub(monkeypatch):
    monkeypatch.setattr(limits, "FLUSHES_PER_TURN_MAX", 3)
    monkeypatch.setattr(limits, "DEADLINES_PER_TURN_MAX", 3)
    return Hub(Settings(), Nothing, Access(AccessSettings(), Clock()), Clock(), asyncio.get_running_loop())


async def test_flushes_go_in_order_and_leave_turns_to_others(hub):
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(8)]
    for peer in peers:
        hub.want_flush(peer)
    seen = []
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append(len(done))
    assert seen == [3, 6, 8, 8]
    assert done == peers
    hub.want_flush(peers[0])
    await asyncio.sleep(0)
    assert len(done) == 9


async def test_connection_lost_between_two_steps_is_not_written_to(hub):
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(5)]
    for peer in peers:
        hub.connected(peer)
        hub.want_flush(peer)
    await asyncio.sleep(0)
    hub.disconnected(peers[3])
    await asyncio.sleep(0)
    assert done == [*peers[:3], peers[4]]


async def test_connection_lost_between_two_steps_is_not_asked_for_its_deadline(hub):
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(5)]
    for peer in peers:
        hub.connected(peer)
    asking = asyncio.create_task(hub.check_deadlines(0.0))
    await asyncio.sleep(0)
    assert len(done) == 3
    hub.disconnected(peers[4])
    await asking
    assert done == peers[:4]
