"""broker.engine.client: the client of a shard in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from broker.engine.shard_ending import BrokerStopped
from queue_manager.api import (
    BrowseRequest,
    CommittedEpoch,
    EpochPart,
    GroupDefinition,
    GroupStart,
    QueueDeclaration,
    StageTag,
    StreamStart,
    StreamStatus,
)
from queue_manager.errors import (
    GroupNotFound,
    InvalidArgument,
    PreconditionFailed,
    QueueNotFound,
    ReservedName,
    ResourceLocked,
)
from queue_manager.log.stream_start import NEXT
from queue_manager.options import PublishOptions
from queue_manager.policy import FOREVER, QueuePolicy
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock
from tests.unit.queue_manager import managers
from tests.waiting import turns, until_so

POLICY = QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=100)
STREAM = QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=100, stream=True)


def declaration(name: str, policy: QueuePolicy = POLICY, **what: bool) -> QueueDeclaration:
    return QueueDeclaration(name=name, policy=policy, **{"durable": True, **what})


@pytest.fixture
async def client() -> AsyncIterator[ShardClient]:
    clock = FakeClock()
    shard = await Shard.open(
        MemoryStore(),
        clock,  # type: ignore[arg-type]
        default_policy=POLICY,
        auto_create=True,
        cache_bytes_max=1 << 20,
    )
    shard.start()
    client = ShardClient(shard)
    whole: ShardClient = client
    yield client
    whole.check()
    await shard.close()


def publish(client: ShardClient, queue: str, *bodies: bytes, options: PublishOptions | None = None) -> None:
    publishing = client.publishing
    plan = publishing.plan(queue, 0, b"", True, options or PublishOptions())
    publishing.aim(plan, publishing.named(queue))
    publishing.publish(plan, list(bodies), client.shard.clock.now_ms())


class Waiter:
    def __init__(self) -> None:
        self.tokens: list[list[int]] = []

    def committed(self, tokens: list[int]) -> None:
        self.tokens.append(tokens)


# queues


async def test_declaring_says_whether_the_queue_is_new(client: ShardClient) -> None:
    assert client.queues.declare(declaration("q")).result().is_new
    status = client.queues.declare(declaration("q")).result()
    assert (status.is_new, status.durable, status.name) == (False, True, "q")
    with pytest.raises(PreconditionFailed):
        client.queues.declare(declaration("q", STREAM)).result()


async def test_a_name_of_the_broker_is_refused_whoever_asks_for_it(client: ShardClient) -> None:
    with pytest.raises(ReservedName, match="queue name 'amq.q' contains reserved prefix"):
        client.queues.declare(declaration("amq.q")).result()
    with pytest.raises(ReservedName):
        client.queues.configure(declaration("amq.q")).result()
    await client.queues.declare(replace(declaration("amq.gen-q"), is_server_named=True))
    assert not client.queues.declare(declaration("amq.gen-q")).result().is_new, "which is there already"


async def test_declaring_what_is_being_deleted_is_answered_when_it_is_gone(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    publish(client, "q", b"old")
    await client.commits.durable()
    await client.queues.delete("q")
    answer = client.queues.declare(declaration("q"))
    assert not answer.is_done
    assert (await answer).is_new
    assert (await client.queues.view("q")).ready == 0


async def test_declaring_what_is_being_deleted_ends_with_the_shard(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    await client.commits.durable()
    await client.queues.delete("q")
    answer = client.queues.declare(declaration("q"))
    client.shard.ending.end()
    with pytest.raises(BrokerStopped):
        await answer
    with pytest.raises(BrokerStopped):
        client.check()
    client.check = lambda: None  # type: ignore[method-assign]


async def test_an_exclusive_queue_is_its_callers_and_goes_with_it(client: ShardClient) -> None:
    await client.queues.declare(declaration("q", durable=False, exclusive=True), "one")
    with pytest.raises(ResourceLocked):
        client.queues.purge("q", "two").result()
    with pytest.raises(ResourceLocked):
        client.queues.look("q", "".join(("t", "wo"))).result()
    assert client.queues.look("q", "".join(("o", "ne"))).result().name == "q"
    client.queues.forget_caller("two")
    assert client.queues.exists("q").result()
    client.queues.forget_caller("one")
    assert not client.queues.exists("q").result()


async def test_a_caller_takes_no_queue_along_that_somebody_else_made_since(client: ShardClient) -> None:
    await client.queues.declare(declaration("q", durable=False, exclusive=True), "one")
    await client.queues.delete("q")
    await client.queues.declare(declaration("q", durable=False), "two")
    client.queues.forget_caller("one")
    assert client.queues.exists("q").result()


class Sink:
    """Takes what comes."""

    def deliver(self, *arguments: object) -> bool:
        return True

    def revoked(self, *arguments: object) -> None:
        pass

    def cancelled(self, *arguments: object) -> None:
        pass


async def test_a_caller_may_go_after_its_exclusive_queue_deleted_itself(client: ShardClient) -> None:
    await client.queues.declare(declaration("q", durable=False, exclusive=True, auto_delete=True), "one")
    consumer = await client.consuming.subscribe(
        client.consuming.find("q", "one"),
        "",
        "#",
        Sink(),
        consumer_id="c",
        credit_max=1,
        no_ack=False,
        exclusive=False,
        lease_ms=1_000,
    )
    client.consuming.unsubscribe(consumer, client.shard.clock.now_ms())
    assert not client.queues.exists("q").result()
    client.queues.forget_caller("one")


async def test_configuring_applies_another_policy_once(client: ShardClient) -> None:
    assert not client.queues.configure(declaration("q")).result()
    wanted = declaration("q", QueuePolicy(visibility_timeout_ms=5, message_bytes_max=100))
    assert client.queues.configure(wanted).result()
    assert not client.queues.configure(wanted).result()
    assert client.queues.look("q", "").result().policy.visibility_timeout_ms == 5
    with pytest.raises(PreconditionFailed, match="but not as stream"):
        client.queues.configure(declaration("q", STREAM)).result()
    with pytest.raises(PreconditionFailed, match="but not as ephemeral"):
        client.queues.configure(declaration("q", durable=False)).result()


async def test_only_asking_that_is_a_use_keeps_a_queue(client: ShardClient) -> None:
    await client.queues.declare(declaration("q", durable=False))
    queue = client.shard.manager.queues.find("q")
    clock = client.shard.clock
    clock.ms += 5_000  # type: ignore[attr-defined]
    client.queues.look("q", "one").result()
    assert queue.use.unused_since_ms < clock.now_ms()
    client.queues.look("q", "one", is_use=True).result()
    assert queue.use.unused_since_ms == clock.now_ms()


async def test_purging_and_deleting_say_how_many_messages_went(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    publish(client, "q", b"1", b"2")
    purged = client.queues.purge("q").result()
    assert (purged.count, purged.durable) == (2, True)
    publish(client, "q", b"3")
    with pytest.raises(PreconditionFailed):
        client.queues.delete("q", if_empty=True).result()
    assert client.queues.delete("q").result().count == 1
    with pytest.raises(QueueNotFound):
        client.queues.delete("q").result()


# groups


async def test_a_group_that_is_ensured_stays_as_it_is(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    publish(client, "q", b"1", b"2")
    wanted = GroupDefinition(name="g", start=GroupStart(offset=1))
    await client.groups.ensure("q", wanted)
    assert (await client.groups.view("q", "g")).position == 1
    await client.groups.ensure("q", GroupDefinition(name="g"))
    assert (await client.groups.view("q", "g")).position == 1
    with pytest.raises(PreconditionFailed):
        await client.groups.ensure("q", GroupDefinition(name="g", selector="a = 1"))
    assert [view.group_id for view in await client.groups.views("q")] == ["g"]
    await client.groups.delete("q", "g", force=False)
    with pytest.raises(GroupNotFound):
        await client.groups.view("q", "g")


# messages


async def test_browsing_gives_a_page_with_where_the_next_begins(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    publish(client, "q", b"1", b"2", b"3")
    page = await client.messages.browse("q", BrowseRequest(state="ready", limit=2))
    assert [(found.name, found.body) for found in page.messages] == [("0", b"1"), ("1", b"2")]
    rest = await client.messages.browse("q", BrowseRequest(state="ready", limit=2, after=page.next))
    assert [found.body for found in rest.messages] == [b"3"]
    assert rest.next is None
    bare = await client.messages.browse("q", BrowseRequest(state="ready", limit=9, bodies=False))
    assert [found.body for found in bare.messages] == [None] * 3


async def test_messages_settled_one_by_one_are_all_browsed_as_done(client: ShardClient) -> None:
    await client.queues.declare(
        declaration(
            "q", QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=100, done_retention_ms=FOREVER)
        )
    )
    publish(client, "q", b"1", b"2", b"3")
    sink = managers.Sink()
    manager = client.shard.manager
    puller = client.consuming.puller(client.consuming.find("q"), sink, "c", lease_ms=1_000)
    client.consuming.pull(puller, False, client.shard.clock.now_ms(), 3)
    for claim in sink.claims:
        manager.ack([claim], client.shard.clock.now_ms())
        await client.shard.commit_once(everything=True)
    page = await client.messages.browse("q", BrowseRequest(state="done", limit=9))
    assert [found.body for found in page.messages] == [b"1", b"2", b"3"]


async def test_a_scheduled_message_is_named_by_when_it_is_due_and_cancelled_so(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    publish(client, "q", b"later", options=PublishOptions(delay_ms=60_000))
    page = await client.messages.browse("q", BrowseRequest(state="scheduled", limit=2))
    found = page.messages[0]
    assert (found.offset, found.body) == (-1, b"later")
    assert await client.messages.cancel_scheduled("q", found.name)
    assert not await client.messages.cancel_scheduled("q", found.name)


# streams, epochs


async def test_the_status_of_a_stream(client: ShardClient) -> None:
    await client.queues.declare(declaration("log", STREAM))
    publish(client, "log", b"1", b"2", b"3")
    await client.commits.durable()
    status = client.streams.status
    assert status("log", "c", group=None, start=None).result() == StreamStatus(0, 3, None, None)
    assert status("log", "c", group=None, start=StreamStart(NEXT)).result().place == 3
    assert status("log", "c", group="g", start=None).result().committed is None
    made = status("log", "c", group="g", start=StreamStart(NEXT)).result()
    assert (made.committed, made.place) == (3, None)
    await client.streams.commit_offset("log", "c", "g", 1)
    assert status("log", "c", group="g", start=None).result().committed == 2
    await client.queues.declare(declaration("q"))
    with pytest.raises(InvalidArgument):
        status("q", "c", group=None, start=None).result()


async def test_an_epoch_is_committed_once_and_forgotten(client: ShardClient) -> None:
    await client.queues.declare(declaration("q"))
    tag = StageTag("job", 1, 0, "a")
    publish(client, "q", b"row", options=PublishOptions(stage=tag))
    assert client.epochs.status("q", "c", "job", tag).result().staged_rows == 1
    parts = [EpochPart(0, "a", 1)]
    first = client.epochs.commit("q", "c", "job", 1, parts, "sum").result()
    assert first == CommittedEpoch(1, 1, "sum", before=False)
    assert client.epochs.commit("q", "c", "job", 1, parts, "sum").result().before
    assert client.epochs.status("q", "c", "job", None).result().last == CommittedEpoch(1, 1, "sum")
    publish(client, "q", b"row", options=PublishOptions(stage=StageTag("job", 2, 0, "a")))
    assert client.epochs.abort("q", "c", "job", 2, None).result() == 1
    with pytest.raises(PreconditionFailed):
        client.epochs.forget("q", "c", "job").result()

    async def is_forgotten() -> bool:
        await client.commits.durable()
        try:
            return client.epochs.forget("q", "c", "job").result()
        except PreconditionFailed:
            return False

    await until_so(is_forgotten)  # once its rows are in the queue
    assert not client.epochs.forget("q", "c", "job").result()


# commits


async def test_of_tokens_that_wait_up_to_one_the_last_of_each_commit_is_told(client: ShardClient) -> None:
    waiter = Waiter()
    assert client.commits.wait_up_to(waiter, 1)
    assert not client.commits.wait_up_to(waiter, 2)
    await client.commits.durable()
    assert client.commits.wait_up_to(waiter, 3)
    await client.commits.durable()
    assert waiter.tokens == [[2], [3]]


async def test_all_tokens_that_wait_are_told_with_their_commit(client: ShardClient) -> None:
    waiter = Waiter()
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    client.commits.on_committed(count)
    client.commits.wait(waiter, 1)
    client.commits.wait_for(waiter, [2, 3])
    await client.commits.durable()
    await turns()
    assert waiter.tokens == [[1, 2, 3]]
    assert commits == 1
