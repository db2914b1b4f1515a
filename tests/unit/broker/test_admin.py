"""Administration in process: counts, browsing, moving, groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from broker.admin.admin_views import MessageView, Page
from broker.app import Broker
from config.queue_settings import QueueSettings
from queue_manager.claims.claim import Consumer
from queue_manager.errors import (
    GroupNotFound,
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueNotFound,
)
from tests.unit.queue_manager.managers import Sink


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(storage="memory:") as broker:
        yield broker


class Worker:
    """A consumer in process."""

    def __init__(self, broker: Broker, queue: str, group: str = "", pattern: str = "#", credit: int = 100):
        self.broker = broker
        self.manager = broker.hub.client.shard.manager
        self.sink = Sink()
        self.consumer: Consumer = self.manager.consumption.subscribe(
            self.manager.queues.find(queue),
            group,
            pattern,
            self.sink,
            consumer_id="worker",
            credit_max=credit,
            no_ack=False,
            exclusive=False,
            lease_ms=30_000,
        )
        self.run()

    @property
    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def run(self) -> None:
        self.manager.dispatch(self.now_ms)
        self.broker.hub.settle_turn()

    def settle(self, kind: str, *offsets: int) -> None:
        claims = [self.consumer.in_flight[offset] for offset in offsets]
        getattr(self.manager, kind)(claims, self.now_ms)
        self.run()

    def close(self) -> None:
        self.manager.consumption.unsubscribe(self.consumer, self.now_ms)
        self.run()


async def fill(broker: Broker, queue: str, count: int) -> None:
    for number in range(count):
        await broker.admin.publish(f"$queue/{queue}/{number % 2}", b"%d" % number)


def bodies(page: Page) -> list[bytes | None]:
    return [message.body for message in page.messages]


async def test_queues_are_declared_listed_purged_and_deleted(broker: Broker) -> None:
    admin = broker.admin
    await admin.declare("b")
    await admin.declare(QueueSettings(name="a", type="ephemeral"))
    assert [(view.name, view.durable) for view in await admin.queues()] == [("a", False), ("b", True)]
    assert (await admin.declare("b")).name == "b"
    with pytest.raises(PreconditionFailed, match="durable"):
        await admin.declare("a")
    await fill(broker, "b", 3)
    view = await admin.queue("b")
    assert (view.ready, view.next_offset, view.groups) == (3, 3, ())
    assert await admin.purge("b") == 3
    assert (await admin.queue("b")).ready == 0
    assert await admin.delete("b") == 0
    with pytest.raises(QueueNotFound):
        await admin.queue("b")
    await admin.declare("b")  # waits until the records of the first are gone
    assert (await admin.queue("b")).next_offset == 0


async def test_publishing(broker: Broker) -> None:
    admin = broker.admin
    await admin.declare(QueueSettings(name="jobs", limits={"max_depth": 1}))  # type: ignore[arg-type]
    published = await admin.publish("jobs", b"x", headers={"n": 1}, content_type="text/plain", reply_to="r")
    assert published.queues == ("jobs",)
    message = (await admin.browse("jobs")).messages[0]
    assert (message.topic, message.headers, message.body) == ("jobs", {"n": 1}, b"x")
    assert message.properties == {"content_type": "text/plain", "reply_to": "r"}
    with pytest.raises(LimitReached, match="full"):
        await admin.publish("$queue/jobs", b"y")
    with pytest.raises(QueueNotFound):
        await admin.publish("nowhere", b"y")
    with pytest.raises(InvalidAddress):
        await admin.publish("$queue/jobs/$ack", b"y")
    with pytest.raises(InvalidArgument, match="properties"):
        await admin.publish("jobs", b"y", colour="red")
    with pytest.raises(InvalidArgument, match="x-delay"):
        await admin.publish("jobs", b"y", headers={"x-delay": "soon"})


async def test_browsing_shows_every_state_and_disturbs_nothing(broker: Broker) -> None:
    admin = broker.admin
    await admin.declare("jobs")
    await fill(broker, "jobs", 8)
    worker = Worker(broker, "jobs", credit=5)
    worker.consumer.paused = True
    worker.settle("ack", 0)
    worker.settle("reject", 1)
    worker.settle("requeue", 2)
    claim = worker.consumer.in_flight[3]
    worker.manager.requeue([claim], worker.now_ms, delay_ms=60_000)
    await admin.publish("jobs", b"later", headers={"x-delay": 60_000})
    expected = {
        "ready": [b"2", b"5", b"6", b"7"],
        "in_flight": [b"4"],
        "delayed": [b"3"],
        "failed": [b"1"],
        "done": [b"0"],
        "scheduled": [b"later"],
    }
    before = await admin.group("jobs", "")
    for _ in range(2):
        for state, texts in expected.items():
            assert bodies(await admin.browse("jobs", state=state)) == texts  # type: ignore[arg-type]
    now = await admin.group("jobs", "")
    assert replace(now, oldest_age_ms=0, idle_ms=0) == replace(before, oldest_age_ms=0, idle_ms=0)
    assert 0 <= before.oldest_age_ms <= now.oldest_age_ms
    assert (before.ready, before.in_flight, before.delayed, before.failed, before.done) == (4, 1, 1, 1, 1)
    assert before.lag == 6
    view = await admin.queue("jobs")
    assert (view.ready, view.in_flight, view.delayed, view.scheduled, view.failed, view.done) == (
        4,
        1,
        1,
        1,
        1,
        1,
    )
    claimed = (await admin.browse("jobs", state="in_flight")).messages[0]
    assert (claimed.attempts, claimed.consumer, claimed.message_id) == (1, "worker", "jobs:4")
    assert bodies(await admin.browse("jobs", bodies=False)) == [None] * 4
    with pytest.raises(InvalidArgument):
        await admin.browse("jobs", state="lost")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await admin.browse("jobs", after="x")
    later = (await admin.browse("jobs", state="scheduled")).messages[0]
    assert await admin.cancel_scheduled(later.message_id)
    assert not await admin.cancel_scheduled(later.message_id)


async def every_page(broker: Broker, **what: object) -> list[MessageView]:
    found: list[MessageView] = []
    after = None
    while True:
        page = await broker.admin.browse("jobs", after=after, limit=3, **what)  # type: ignore[arg-type]
        found += page.messages
        after = page.next
        if after is None:
            return found
        assert page.messages


@pytest.mark.parametrize("kind", ["classic", "ephemeral"])
async def test_pages(broker: Broker, kind: str) -> None:
    await broker.admin.declare(QueueSettings(name="jobs", type=kind, bucket_size=0))  # type: ignore[arg-type]
    await fill(broker, "jobs", 10)
    assert [m.offset for m in await every_page(broker)] == list(range(10))
    worker = Worker(broker, "jobs", credit=7)
    worker.settle("requeue", 0, 2)
    worker.run()
    assert len(await every_page(broker, state="in_flight")) == 7
    worker.close()
    assert [m.offset for m in await every_page(broker)] == list(range(10))
    if kind == "classic":
        odd = Worker(broker, "jobs", "odd", "1", credit=1)
        assert [m.offset for m in await every_page(broker, group="odd@1")] == [3, 5, 7, 9]
        odd.close()
        worker = Worker(broker, "jobs")
        worker.settle("reject", 1, 3, 5, 8)
        worker.settle("ack", 2, 4, 6, 7)
        assert [m.offset for m in await every_page(broker, group="", state="failed")] == [1, 3, 5, 8]
        assert [m.offset for m in await every_page(broker, group="", state="done")] == [2, 4, 6, 7]


async def test_moving_and_copying(broker: Broker) -> None:
    admin = broker.admin
    for name in ("jobs", "other", "third"):
        await admin.declare(QueueSettings(name=name, bucket_size=1))
    for number in range(25):
        await admin.publish("$queue/jobs/key", b"%d" % number, headers={"n": number})
    worker = Worker(broker, "jobs", credit=14)
    worker.consumer.paused = True
    worker.settle("reject", 0, 2, 4, 11)
    worker.settle("ack", 1, 3, *range(5, 11))
    assert await admin.copy("jobs", "third", state="failed") == 4
    assert await admin.move("jobs", "other", state="failed", limit=3) == 3
    assert await admin.move("jobs", "other", state="failed") == 1
    assert (await admin.group("jobs", "")).failed == 0
    assert bodies(await admin.browse("other")) == [b"0", b"2", b"4", b"11"]
    assert bodies(await admin.browse("third")) == [b"0", b"2", b"4", b"11"]
    assert await admin.move("jobs", "other", limit=2) == 2
    assert await admin.copy("jobs", "third", limit=1) == 1
    assert await admin.move("jobs", "other") == 9
    page = await admin.browse("other")
    assert bodies(page) == [b"%d" % number for number in (0, 2, 4, 11, *range(14, 25))]
    assert [message.headers["n"] for message in page.messages][-1] == 24
    assert {message.topic for message in page.messages} == {"$queue/jobs/key"}
    view = await admin.group("jobs", "")
    assert (view.lag, view.in_flight, view.ready) == (2, 2, 0)
    with pytest.raises(InvalidArgument):
        await admin.move("jobs", "jobs")
    with pytest.raises(InvalidArgument):
        await admin.move("jobs", "other", state="done")


async def test_groups_begin_where_they_are_told(broker: Broker) -> None:
    admin = broker.admin
    await admin.declare("jobs")
    await fill(broker, "jobs", 6)
    assert (await admin.create_group("jobs", "all")).lag == 6
    assert (await admin.create_group("jobs", "new", start="latest")).lag == 0
    assert (await admin.create_group("jobs", "some", start=4)).lag == 2
    moment = (await admin.browse("jobs", "all")).messages[3].received_at_ms
    assert (await admin.create_group("jobs", "late", start=f"timestamp={moment + 100_000}")).lag == 0
    assert (await admin.create_group("jobs", "old", start=f"timestamp={moment - 100_000}")).lag == 6
    odd = await admin.create_group("jobs", "all", pattern="1")
    assert odd.group_id == "all@1"
    with pytest.raises(PreconditionFailed):
        await admin.create_group("jobs", "all")
    with pytest.raises(InvalidArgument):
        await admin.create_group("jobs", "x", start="yesterday")
    assert [view.group_id for view in await admin.groups("jobs")] == [
        "all",
        "all@1",
        "late",
        "new",
        "old",
        "some",
    ]
    assert bodies(await admin.browse("jobs", "all@1")) == [b"1", b"3", b"5"]


async def test_a_group_is_reset_and_deleted(broker: Broker) -> None:
    admin = broker.admin
    await admin.declare("jobs")
    await admin.create_group("jobs", "keeper")
    await fill(broker, "jobs", 6)
    worker = Worker(broker, "jobs", "g")
    worker.settle("ack", 0, 1, 2)
    with pytest.raises(PreconditionFailed, match="consumers"):
        await admin.reset_group("jobs", "g")
    view = await admin.reset_group("jobs", "g", to=1, force=True)
    assert worker.sink.revoked_count == 3
    assert (view.consumers, worker.sink.offsets) == (1, [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5])
    with pytest.raises(PreconditionFailed):
        await admin.delete_group("jobs", "g")
    await admin.delete_group("jobs", "g", force=True)
    assert worker.sink.cancelled_reasons == ["consumer group 'g' of queue 'jobs' was deleted"]
    with pytest.raises(GroupNotFound):
        await admin.group("jobs", "g")
    assert (await admin.group("jobs", "keeper")).lag == 6


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda admin: admin.browse("orders", limit="5"), "limit must be int, not str"),
        (lambda admin: admin.browse("orders", limit=True), "limit must be int, not bool"),
        (lambda admin: admin.browse("orders", group=7), "group must be str or None, not int"),
        (lambda admin: admin.browse("orders", start=2.5), "start must be str or int or datetime or None"),
        (lambda admin: admin.browse(b"orders"), "queue must be str, not bytes"),
        (lambda admin: admin.create_group("orders", "g", selector=5), "selector must be str, not int"),
        (lambda admin: admin.move("orders", "others", per_second="1"), "per_second must be float or None"),
        (lambda admin: admin.move("orders", "others", per_second=float("inf")), "a rate is above 0"),
        (lambda admin: admin.redrive("orders", offsets=["1"]), "offsets must be Collection of int or None"),
        (lambda admin: admin.redrive("orders", offsets="12"), "offsets must be Collection of int or None"),
        (lambda admin: admin.delete("orders", if_empty=1), "if_empty must be bool, not int"),
        (lambda admin: admin.publish("orders", "tea"), "body must be bytes, not str"),
        (lambda admin: admin.publish("orders", b"tea", headers=[1]), "headers must be Mapping or None"),
        (lambda admin: admin.declare({"name": "x"}), "settings must be QueueSettings or str, not dict"),
    ],
)
async def test_a_value_of_the_wrong_type_is_told_at_the_door(broker, call, told):
    await broker.admin.declare("orders")
    await broker.admin.declare("others")
    with pytest.raises(InvalidArgument, match=told):
        await call(broker.admin)


@pytest.mark.parametrize("name", ["", "$queue/b", "$queue", "a\0b", "x" * 256, "\ud800"])
async def test_a_name_that_no_queue_may_have_is_an_invalid_address(broker, name):
    with pytest.raises(InvalidAddress):
        await broker.admin.declare(name)


async def test_values_of_the_right_types_pass(broker):
    await broker.admin.declare("orders")
    await broker.admin.declare("others")
    await broker.admin.publish("orders", b"tea", headers={"a": 1}, content_type="text/plain")
    await broker.admin.create_group("orders", "g", start=0)
    assert await broker.admin.redrive("orders", "g", offsets={0}, per_second=5) == 0
    assert await broker.admin.copy("orders", "others", start=0, per_second=1e3, limit=1) == 1
