"""broker.http.station: a message claimed for a request is the request's, or back in the queue at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.app import Broker
from broker.http.mqcore.queues import Queues
from broker.http.station import Station
from broker.http.values import UnfinishedBodies
from tests.waiting import LoopClock, turns


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(storage="memory:") as broker:
        await broker.admin.declare("q")
        yield broker


@pytest.fixture
def station(broker: Broker) -> Station:
    return Station(broker.hub, broker.hub.client.consuming.find("q"), "", tells_offsets=False)


def arrive(broker: Broker, count: int = 1) -> None:
    """Messages come, and are handed out in the same turn."""
    publishing = broker.hub.client.publishing
    plan = publishing.plan("q", 0, b"", True)
    publishing.aim(plan, publishing.named("q"))
    publishing.publish(plan, [b"hello"] * count, broker.clock.now_ms())
    broker.hub.settle_turn()


async def counts(broker: Broker) -> tuple[int, int]:
    """Ready, and in flight."""
    view = await broker.admin.queue("q")
    return view.ready, view.in_flight


async def until_waiting(station: Station) -> None:
    await turns()  # in which the task begins
    assert station._polls


async def test_message_that_comes_as_the_time_ends_is_the_answer(broker: Broker, station: Station) -> None:
    clock = LoopClock()
    poll = asyncio.create_task(station.wait(60))
    await until_waiting(station)
    clock.jump(61)
    asyncio.get_running_loop().call_soon(arrive, broker)  # and behind it, in the same turn, the time ends
    found = await poll
    assert found is not None
    assert found[0].body == b"hello"
    assert await counts(broker) == (0, 1)


async def test_nothing_in_time_is_nothing(broker: Broker, station: Station) -> None:
    assert await station.wait(0.001) is None
    arrive(broker)
    assert await counts(broker) == (1, 0)


async def test_message_of_a_request_that_ends_meanwhile_is_back_at_once(
    broker: Broker, station: Station
) -> None:
    poll = asyncio.create_task(station.wait(60))
    await until_waiting(station)
    arrive(broker)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    assert await counts(broker) == (1, 0)
    [(message, claim)] = await station.fetch(1)
    assert (message.body, claim.attempts) == (b"hello", 1)  # nobody was given it before


async def test_message_that_comes_when_the_request_has_just_ended_was_not_tried(
    broker: Broker, station: Station
) -> None:
    poll = asyncio.create_task(station.wait(60))
    await until_waiting(station)
    poll.cancel()
    arrive(broker)
    with pytest.raises(asyncio.CancelledError):
        await poll
    await turns()
    assert await counts(broker) == (1, 0)
    [(message, claim)] = await station.fetch(1)
    assert (message.body, claim.attempts) == (b"hello", 1)


async def test_it_goes_to_the_next_request_that_waits(broker: Broker, station: Station) -> None:
    first = asyncio.create_task(station.wait(60))
    await until_waiting(station)
    arrive(broker)
    second = asyncio.create_task(station.wait(60))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    found = await second
    assert found is not None
    assert found[0].body == b"hello"


async def test_each_request_has_one(broker: Broker, station: Station) -> None:
    polls = [asyncio.create_task(station.wait(60)) for _ in range(2)]
    await until_waiting(station)
    arrive(broker, 4)
    assert len({found[0].offset for found in await asyncio.gather(*polls) if found}) == 2
    assert await counts(broker) == (2, 2)


async def test_what_was_fetched_for_somebody_gone_is_given_back(broker: Broker) -> None:
    queues = Queues(broker.hub, broker.admin, UnfinishedBodies())
    arrive(broker)
    found = await queues.fetch("q", "")
    assert found is not None
    queues.give_back("q", "", found)
    assert await counts(broker) == (1, 0)
