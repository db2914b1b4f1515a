"""broker.connections.read_holds: a client is read from while nothing speaks against it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.connections.read_holds import Reading
from config import limits
from tests.waiting import turns


class Transport:
    """Notes whether it is read from."""

    def __init__(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


@pytest.fixture
def transport() -> Any:
    return Transport()


def test_reading_goes_on_once_the_last_reason_against_it_is_over(transport):
    reading = Reading(transport)
    reading.hold()
    assert reading.block(0.0)
    assert not reading.block(1.0)  # once at most
    reading.release()
    assert not transport.is_reading
    assert reading.unblock()
    assert not reading.unblock()
    assert transport.is_reading


def test_a_peer_is_told_of_a_store_that_did_not_keep_up_for_long(transport):
    reading = Reading(transport)
    notice_s = limits.BLOCKED_NOTICE_MS / 1000
    assert not reading.is_blocked_long(notice_s)
    reading.block(1.0)
    assert not reading.is_blocked_long(notice_s)
    assert reading.is_blocked_long(1.0 + notice_s)


def test_answers_that_are_not_taken_hold_once_and_are_not_the_brokers_fault(transport):
    reading = Reading(transport)
    reading.bound_answers(limits.SUBSCRIBER_BUFFER_BYTES_MAX)
    assert transport.is_reading
    reading.bound_answers(limits.SUBSCRIBER_BUFFER_BYTES_MAX + 1)
    reading.bound_answers(limits.SUBSCRIBER_BUFFER_BYTES_MAX + 1)
    assert not transport.is_reading
    assert not reading.is_held_by_broker
    reading.hold()
    assert reading.is_held_by_broker
    reading.release()
    reading.answers_taken()
    reading.answers_taken()
    assert transport.is_reading


def nothing_to_take() -> None:
    """See `Connection.memory_to_take`."""


async def test_others_have_their_turn_after_so_much_of_large_messages(transport):
    reading = Reading(transport)
    loop = asyncio.get_running_loop()
    part_bytes = limits.READ_TURN_BYTES_MAX // 4
    for _ in range(3):
        for _ in range(3):
            reading.took_part(part_bytes, loop, nothing_to_take)
            assert transport.is_reading
        reading.took_part(part_bytes, loop, nothing_to_take)
        assert not transport.is_reading
        await turns()
        assert transport.is_reading


async def test_a_turn_of_others_does_not_end_another_hold(transport):
    reading = Reading(transport)
    reading.took_part(limits.READ_TURN_BYTES_MAX, asyncio.get_running_loop(), nothing_to_take)
    reading.hold()
    await turns()
    assert not transport.is_reading
    reading.release()
    assert transport.is_reading


async def test_nothing_is_read_while_memory_is_taken_for_it(transport, monkeypatch):
    reading = Reading(transport)
    loop = asyncio.get_running_loop()
    may_end = threading.Event()
    reading.took_part(limits.READ_TURN_BYTES_MAX - 1, loop, lambda: may_end.wait)  # type: ignore[return-value]
    assert transport.is_reading
    reading.took_part(1, loop, lambda: may_end.wait)  # type: ignore[return-value]
    await turns(20)
    assert not transport.is_reading
    resumed = asyncio.Event()
    monkeypatch.setattr(transport, "resume_reading", resumed.set)
    may_end.set()
    await asyncio.wait_for(resumed.wait(), 30)
