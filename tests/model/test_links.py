"""What once went wrong over links between workers, each as it was; `test_links_model` found it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.engine.answers import Answer
from broker.http.station import Station
from broker.workers.asking_link import Link
from broker.workers.link_greeting import Greeting
from broker.workers.link_values import CODEC
from broker.workers.neighbours import judge_of
from queue_manager.api import BindingDefinition, QueueDeclaration
from queue_manager.errors import QueueNotFound
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.policy import QueuePolicy
from storage.batch import WriteOps
from tests.model.link_clients import Channel, UpTo
from tests.model.link_oracle import Ledger, QueueModel
from tests.model.link_world import COUNT, Node, SlowStore, World, left_over, world_of

POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20, done_retention_ms=0)
A_WHILE_S = 0.5


@pytest.fixture
def world() -> Iterator[World]:
    with world_of(1) as world:
        yield world


def run(world: World, work: Coroutine[Any, Any, None]) -> None:
    """Do something in a world whose workers are there."""

    async def begun() -> None:
        await world.start()
        await work
        world.check()

    world.loop.run_until_complete(begun())


async def declared(node: Node, name: str, *, durable: bool = True, **policy: Any) -> None:
    """Declare a queue at a worker."""
    wanted = QueuePolicy(**(POLICY.fields() | policy))
    answer: Answer[Any] = node.within(
        node.client.own_queues.declare, QueueDeclaration(name=name, durable=durable, policy=wanted)
    )
    node.want_settle_within()
    await answer


class Client:
    """A channel at one worker."""

    def __init__(self, node: Node, ledger: Ledger) -> None:
        self.node = node
        self.channel = Channel(node, ledger, 1, UpTo)

    def do(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Have the channel do something, and end the turn."""
        self.node.within(lambda: call(*arguments, **named))
        self.node.want_settle_within()

    def publish(self, names: list[str], bodies: list[bytes], *, is_varied: bool = False) -> None:
        """Publish to queues by their names."""
        publishing = self.node.client.publishing

        def publish() -> None:
            plan = publishing.plan(names[0], 1, b"", True)
            publishing.aim(plan, publishing.joined([publishing.named(name) for name in names]))
            self.channel.publish(plan, bodies, is_varied=is_varied)

        self.do(publish)

    async def take(self, name: str) -> bytes | None:
        """Take a message as basic.get, which is acknowledged; None: there is none."""
        count = len(self.channel.holds)
        self.do(self.channel.pull, name, no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        if len(self.channel.holds) == count:
            return None
        tag = next(reversed(self.channel.holds))
        body = self.channel.holds[tag].copy.message.body
        self.do(self.channel.settle, "ack", [tag])
        return body


def ledger_of(*names: str) -> Ledger:
    ledger = Ledger([QueueModel(name, True) for name in names])
    for queue in ledger.queues.values():
        queue.is_there = True
    return ledger


def test_a_publish_to_another_worker_is_not_confirmed_before_an_earlier_one_to_the_own(world: World) -> None:
    ledger = ledger_of("here", "there")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(here, "here")
        await declared(there, "there")
        is_free = asyncio.Event()
        write = SlowStore.write

        async def stuck(ops: WriteOps) -> None:
            await is_free.wait()
            await write(here.store, ops)

        here.store.write = stuck  # type: ignore[method-assign]
        client = Client(here, ledger)
        client.publish(["here"], [b"first"])
        client.publish(["there"], [b"second"])
        await asyncio.sleep(A_WHILE_S)
        assert [message.outcome for message in ledger.messages.values()] == [None, None]
        is_free.set()
        await asyncio.sleep(A_WHILE_S)
        assert [message.outcome for message in ledger.messages.values()] == [0, 0]

    run(world, work())


def test_messages_of_another_worker_are_settled_as_they_are_named_in_whatever_order(world: World) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        client = Client(here, ledger)
        client.publish(["q"], [b"%d" % number for number in range(1, 6)])
        client.do(client.channel.consume, "q", 5, no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        client.do(client.channel.settle, "ack", [3, 1, 5])
        client.do(client.channel.close)
        await asyncio.sleep(A_WHILE_S)
        client = Client(here, ledger)
        assert [await client.take("q") for _ in range(3)] == [b"2", b"4", None]

    run(world, work())


def test_messages_with_properties_of_their_own_stay_in_each_queue_of_another_worker(world: World) -> None:
    ledger = ledger_of("p", "q")
    bodies = [b"%d" % number * 2_000 for number in range(2)]

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "p")
        await declared(there, "q")
        client = Client(here, ledger)
        client.publish(["p", "q"], bodies, is_varied=True)
        await asyncio.sleep(A_WHILE_S)
        world.kill(1)  # so that bodies come from the store
        await world.ready()
        for name in ("p", "q"):
            assert [await client.take(name) for _ in range(3)] == [*bodies, None]
            await asyncio.sleep(5)

    run(world, work())


def test_a_dead_letter_goes_to_another_worker_once_it_is_durable_here(world: World) -> None:
    ledger = ledger_of("q", "dead")
    ledger.queues["q"].dead = "dead"

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "dead")
        await declared(here, "q", dead_letter="dead")
        client = Client(here, ledger)
        client.publish(["q"], [b"first", b"second"])
        client.do(client.channel.consume, "q", 2, no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        client.do(client.channel.settle, "reject", [1])
        await asyncio.sleep(A_WHILE_S)
        is_free = asyncio.Event()
        write = SlowStore.write

        async def stuck(ops: WriteOps) -> None:
            await is_free.wait()
            await write(here.store, ops)

        here.store.write = stuck  # type: ignore[method-assign]
        client.do(client.channel.settle, "reject", [2])
        await asyncio.sleep(A_WHILE_S)
        other = Client(there, ledger)
        assert [await other.take("dead") for _ in range(2)] == [b"first", None]
        is_free.set()
        await asyncio.sleep(A_WHILE_S)
        assert await other.take("dead") == b"second"

    run(world, work())


def test_a_channel_that_closes_is_given_nothing_of_what_it_returns(world: World) -> None:
    ledger = ledger_of("p", "q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "p")
        await declared(there, "q")
        client = Client(here, ledger)
        client.do(client.channel.share, 2)
        for name in ("p", "q"):
            client.do(client.channel.consume, name, 5, no_ack=False)
            await asyncio.sleep(A_WHILE_S)
            client.publish([name], [b"%d" % number for number in range(5)] if name == "p" else [b"a", b"b"])
            await asyncio.sleep(A_WHILE_S)
        assert len(client.channel.holds) == 2
        taken = client.channel.tag
        client.do(client.channel.close)
        assert client.channel.tag == taken

    run(world, work())


@pytest.mark.parametrize("closes", [True, False])
def test_a_puller_that_waits_for_a_worker_is_made_there_once_and_only_for_who_is_there_still(
    world: World, closes: bool
) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        client, other = Client(here, ledger), Client(there, ledger)
        other.publish(["q"], [b"first", b"second", b"third"])
        await asyncio.sleep(A_WHILE_S)
        world.cut_between(here, there)
        await asyncio.sleep(0)
        for _ in range(2):
            client.do(client.channel.pull, "q", no_ack=False)
        if closes:
            client.do(client.channel.close)
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        (served,) = [each for each in there.workers._service.served if each.number == here.number]
        assert len(served._consumers) == (not closes)
        assert await other.take("q") == (b"first" if closes else b"third")
        client.do(client.channel.close)
        other.do(other.channel.close)
        await asyncio.sleep(A_WHILE_S)
        assert not [each for node in world.nodes for each in left_over(node) if "consumers" in each]

    run(world, work())


@pytest.mark.parametrize("is_told_late", [False, True])
def test_messages_are_taken_from_a_queue_of_another_worker_that_was_deleted_and_made_anew(
    world: World, is_told_late: bool
) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        client, other = Client(here, ledger), Client(there, ledger)
        other.publish(["q"], [b"before"])
        await asyncio.sleep(A_WHILE_S)
        assert await client.take("q") == b"before"
        assert await client.take("q") is None
        if is_told_late:
            world.cut_between(there, here)
        there.within(there.client.own_queues.delete, "q")
        await declared(there, "q")
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        other.publish(["q"], [b"after"])
        await asyncio.sleep(A_WHILE_S)
        assert await client.take("q") == b"after"
        (served,) = [each for each in there.workers._service.served if each.number == here.number]
        assert len(served._consumers) == 1
        client.do(client.channel.close)
        other.do(other.channel.close)
        await asyncio.sleep(A_WHILE_S)
        assert not [each for node in world.nodes for each in left_over(node) if "consumers" in each]

    run(world, work())


def test_requests_over_http_leave_no_puller_at_another_worker(world: World) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        Client(there, ledger).publish(["q"], [b"first", b"second"])
        await asyncio.sleep(A_WHILE_S)
        hub: Any = SimpleNamespace(
            client=here.client, clock=here.clock, loop=world.loop, settle_turn=here.want_settle_within
        )
        station = Station(hub, here.client.consuming.find("q"), "", tells_offsets=False)
        ((message, claim),) = await station.fetch(1)
        here.within(station.close)
        here.within(here.client.settling.ack, [claim], here.now_ms)
        await asyncio.sleep(A_WHILE_S)
        assert not [each for node in world.nodes for each in left_over(node)]
        assert message.body == b"first"
        assert await Client(there, ledger).take("q") == b"second"

    run(world, work())


def test_a_consumer_whose_end_crosses_that_of_its_queue_leaves_no_claims(world: World) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        client = Client(here, ledger)
        client.publish(["q"], [b"first", b"second"])
        client.do(client.channel.consume, "q", 5, no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        (consumer,) = client.channel.consumers
        assert len(consumer.holds) == 2
        there.within(there.client.own_queues.delete, "q")
        there.want_settle_within()
        client.do(client.channel.cancel, consumer, keep_claims=False)
        await asyncio.sleep(A_WHILE_S)
        assert not [each for node in world.nodes for each in left_over(node)]

    run(world, work())


def test_what_a_queue_in_memory_was_owed_is_gone_once_both_workers_started_again(world: World) -> None:
    ledger = ledger_of("q", "dead")
    ledger.queues["q"].dead = "dead"

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "dead", durable=False)
        await declared(here, "q", dead_letter="dead")
        client = Client(here, ledger)
        client.publish(["q"], [b"m"])
        client.do(client.channel.pull, "q", no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        client.do(client.channel.settle, "reject", list(client.channel.holds))
        await asyncio.sleep(A_WHILE_S)
        assert len(here.shard.manager.queues.outboxes()) == 1
        for number in (0, 1):
            world.kill(number)
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        assert world.nodes[0].shard.manager.queues.outboxes() == []

    run(world, work())


def test_settlements_of_a_consumer_that_ended_are_written_while_another_one_is_made(world: World) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        client = Client(here, ledger)
        client.publish(["q"], [b"m"])
        client.do(client.channel.consume, "q", 5, no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        client.do(client.channel.cancel, client.channel.consumers[0], keep_claims=True)
        client.do(client.channel.consume, "q", 5, no_ack=False)
        client.do(client.channel.commit, [], "ack", list(client.channel.holds))
        await asyncio.sleep(A_WHILE_S)
        client.do(client.channel.close)
        await asyncio.sleep(A_WHILE_S)
        assert await Client(there, ledger).take("q") is None

    run(world, work())


def test_what_came_over_a_link_that_was_cut_is_settled_over_no_other_one(world: World) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        client = Client(here, ledger)
        client.publish(["q"], [b"first"])
        await asyncio.sleep(A_WHILE_S)
        client.do(client.channel.pull, "q", no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        ((former, hold),) = client.channel.holds.items()
        world.cut_between(here, there)
        hold.is_broken = True
        await asyncio.sleep(0.0001)
        await world.ready()
        client.do(client.channel.pull, "q", no_ack=False)
        await asyncio.sleep(A_WHILE_S)
        assert len(client.channel.holds) == 2
        client.do(client.channel.settle, "ack", [former])
        client.do(client.channel.close)
        await asyncio.sleep(A_WHILE_S)
        assert await Client(there, ledger).take("q") == b"first"

    run(world, work())


def test_others_may_make_a_queue_elsewhere_whose_maker_was_asked_for_over_a_link_that_ended(
    world: World,
) -> None:
    async def work() -> None:
        here, there = world.nodes[:2]
        link = here.workers.link(there.number)
        await here.within(link.call, "directory", "reserve", "q", there.number, here.number)
        assert there.workers.directory.reserve("q", 2, 2) == there.number
        world.cut_between(here, there)
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        assert there.workers.directory.reserve("q", 2, 2) == 2

    run(world, work())


def test_a_link_that_was_made_anew_ends_the_one_before_whose_end_was_not_seen(world: World) -> None:
    async def work() -> None:
        here, there = world.nodes[:2]
        before = here.workers.link(there.number)
        later = Link(world.loop, there.number)

        async def begin() -> None:
            await here.workers._connect(later)
            await later.greet(Greeting(here.number, CODEC.table))

        await here.within(world.loop.create_task, begin())
        await asyncio.sleep(A_WHILE_S)
        assert not before.is_up
        await world.ready()

    run(world, work())


def owners(world: World, name: str) -> list[int]:
    """The workers that have a queue of that name."""
    return [node.number for node in world.nodes if name in node.shard.manager.queues]


def declaring(node: Node, name: str) -> Answer[Any]:
    """Declare a queue as a client of a worker does; gives the answer to come."""
    declaration = QueueDeclaration(name=name, durable=True, policy=POLICY)
    answer: Answer[Any] = node.within(node.client.queues.declare, declaration)
    node.want_settle_within()
    return answer


async def told_to_make(maker: Node, judge: Node) -> str:
    """Have a worker hear that it is the one to make a queue; gives its name."""
    name = next(f"q{number}" for number in range(99) if judge_of(f"q{number}", COUNT) == judge.number)
    link = maker.workers.link(judge.number)
    assert await maker.within(link.call, "directory", "reserve", name, maker.number, maker.number) == 1
    return name


def test_a_queue_is_made_once_though_the_judge_of_its_name_loses_its_link_to_the_maker(world: World) -> None:
    async def work() -> None:
        judge, maker, other = world.nodes
        name = await told_to_make(maker, judge)
        world.cut_between(judge, maker)
        await asyncio.sleep(0.0001)
        await declaring(other, name)
        await declared(maker, name)  # as if it had heard only now
        await asyncio.sleep(A_WHILE_S)
        assert owners(world, name) == [maker.number]

    run(world, work())


def test_a_queue_is_made_once_though_its_maker_loses_its_links_before_others_hear_of_it(world: World) -> None:
    async def work() -> None:
        judge, maker, other = world.nodes
        name = await told_to_make(maker, judge)
        for wire in list(world.loop.wires):
            if wire.ends[0].owner is maker:
                wire.ends[1].abort()  # whose end hears of it first
        made = world.loop.create_task(declared(maker, name))
        await asyncio.sleep(0.0001)
        await declaring(other, name)
        await made
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        assert owners(world, name) == [maker.number]

    run(world, work())


def test_a_queue_that_was_made_elsewhere_meanwhile_is_not_made_for_who_does_not_know_that(
    world: World,
) -> None:
    async def work() -> None:
        here, there, other = world.nodes
        await declared(other, "q")
        declaration = QueueDeclaration(name="q", durable=True, policy=POLICY)
        await here.within(here.workers.link(there.number).call, "queues", "declare", declaration)
        assert owners(world, "q") == [other.number]

    run(world, work())


def test_a_name_is_free_again_once_its_maker_tells_all_it_has_over_a_new_link(world: World) -> None:
    async def work() -> None:
        here, there = world.nodes[:2]
        link = here.workers.link(there.number)
        await here.within(link.call, "directory", "reserve", "q", here.number, here.number)
        world.cut_between(here, there)
        await asyncio.sleep(0)
        assert there.workers.directory.reserve("q", 2, 2) == here.number
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        assert there.workers.directory.reserve("q", 2, 2) == 2

    run(world, work())


def test_a_queue_that_its_maker_was_asked_for_is_made_there_though_who_asked_is_gone(world: World) -> None:
    async def work() -> None:
        judge, maker, asker = world.nodes
        directory = judge.workers.directory
        assert directory.reserve("q", maker.number, asker.number) == maker.number
        assert directory.reserve("q", maker.number, maker.number) == maker.number  # it makes it at once
        directory.asks_no_more(asker.number)
        assert directory.reserve("q", asker.number, asker.number) == maker.number

    run(world, work())


def test_what_another_worker_has_not_answered_for_counts_with_what_is_not_durable(world: World) -> None:
    ledger = ledger_of("q")

    async def work() -> None:
        here, there = world.nodes[:2]
        await declared(there, "q")
        Client(here, ledger).publish(["q"], [b"x" * 700])
        assert here.client.turns.uncommitted_bytes() >= 700
        await asyncio.sleep(A_WHILE_S)
        assert here.client.turns.uncommitted_bytes() == 0

    run(world, work())


def test_a_binding_that_was_undone_while_a_link_was_down_leads_to_nothing(world: World) -> None:
    binding = BindingDefinition(
        source="amq.direct", destination="q", destination_type="queue", routing_key="red", arguments={}
    )

    async def work() -> None:
        here, there = world.nodes[:2]

        def targets() -> Any:
            return here.client.publishing.through("amq.direct", ["red"], dict)

        await declared(there, "q")
        there.within(there.client.exchanges.bind, binding)
        there.want_settle_within()
        await asyncio.sleep(A_WHILE_S)
        assert targets()
        world.cut_between(there, here)
        there.within(there.client.exchanges.unbind, binding)
        there.want_settle_within()
        await world.ready()
        await asyncio.sleep(A_WHILE_S)
        assert not targets()

    run(world, work())


def test_publishes_of_a_plan_that_is_aimed_elsewhere_go_there_at_another_worker_too(world: World) -> None:
    ledger = ledger_of("q", "r")

    async def work() -> None:
        here, there = world.nodes[:2]
        for name in ("q", "r"):
            await declared(there, name)
        client, other = Client(here, ledger), Client(there, ledger)
        publishing = here.client.publishing
        plan = publishing.plan("k", 1, b"", True)
        for name in ("q", "r"):
            publishing.aim(plan, publishing.named(name))
            client.do(client.channel.publish, plan, [name.encode()])
            await asyncio.sleep(A_WHILE_S)
        for name in ("q", "r"):
            assert await other.take(name) == name.encode()
            assert await other.take(name) is None

    run(world, work())


# queues made by their first use


def named_by(judge: Node) -> str:
    """A name that a worker decides about."""
    return next(f"q{number}" for number in range(99) if judge_of(f"q{number}", COUNT) == judge.number)


class FirstUser(Client):
    """A channel that uses a queue which nobody declared."""

    def use(self, name: str, bodies: list[bytes], options: PublishOptions = PLAIN) -> None:
        """Publish to `$queue/NAME`."""
        publishing = self.node.client.publishing

        def publish() -> None:
            topic = f"$queue/{name}"
            targets = publishing.match(topic) or publishing.route(topic, self.node.now_ms)
            plan = publishing.plan(topic, 1, b"", True, options)
            publishing.aim(plan, targets)
            self.channel.publish(plan, bodies)

        self.do(publish)

    def consume(self, name: str) -> None:
        """Subscribe to `$queue/NAME`."""
        self.do(lambda: self.node.client.consuming.find_or_create(name, "", self.node.now_ms))
        self.do(self.channel.consume, name, 1, no_ack=False)

    def taken(self) -> list[bytes]:
        """Acknowledge what came, and return it."""
        tags = list(self.channel.holds)
        bodies = [self.channel.holds[tag].copy.message.body for tag in tags]
        self.do(self.channel.settle, "ack", tags)
        return bodies


async def all_taken(clients: list[FirstUser]) -> list[bytes]:
    """What consumers get until nothing more comes."""
    found: list[bytes] = []
    while any(client.channel.holds for client in clients):
        found += [body for client in clients for body in client.taken()]
        await asyncio.sleep(A_WHILE_S)
    return found


@pytest.mark.parametrize("judge", range(COUNT))
@pytest.mark.parametrize("users", [(0, 1), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("begins", ["publish", "subscribe"])
def test_a_queue_that_several_workers_make_by_its_first_use_at_once_is_one(
    world: World, judge: int, users: tuple[int, ...], begins: str
) -> None:
    async def work() -> None:
        name = named_by(world.nodes[judge])
        ledger = ledger_of(name)
        clients = [FirstUser(world.nodes[number], ledger) for number in users]
        if begins == "subscribe":
            for client in clients:
                client.consume(name)
        for round_number in range(5):
            for client in clients:
                client.use(name, [b"%d-%d" % (client.node.number, round_number)])
        await asyncio.sleep(A_WHILE_S)
        assert len(owners(world, name)) == 1
        if begins == "publish":
            clients[-1].consume(name)
        await asyncio.sleep(A_WHILE_S)
        taken = await all_taken(clients)
        for client in clients:
            own = [body for body in taken if body.startswith(b"%d-" % client.node.number)]
            if begins == "subscribe":
                own.sort()  # several were given them
            assert own == [b"%d-%d" % (client.node.number, number) for number in range(5)]
        assert all(
            not name.startswith(("reserv", "first")) for node in world.nodes for name in left_over(node)
        )

    run(world, work())


def test_what_was_published_at_the_worker_whose_queue_yields_keeps_its_options(world: World) -> None:
    async def work() -> None:
        judge, here, there = world.nodes
        name = named_by(judge)
        ledger = ledger_of(name)
        client = FirstUser(here, ledger)
        assert judge.workers.directory.reserve(name, there.number, there.number) == there.number
        client.use(name, [b"now"])
        client.use(name, [b"short"], PublishOptions(ttl_ms=3000))
        client.use(name, [b"later"], PublishOptions(delay_ms=5000))
        await asyncio.sleep(A_WHILE_S)
        assert owners(world, name) == [here.number]  # as long as the other one has not told
        await declared(there, name)
        await asyncio.sleep(3)
        assert owners(world, name) == [there.number]
        reader = Client(there, ledger)
        assert [await reader.take(name) for _ in range(2)] == [b"now", None]
        await asyncio.sleep(3)
        assert await reader.take(name) == b"later"

    run(world, work())


def test_what_a_yielding_queue_held_reaches_the_other_worker_though_the_link_is_cut(world: World) -> None:
    async def work() -> None:
        judge, here, there = world.nodes
        name = named_by(judge)
        ledger = ledger_of(name)
        assert judge.workers.directory.reserve(name, there.number, there.number) == there.number
        FirstUser(here, ledger).use(name, [b"kept"])
        world.cut_between(here, there)
        await declared(there, name)
        world.cut_between(here, there)
        await world.ready()
        await asyncio.sleep(2)
        assert owners(world, name) == [there.number]
        assert await Client(there, ledger).take(name) == b"kept"

    run(world, work())


def test_what_is_wanted_of_a_queue_beside_publishes_waits_until_it_is_known_where_it_is(world: World) -> None:
    async def work() -> None:
        judge, here, there = world.nodes
        name = named_by(judge)
        ledger = ledger_of(name)
        assert judge.workers.directory.reserve(name, there.number, there.number) == there.number
        client = FirstUser(here, ledger)
        client.use(name, [b"1"])
        client.consume(name)
        client.do(client.channel.pull, name, no_ack=False)
        binding = BindingDefinition(source="amq.topic", destination=name, routing_key="k")
        bound = here.within(here.client.exchanges.bind, binding)
        declaring_here = declaring(here, name)
        assert not bound.is_done
        assert not declaring_here.is_done
        await asyncio.sleep(A_WHILE_S)
        assert client.channel.holds == {}
        await declared(there, name)
        await bound
        await declaring_here
        await asyncio.sleep(A_WHILE_S)
        assert owners(world, name) == [there.number]
        assert client.taken() == [b"1"]
        assert binding in await there.client.exchanges.bindings(queue=name)

    run(world, work())


def test_a_queue_of_a_first_use_is_kept_until_who_decides_about_its_name_is_there(world: World) -> None:
    async def work() -> None:
        judge, here, there = world.nodes
        name = named_by(judge)
        ledger = ledger_of(name)
        client = FirstUser(here, ledger)
        world.kill(judge.number)
        client.use(name, [b"1"])
        client.consume(name)
        await world.ready()
        await asyncio.sleep(2)
        assert owners(world, name) == [here.number]
        assert there.workers.directory.get(name) is not None
        again = FirstUser(there, ledger)
        again.use(name, [b"2"])
        again.consume(name)
        await asyncio.sleep(A_WHILE_S)
        assert sorted(await all_taken([client, again])) == [b"1", b"2"]

    run(world, work())


def test_a_publish_to_an_address_that_a_queue_of_another_worker_is_not_bound_to_makes_no_other(
    world: World,
) -> None:
    async def work() -> None:
        here, there = world.nodes[:2]
        declaration = QueueDeclaration(name="q", durable=True, policy=POLICY, topics=("$queue/q/a",))
        await there.within(there.client.queues.declare, declaration)
        await asyncio.sleep(A_WHILE_S)
        with pytest.raises(QueueNotFound):
            here.within(here.client.publishing.route, "$queue/q/b", here.now_ms)
        assert owners(world, "q") == [there.number]

    run(world, work())
