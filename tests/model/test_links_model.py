"""Random work of clients at three workers, whose links are late, cut and made anew, and which end and come
back; then all that is left is taken, and compared with what publishers and consumers were told.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from broker.engine.answers import Answer
from queue_manager.api import BindingDefinition, QueueDeclaration
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import QueuePolicy
from storage.envelope import PROPERTIES_AMQP
from tests.model.link_clients import IN_TRANSIT_S, Channel, LinkConsumer, OneByOne, UpTo
from tests.model.link_oracle import KEPT, Ledger, QueueModel
from tests.model.link_world import COUNT, Node, World, left_over, world_of

EXCHANGE: Final = "amq.direct"
KEYS: Final = ("red", "blue")
STEPS: Final = 120
CHANNELS_MAX: Final = 9
AFTERWARDS_S: Final = 1.0  # a call that came to nothing may still be done
QUIET_S: Final = 4.0

QUEUES: Final = (
    QueueModel("a", True),
    QueueModel("b", True, dead="b.dead"),
    QueueModel("b.dead", True),
    QueueModel("c", True, depth_max=4),
    QueueModel("d", False),
    QueueModel("e", False, dead="e.dead"),
    QueueModel("e.dead", True),
)


class Life:
    """What is done in one world."""

    def __init__(self, world: World, *, cuts: bool, kills: bool) -> None:
        self.world = world
        self.chance = world.chance
        self.ledger = Ledger([QueueModel(q.name, q.durable, q.depth_max, q.dead) for q in QUEUES])
        self.queues = list(self.ledger.queues.values())
        self.bindable = [queue for queue in self.queues if not queue.name.endswith(".dead")]
        self.channels: list[Channel] = []
        self.body_count = 0
        self.channel_count = 0
        self._under_way: dict[int, tuple[Node, Callable[[bool], None]]] = {}
        self._call_count = 0
        self.steps: list[tuple[int, Callable[[], object]]] = [
            (40, self.publish),
            (10, self.publish_through),
            (10, self.publish_to_several),
            (8, self.consume),
            (3, self.cancel),
            (8, self.get),
            (40, self.settle),
            (3, self.share),
            (4, self.pause),
            (8, self.declare),
            (1, self.delete),
            (1, self.purge),
            (4, self.bind),
            (2, self.unbind),
            (8, self.commit),
            (4, self.open),
            (2, self.close),
            (3 * cuts, self.cut),
            (1 * kills, self.kill),
        ]

    # what there is

    def channel(self) -> Channel | None:
        """One that may be asked something."""
        found = [each for each in self.channels if each.is_done and each.node.is_ready]
        return self.chance.choice(found) if found else None

    def within(self, channel: Channel, call: Callable[..., Any], *arguments: Any) -> Any:
        """Have a channel do something, and end the turn."""

        def act() -> Any:
            try:
                return call(*arguments)
            finally:
                channel.core.turns.settle()

        return channel.node.within(act)

    def bodies(self) -> list[bytes]:
        count = self.chance.choice((1, 1, 1, 2, 3, 5))
        self.body_count += count
        size = self.chance.choice((0, 0, 40, 700))
        return [b"%d." % (self.body_count - n) + b"x" * size for n in reversed(range(count))]

    def open(self) -> None:
        """A channel more."""
        nodes = [node for node in self.world.nodes if node.is_ready]
        if nodes and len(self.channels) < CHANNELS_MAX:
            self.channel_count += 1
            waiting = self.chance.choice((UpTo, OneByOne))
            self.channels.append(Channel(self.chance.choice(nodes), self.ledger, self.channel_count, waiting))

    def close(self) -> None:
        """A channel less, whatever it waits for."""
        found = [each for each in self.channels if each.node.is_ready]
        if found:
            channel = self.chance.choice(found)
            self.channels.remove(channel)
            self.within(channel, channel.close)

    # publishing

    def address(self, channel: Channel, name: str) -> tuple[str, str, Callable[[], Any]]:
        """A queue by its name."""
        queue, found = self.ledger.queues[name], channel.core.publishing.named(name)
        if queue.is_certain:
            assert bool(found) == queue.is_there, f"worker {channel.node.number} is wrong about {name}"
        return "", name, lambda: found

    def exchange_address(self, channel: Channel, key: str) -> tuple[str, str, Callable[[], Any]]:
        """A routing key."""
        found = channel.core.publishing.through(EXCHANGE, [key], dict)
        names = {queue.name for queue in (*found.queues, *found.foreign)}  # type: ignore[attr-defined]
        for queue in self.queues:
            if not queue.is_certain or queue.bound.get(key) is False:
                continue
            wanted = queue.is_there and key in queue.bound
            assert (queue.name in names) == wanted, f"worker {channel.node.number}: {key} and {queue.name}"
        return EXCHANGE, key, lambda: found

    def _publish(self, channel: Channel, address: tuple[str, str, Callable[[], Any]]) -> None:
        plan = channel.plan(*address)
        channel.publish(plan, self.bodies(), is_varied=self.chance.random() < 0.3)

    def publish(self) -> None:
        """Publish to queues by their names, several times in a turn."""
        channel = self.channel()
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            if channel is not None:
                name = self.chance.choice(QUEUES).name
                if not name.endswith(".dead"):
                    self.within(
                        channel, lambda name=name: self._publish(channel, self.address(channel, name))
                    )

    def publish_through(self) -> None:
        """Publish through an exchange."""
        channel = self.channel()
        if channel is not None:
            key = self.chance.choice(KEYS)
            self.within(channel, lambda: self._publish(channel, self.exchange_address(channel, key)))

    def publish_to_several(self) -> None:
        """Publish to several queues at once, as with CC."""
        channel = self.channel()
        if channel is None:
            return
        names = self.chance.sample(["a", "b", "c", "d", "e"], self.chance.randint(2, 4))

        def publish() -> None:
            publishing = channel.core.publishing
            plan = publishing.plan(",".join(names), PROPERTIES_AMQP, b"", True)
            publishing.aim(plan, publishing.joined([publishing.named(name) for name in names]))
            channel.publish(plan, self.bodies())

        self.within(channel, publish)

    def commit(self) -> None:
        """Publish and settle in a transaction."""
        channel = self.channel()
        if channel is None:
            return
        tags = self.chance.sample(list(channel.holds), self.chance.randint(0, len(channel.holds)))

        def commit() -> None:
            published = [
                (*self.address(channel, self.chance.choice("abcde")), self.bodies())
                for _ in range(self.chance.randint(0, 3))
            ]
            channel.commit(published, self.chance.choice(("ack", "nack", "reject")), tags)

        self.within(channel, commit)

    # consuming

    def consume(self) -> None:
        """Add a consumer."""
        channel = self.channel()
        if channel is not None:
            name = self.chance.choice(QUEUES).name
            credit = self.chance.choice((0, 1, 2, 5))
            no_ack = self.chance.random() < 0.1
            self.within(channel, lambda: channel.consume(name, credit, no_ack=no_ack))

    def consumer(self) -> LinkConsumer | None:
        found = [
            consumer
            for channel in self.channels
            if channel.is_done and channel.node.is_ready
            for consumer in channel.consumers
            if consumer.handle is not None
        ]
        return self.chance.choice(found) if found else None

    def cancel(self) -> None:
        """End a consumer; its claims stay with the channel, or return."""
        consumer = self.consumer()
        if consumer is not None:
            keep_claims = self.chance.random() < 0.7
            channel = consumer.channel
            self.within(channel, lambda: channel.cancel(consumer, keep_claims=keep_claims))

    def pause(self) -> None:
        """Have a consumer given nothing for a while."""
        consumer = self.consumer()
        if consumer is None or consumer.is_over:
            return
        channel = consumer.channel

        def go_on() -> None:
            if not consumer.is_over and channel.node.is_ready:
                consumer.handle.resume()
                channel.core.consuming.wake(consumer.handle)
                channel.core.turns.settle()

        self.within(channel, consumer.handle.pause)
        self.world.loop.later(self.chance.choice((0.001, 0.1)), channel.node.within, go_on)

    def share(self) -> None:
        """Set the prefetch of all consumers together."""
        channel = self.channel()
        if channel is not None:
            self.within(channel, channel.share, self.chance.choice((1, 3, 8)))

    def get(self) -> None:
        """Take one message."""
        channel = self.channel()
        if channel is not None:
            name, no_ack = self.chance.choice(QUEUES).name, self.chance.random() < 0.2
            self.within(channel, lambda: channel.pull(name, no_ack=no_ack))

    def settle(self) -> None:
        """Settle some deliveries in any order, or all up to one."""
        channel = self.channel()
        if channel is None or not channel.holds:
            return
        tags = list(channel.holds)
        if self.chance.random() < 0.5:
            tags = tags[: self.chance.randint(1, len(tags))]
        else:
            tags = self.chance.sample(tags, self.chance.randint(1, len(tags)))
        how = self.chance.choice(("ack", "ack", "ack", "nack", "requeue", "reject"))
        self.within(channel, channel.settle, how, tags)

    # queues and bindings

    def _call(
        self, queue: QueueModel, ask: Callable[[Channel], Answer[Any]], then: Callable[[bool], None]
    ) -> None:
        """Ask something of a queue, and go on by `then`: whether that was done, and nothing else, and all
        workers know: one whose link is down hears of it once that is made anew.
        """
        channel = self.channel()
        if channel is None:
            return
        began, break_count = queue.change_begins(), self.world.break_count
        self._call_count += 1
        number = self._call_count

        def may_be_over() -> None:
            queue.change_ends(began)
            then(False)

        def over(is_done: bool) -> None:
            self._under_way.pop(number, None)
            if is_done:
                all_know = self.world.is_linked() and self.world.break_count == break_count
                then(queue.change_ends(began) and all_know)
            else:
                self.world.loop.later(AFTERWARDS_S, may_be_over)

        self._under_way[number] = channel.node, over
        self.within(channel, lambda: channel.call(ask(channel), over))

    def declare(self, queue: QueueModel | None = None) -> None:
        """Declare a queue, there or not."""
        queue = queue or self.chance.choice(self.queues)
        policy = QueuePolicy(
            visibility_timeout_ms=30_000,
            message_bytes_max=1 << 20,
            done_retention_ms=0,
            depth_max=queue.depth_max,
            dead_letter=queue.dead,
        )
        declaration = QueueDeclaration(name=queue.name, durable=queue.durable, policy=policy)
        if not queue.is_there:
            queue.is_certain = False

        def done(is_alone: bool) -> None:
            if is_alone and not queue.takes_all:
                queue.is_there = queue.is_certain = True

        self._call(queue, lambda channel: channel.core.queues.declare(declaration), done)

    def delete(self) -> None:
        """Delete a queue, there or not."""
        queue = self.chance.choice(self.queues)

        def lose() -> None:
            self.ledger.emptied(queue)
            queue.lose()

        def done(is_alone: bool) -> None:
            lose()
            if is_alone:
                queue.is_there, queue.is_certain, queue.bound = False, True, {}

        lose()
        self._call(queue, lambda channel: channel.core.queues.delete(queue.name), done)

    def purge(self) -> None:
        """Purge a queue."""
        queue = self.chance.choice(self.queues)
        self.ledger.emptied(queue)
        self._call(
            queue,
            lambda channel: channel.core.queues.purge(queue.name),
            lambda _: self.ledger.emptied(queue),
        )

    def _binding(self, queue: QueueModel, key: str) -> BindingDefinition:
        return BindingDefinition(
            source=EXCHANGE, destination=queue.name, destination_type="queue", routing_key=key, arguments={}
        )

    def bind(self) -> None:
        """Bind a queue."""
        queue, key = self.chance.choice(self.bindable), self.chance.choice(KEYS)
        binding = self._binding(queue, key)
        if not queue.bound.get(key):
            queue.bound[key] = False

        def done(is_alone: bool) -> None:
            if is_alone and queue.takes_all:
                queue.bound[key] = True

        self._call(queue, lambda channel: channel.core.exchanges.bind(binding), done)

    def unbind(self) -> None:
        """Undo a binding, there or not."""
        queue, key = self.chance.choice(self.bindable), self.chance.choice(KEYS)
        binding = self._binding(queue, key)
        queue.bound[key] = False

        def done(is_alone: bool) -> None:
            queue.bound[key] = False
            if is_alone and queue.takes_all:
                del queue.bound[key]

        self._call(queue, lambda channel: channel.core.exchanges.unbind(binding), done)

    # breaks

    def _break_holds(self, is_broken: Callable[[Channel, Any], bool]) -> None:
        for channel in self.channels:
            for hold in channel.holds.values():
                if is_broken(channel, hold.claim):
                    hold.is_broken = True

    def _broke(self) -> None:
        self.ledger.broke()
        self.world.loop.later(IN_TRANSIT_S, self.ledger.lose_on_their_way)  # who has a queue hears it later

    def cut(self) -> None:
        """Cut a link."""
        cut = self.world.cut()
        if cut is not None:
            asking, asked = cut
            self._break_holds(lambda at, claim: at.node is asking and _asked_of(claim) == asked.number)
            self._broke()

    def kill(self) -> None:
        """Have a worker end, and start again."""
        number = self.chance.randrange(COUNT)
        node = self.world.nodes[number]
        if not node.is_ready:
            return
        had = [queue for queue in self.queues if queue.name in node.shard.manager.queues]
        self._break_holds(lambda at, claim: at.node is node or _asked_of(claim) == number)
        self.world.kill(number)
        self._broke()
        for queue in had:
            if not queue.durable:
                queue.lose()
        self.channels = [channel for channel in self.channels if channel.node is not node]
        for at, over in list(self._under_way.values()):
            if at is node:
                over(False)

    # all of it

    async def run(self) -> None:
        """Live."""
        await self.world.start()
        for _ in range(6):
            self.open()
        for queue in self.queues:
            self.declare(queue)
            await asyncio.sleep(0.05)
        for _ in range(4):
            self.consume()
        weights = [weight for weight, _ in self.steps]
        for _ in range(STEPS):
            self.ledger.now_s = self.world.loop.time()
            self.chance.choices(self.steps, weights)[0][1]()
            self.world.check()
            await asyncio.sleep(self.chance.choice((0, 0, 0, 0.001, 0.02, 0.1)))
        await self.world.ready()
        for channel in list(self.channels):
            self.within(channel, channel.close)
        self.channels = []
        await self._rest()
        for queue in self.queues:
            await self._drain(queue)
        await self._rest()
        await self._leave_nothing()

    async def _leave_nothing(self) -> None:
        """See that no table has anything of all that; workers go on telling each other how busy they are."""
        left: list[str] = []
        for _ in range(100):
            left = [each for node in self.world.nodes for each in left_over(node)]
            if not left:
                return
            await asyncio.sleep(0.011)
        raise AssertionError(left)

    async def _rest(self) -> None:
        await asyncio.sleep(QUIET_S)
        self.world.check()
        await self.world.ready()

    async def _drain(self, queue: QueueModel) -> None:
        """Take all that is in a queue, and see that it is what has to be there."""
        channel = Channel(self.chance.choice(self.world.nodes), self.ledger, 0, UpTo)
        is_there = bool(channel.core.publishing.named(queue.name))
        if queue.is_certain:
            assert is_there == queue.is_there, queue.name
        drained: list[bytes] = []
        while is_there:
            count = len(channel.holds)
            self.within(channel, lambda: channel.pull(queue.name, no_ack=False))
            for _ in range(1_000):
                self.world.check()
                if channel.is_done:
                    break
                await asyncio.sleep(0.01)
            assert channel.is_done, f"{queue.name}: it is never answered whether there is a message"
            if len(channel.holds) == count:
                break
            drained.append(next(reversed(channel.holds.values())).copy.message.body)
        if channel.holds:
            self.within(channel, channel.settle, "ack", list(channel.holds))
        self.within(channel, channel.close)
        self._compare(queue, drained)

    def _compare(self, queue: QueueModel, drained: list[bytes]) -> None:
        assert len(set(drained)) == len(drained), f"{queue.name}: twice"
        found = set(drained)
        for body, copy in queue.copies.items():
            is_moved = queue.name not in copy.message.copies
            if copy.is_certain and copy.state == KEPT and (is_moved or copy.message.outcome == ACCEPTED):
                assert body in found, f"{queue.name}: {body!r} is lost"
        if queue.is_ordered and not queue.name.endswith(".dead"):
            last: dict[object, int] = {}
            for body in drained:
                message = self.ledger.messages[body]
                assert last.get(message.publisher, -1) < message.number, (
                    f"{queue.name}: {body!r} out of order"
                )
                last[message.publisher] = message.number


def _asked_of(claim: Any) -> int:
    """The worker that a claim is of, if it is another's; -1."""
    link = getattr(claim.consumer, "link", None)
    return -1 if link is None else int(link.number)


def live(seed: int) -> None:
    """Live one life; with some seeds nothing breaks. `python -m tests.model.test_links_model SEED` does it
    again.
    """
    with world_of(seed) as world:
        life = Life(world, cuts=seed % 4 in (1, 3), kills=seed % 4 in (2, 3))
        try:
            world.loop.run_until_complete(life.run())
        except AssertionError as error:
            error.add_note(f"seed {seed}, {world.loop.time():.4f} s from its beginning")
            raise


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_every_message_comes_to_whom_it_has_to_over_links_that_are_late(first: int) -> None:
    for seed in range(first, first + 8):
        live(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 4_000, 100))
def test_every_message_comes_to_whom_it_has_to_with_many_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        live(seed)


if __name__ == "__main__":
    live(int(sys.argv[1]))
