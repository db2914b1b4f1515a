"""Administration of queues with priorities, streams, message groups and filters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.admin.admin_views import MessageView
from broker.app import Broker
from config.queue_settings import QueueSettings
from queue_manager.claims.claim import Consumer
from queue_manager.errors import GroupNotFound, InvalidArgument, LimitReached, PreconditionFailed
from queue_manager.filters.consumer_filter import consumer_filter
from tests.unit.broker.test_admin import Worker
from tests.unit.queue_manager.managers import waiting_bytes
from tests.waiting import until_so


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(storage="memory:") as broker:
        yield broker


async def declare(broker: Broker, name: str = "jobs", **settings: Any) -> None:
    await broker.admin.declare(QueueSettings(name=name, **settings))


async def publish(broker: Broker, *bodies: bytes, queue: str = "jobs", **what: Any) -> None:
    for body in bodies:
        await broker.admin.publish(f"$queue/{queue}/{body.decode()}", body, **what)


async def listing(broker: Broker, queue: str = "jobs", limit: int = 2, **what: Any) -> list[MessageView]:
    found: list[MessageView] = []
    page = await broker.admin.browse(queue, limit=limit, **what)
    while True:
        found += page.messages
        if page.next is None:
            return found
        page = await broker.admin.browse(queue, limit=limit, **{**what, "start": None}, after=page.next)


async def bodies(broker: Broker, queue: str = "jobs", **what: Any) -> list[bytes | None]:
    return [message.body for message in await listing(broker, queue, **what)]


async def come(consumer: Consumer, offsets: list[int]) -> None:
    """Wait until the consumer holds these; they may have to be read back."""
    await until_so(lambda: sorted(consumer.in_flight) == offsets, told=lambda: sorted(consumer.in_flight))


async def test_a_queue_with_priorities_is_one_queue(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker, max_priority=3)
    await declare(broker, "other")
    for number in range(8):
        await publish(broker, b"%d" % number, priority=number % 4)
    order = [b"3", b"7", b"2", b"6", b"1", b"5", b"0", b"4"]
    assert await bodies(broker) == order
    assert [(view.name, view.ready) for view in await admin.queues()] == [("jobs", 8), ("other", 0)]
    worker = Worker(broker, "jobs", credit=5)
    worker.consumer.paused = True
    assert await bodies(broker) == order[5:]
    held = await listing(broker, state="in_flight")
    assert [message.body for message in held] == order[:5]
    offsets = [message.offset for message in held]
    worker.settle("reject", *offsets[:3])
    worker.settle("ack", offsets[3])
    assert await bodies(broker, state="failed") == order[:3]
    assert await bodies(broker, state="done") == order[3:4]
    view = await admin.group("jobs", "")
    assert (view.ready, view.in_flight, view.failed, view.done, view.lag) == (3, 1, 3, 1, 4)
    assert await admin.copy("jobs", "other") == 3
    assert await admin.move("jobs", "other", state="failed", limit=2) == 2
    assert await admin.move("jobs", "other", state="ready") == 3
    assert await bodies(broker, "other") == order[5:] + order[:2] + order[5:]
    view = await admin.group("jobs", "")
    assert (view.ready, view.in_flight, view.failed) == (0, 1, 1)
    with pytest.raises(PreconditionFailed, match="consumers"):
        await admin.reset_group("jobs", "", to="earliest")
    with pytest.raises(InvalidArgument, match="priorities"):
        await admin.reset_group("jobs", "", to=2, force=True)
    await admin.reset_group("jobs", "", to="latest", force=True)
    assert (await admin.group("jobs", "")).lag == 0
    await publish(broker, b"8", b"9", priority=2)
    assert await admin.purge("jobs") == 2
    await admin.create_group("jobs", "g", start="latest")
    await publish(broker, b"a", priority=1)
    assert await bodies(broker, group="g") == [b"a"]
    await admin.delete_group("jobs", "g")
    assert (await admin.queue("jobs")).groups == ("",)
    with pytest.raises(GroupNotFound):
        await admin.group("jobs", "g")
    worker.close()


async def test_a_stream_is_read_and_copied_not_moved(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker, type="stream")
    await declare(broker, "other")
    await publish(broker, *[b"%d" % number for number in range(10)])
    view = await admin.queue("jobs")
    assert (view.type, view.first_offset, view.next_offset, view.retained_bytes) == ("stream", 0, 10, 10)
    assert (view.ready, view.groups) == (10, ())
    assert await bodies(broker, start=7) == [b"7", b"8", b"9"]
    assert await admin.copy("jobs", "other", start=8) == 2
    with pytest.raises(InvalidArgument, match="copy them"):
        await admin.move("jobs", "other")
    await admin.create_group("jobs", "g", start=4)
    reader = Worker(broker, "jobs", "g", credit=3)
    reader.settle("ack", 4)
    reader.consumer.paused = True
    group = await admin.group("jobs", "g")
    assert (group.committed, group.lag, group.in_flight, group.lost) == (5, 5, 3, 0)
    assert [message.offset for message in await listing(broker, group="g", state="in_flight")] == [5, 6, 7]
    assert await bodies(broker, group="g") == [b"8", b"9"]
    with pytest.raises(PreconditionFailed):
        await admin.reset_group("jobs", "g", to=1)
    reader.close()
    assert (await admin.reset_group("jobs", "g", to=1)).lag == 9
    assert (await admin.reset_group("jobs", "g", to="latest")).lag == 0
    assert (await admin.reset_group("jobs", "g", to="timestamp=1")).lag == 10
    await admin.purge("jobs")
    view = await admin.queue("jobs")
    assert (view.first_offset, view.next_offset, view.retained_bytes) == (10, 10, 0)
    assert (await admin.group("jobs", "g")).lost == 10
    await admin.delete_group("jobs", "g")
    assert await admin.groups("jobs") == []
    await admin.create_group("jobs", "g")
    assert (await admin.group("jobs", "g")).lost == 0
    with pytest.raises(InvalidArgument, match="name"):
        await admin.create_group("jobs", "")


async def test_what_no_filter_wants_is_counted_and_listed(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker)
    worker = Worker(broker, "jobs")
    worker.close()
    manager = broker.hub.client.shard.manager
    wanted = consumer_filter("n = 1", {})
    consumer = manager.consumption.subscribe(
        manager.queues.find("jobs"), "", "#", worker.sink, consumer_id="picky", credit_max=2, no_ack=False,
        exclusive=False, lease_ms=30_000, wanted=wanted,
    )  # fmt: skip
    for number in range(8):
        await publish(broker, b"%d" % number, headers={"n": number % 2})
    assert sorted(consumer.in_flight) == [1, 3]
    await broker.hub.client.shard.barrier()
    assert await bodies(broker) == [b"0", b"2", b"4", b"5", b"6", b"7"]
    view = await admin.group("jobs", "")
    assert (view.ready, view.in_flight) == (6, 2)
    assert view.unmatched >= 2
    manager.requeue([consumer.in_flight[1]], worker.now_ms, delay_ms=60_000)
    assert await bodies(broker, state="delayed") == [b"1"]
    await declare(broker, "other")
    assert await admin.move("jobs", "other", limit=3) == 3
    await admin.reset_group("jobs", "", to=4, force=True)
    await come(consumer, [5, 7])
    assert await bodies(broker) == [b"4", b"6"]
    await admin.delete_group("jobs", "", force=True)
    assert not consumer.active
    assert (await admin.queue("jobs")).groups == ()


async def test_what_waits_for_a_consumer_of_its_message_group_is_ready(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker, message_groups="sticky")
    Worker(broker, "jobs", credit=1)
    for number in range(6):
        await publish(broker, b"%d" % number, headers={"JMSXGroupID": "k"})
    assert await bodies(broker, state="in_flight") == [b"0"]
    assert await bodies(broker) == [b"1", b"2", b"3", b"4", b"5"]
    assert (await admin.group("jobs", "")).ready == 5
    await admin.reset_group("jobs", "", to=2, force=True)
    assert await bodies(broker, state="in_flight") == [b"2"]
    assert await bodies(broker) == [b"3", b"4", b"5"]
    await admin.delete_group("jobs", "", force=True)
    assert await bodies(broker) == [b"2", b"3", b"4", b"5"]


async def test_groups_have_selectors_from_the_api_and_the_configuration(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker, groups=[{"name": "ones", "selector": "n = 1"}, {"name": "a", "pattern": "x/#"}])
    await admin.create_group("jobs", "twos", selector="n = 2")
    with pytest.raises(InvalidArgument, match="column"):
        await admin.create_group("jobs", "bad", selector="n = ")
    for number in range(6):
        await publish(broker, b"%d" % number, headers={"n": number % 3})
    assert await bodies(broker, group="ones") == [b"1", b"4"]
    assert await bodies(broker, group="twos") == [b"2", b"5"]
    assert await bodies(broker, group="a@x/#") == []
    assert [(view.group_id, view.selector) for view in await admin.groups("jobs")] == [
        ("a@x/#", ""), ("ones", "n = 1"), ("twos", "n = 2"),
    ]  # fmt: skip
    view = await admin.reset_group("jobs", "twos", to=3)
    assert view.selector == "n = 2"
    assert await bodies(broker, group="twos") == [b"5"]
    with pytest.raises(PreconditionFailed, match="selector"):
        await declare(broker, groups=[{"name": "ones", "selector": "n = 3"}])


def picky(broker: Broker, worker: Worker, group: str, credit: int) -> Consumer:
    manager = broker.hub.client.shard.manager
    consumer = manager.consumption.subscribe(
        manager.queues.find("jobs"), group, "#", worker.sink, consumer_id="picky", credit_max=credit,
        no_ack=False, exclusive=False, lease_ms=30_000, wanted=consumer_filter("n = 1", {}),
    )  # fmt: skip
    worker.run()
    return consumer


async def test_what_the_last_group_did_out_of_order_does_not_come_to_the_next(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker)
    for number in range(8):
        await publish(broker, b"%d" % number, headers={"n": number % 2})
    worker = Worker(broker, "jobs", "first", credit=1)
    worker.settle("requeue", 0)
    worker.close()
    consumer = picky(broker, worker, "first", 2)
    broker.hub.client.shard.manager.ack(list(consumer.in_flight.values()), worker.now_ms)
    worker.run()
    await admin.delete_group("jobs", "first", force=True)
    await admin.create_group("jobs", "next")
    assert await bodies(broker, group="next") == [b"0", b"2", b"4", b"5", b"6", b"7"]
    consumer = picky(broker, worker, "next", 10)
    await come(consumer, [5, 7])
    await come(Worker(broker, "jobs", "next").consumer, [0, 2, 4, 6])


async def test_a_reset_counts_bytes_anew_and_brings_nothing_back_that_expired(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker, limits={"max_bytes": 8})
    await publish(broker, *[b"%d" % number for number in range(6)])
    worker = Worker(broker, "jobs", "g")
    worker.settle("ack", *range(6))
    worker.close()
    queue = broker.hub.client.shard.manager.queues.find("jobs")
    await admin.reset_group("jobs", "g", to=2)
    await until_so(lambda: waiting_bytes(queue) == 4)  # what is not in memory is read and counted
    await publish(broker, b"6", b"7", b"8", b"9")
    with pytest.raises(LimitReached):
        await publish(broker, b"x")
    await admin.reset_group("jobs", "g", to="latest")
    assert waiting_bytes(queue) == 0
    await publish(broker, b"y")
    await admin.delete_group("jobs", "g")
    await admin.create_group("jobs", "h", start="latest")
    assert waiting_bytes(queue) == 0
    await publish(broker, *[b"%d" % number for number in range(8)])
    with pytest.raises(LimitReached):
        await publish(broker, b"x")


async def test_what_a_reset_replaced_does_not_expire_twice(broker: Broker) -> None:
    admin = broker.admin
    await declare(broker, dlq="dead", limits={"message_ttl_ms": 60})
    await declare(broker, "dead")
    await publish(broker, b"1", b"2")
    worker = Worker(broker, "jobs", "g", credit=2)
    worker.settle("requeue", 0)
    worker.close()
    await admin.reset_group("jobs", "g", to="earliest")

    async def both_are_dead() -> bool:
        return (await admin.queue("dead")).ready >= 2

    await until_so(both_are_dead)
    await broker.hub.client.commits.durable()
    assert (await admin.queue("dead")).ready == 2
    assert await bodies(broker, group="g") == []


async def test_a_priority_queue_is_declared_again_once_all_its_priorities_are_gone(broker: Broker) -> None:
    await declare(broker, max_priority=3)
    for number in range(8):
        await publish(broker, b"%d" % number, priority=number % 4)
    await broker.admin.delete("jobs")
    async with asyncio.timeout(10):
        await declare(broker, max_priority=3)
    assert (await broker.admin.queue("jobs")).ready == 0
