"""Clients of one worker, as the front-ends of AMQP and MQTT are: channels with confirms and consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from broker.engine.answers import Answer
from broker.engine.client.message_flow import PublishingClient
from protocols.amqp091.content import Properties, encode_properties
from queue_manager.claims.claim import UNLIMITED
from queue_manager.errors import QueueManagerError
from queue_manager.options import PLAIN
from queue_manager.outcomes import ACCEPTED, REFUSED_LOST, UNROUTED
from queue_manager.patterns import MATCH_ALL
from queue_manager.shard.commit import OnceDurable
from storage.envelope import PROPERTIES_AMQP, vary
from storage.errors import StorageError
from tests.model.link_oracle import MOVED, PERHAPS, ROLLED_BACK, SETTLED, Hold, Ledger
from tests.model.link_world import Node

LEASE_MS: Final = 3_600_000
IN_TRANSIT_S: Final = 1.0
ERRORS: Final = (QueueManagerError, StorageError)


class Waiting(Protocol):
    """How a channel is told what is durable."""

    def wait(self, numbers: list[int]) -> None:
        """Wait for these publishes, the last ones."""

    def is_done(self) -> bool:
        """Whether everything waited for was told."""


class UpTo:
    """Tells the publishes of a commit by the last of them, as confirms of AMQP."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._told = 0
        self._last = 0
        self._waiting_count = 0
        self._refused: dict[int, int] = {}
        self._at_once: set[int] = set()

    def wait(self, numbers: list[int]) -> None:
        self._last = numbers[-1]
        self._waiting_count += self._channel.core.commits.wait_up_to(self, self._last)

    def at_once(self, number: int) -> None:
        """Note a publish that was answered when it was made."""
        self._at_once.add(number)

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `broker.engine.traffic.PublishWaiter`."""
        for token in tokens:
            assert self._told < token <= self._last, f"{token} is refused behind its answer"
            assert token not in self._at_once, f"{token} is refused twice"
            self._refused[token] = outcome

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`."""
        self._waiting_count -= 1
        assert self._waiting_count >= 0, "told more commits than were waited for"
        last = tokens[-1]
        assert self._told < last <= self._last, f"{last} is told behind {self._told}"
        for number in range(self._told + 1, last + 1):
            if number in self._at_once:
                self._at_once.remove(number)
            else:
                self._channel.told(number, self._refused.pop(number, ACCEPTED))
        self._told = last

    def is_done(self) -> bool:
        return not self._waiting_count and not self._refused


class OneByOne:
    """Tells each publish by itself, as acknowledgements of MQTT."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: list[int] = []
        self._refused: dict[int, int] = {}

    def wait(self, numbers: list[int]) -> None:
        self._waiting += numbers
        self._channel.core.commits.wait_for(self, numbers)

    def at_once(self, number: int) -> None:
        """Note nothing: each is waited for."""

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `broker.engine.traffic.PublishWaiter`."""
        for token in tokens:
            assert token in self._waiting, f"{token} is refused behind its answer"
            self._refused[token] = outcome

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`."""
        assert self._waiting[: len(tokens)] == tokens, f"{tokens} are told, {self._waiting[:5]} wait"
        del self._waiting[: len(tokens)]
        for token in tokens:
            self._channel.told(token, self._refused.pop(token, ACCEPTED))

    def is_done(self) -> bool:
        return not self._waiting and not self._refused


class LinkConsumer:
    """A consumer of a channel, and its sink. `handle` is there once the worker of the queue made it."""

    def __init__(self, channel: Channel, queue: str, credit_max: int, *, no_ack: bool, pool: Any) -> None:
        self.channel = channel
        self.queue = queue
        self.credit_max = credit_max
        self.no_ack = no_ack
        self.pool = pool
        self.handle: Any = None
        self.is_over = False
        self.is_puller = False
        self.holds: dict[int, Hold] = {}
        self._last: dict[object, int] = {}

    def came(self, answer: Answer[Any]) -> None:
        """Take the consumer, unless it is not wanted any more."""
        try:
            handle = answer.result()
        except ERRORS:
            self.is_over = True
            return
        if self.is_over:
            self.channel.core.consuming.unsubscribe(handle, self.channel.node.now_ms)
        else:
            self.handle = handle

    def deliver(self, consumer: Any, messages: Any, claims: Any) -> bool:
        """See `broker.engine.traffic.Sink`."""
        assert not self.is_over, f"a consumer of {self.queue} is given something behind its end"
        assert messages
        first = 1 if claims is None else claims[0].attempts
        assert claims is None or len({claim.attempts > 1 for claim in claims}) == 1
        channel, ledger = self.channel, self.channel.ledger
        link = getattr(consumer, "link", None)
        is_stale = link is not None and (link.transport is None or link.transport.is_broken)
        for index, message in enumerate(messages):
            claim = None if self.no_ack else claims[index]
            hold = Hold(ledger.queues[self.queue].copies[message.body], claim, channel, self, is_stale)
            ledger.delivered(hold)
            if first == 1 and not self.is_puller and not is_stale:
                self._check_order(message.body)
            if claim is not None:
                channel.tag += 1
                channel.holds[channel.tag] = self.holds[channel.tag] = hold
        self._check_credit()
        return True

    def _check_order(self, body: bytes) -> None:
        message = self.channel.ledger.messages[body]
        queue = self.channel.ledger.queues[self.queue]
        sharer = None if self.pool is None else self.channel
        if queue.is_ordered_for(sharer) and self.queue in message.copies:
            last = self._last.get(message.publisher, -1)
            assert last < message.number, f"{self.queue}: {body!r} comes behind number {last}"
        self._last[message.publisher] = message.number

    def held_count(self) -> int:
        """How much of what it was given is not settled."""
        return sum(hold.is_good for hold in self.holds.values())

    def _check_credit(self) -> None:
        if self.is_puller or self.no_ack:
            return
        assert self.held_count() <= self.credit_max, f"{self.queue}: more than its prefetch"
        if self.pool is not None:
            together = [
                each
                for each in self.channel.consumers
                if each.pool is self.pool and not getattr(each.handle, "is_over", False)
            ]
            held = sum(each.held_count() for each in together)
            assert held <= max(self.pool.credit_max, self.channel.pool_credit_max), (
                "more than the shared prefetch"
            )

    def revoked(self, consumer: Any, claims: Any) -> None:
        """See `Sink`."""
        raise AssertionError("no lease ends")

    def cancelled(self, consumer: Any, reason: str) -> None:
        """See `Sink`: its queue or worker is gone."""
        self.is_over = True


class Channel:
    """A channel of a client."""

    def __init__(self, node: Node, ledger: Ledger, number: int, waiting: type[UpTo | OneByOne]) -> None:
        self.node = node
        self.core = node.client
        self.ledger = ledger
        self.name = f"{node.number}.{number}"
        self.waiting = waiting(self)
        self.consumers: list[LinkConsumer] = []
        self.pullers: dict[str, LinkConsumer] = {}
        self.holds: dict[int, Hold] = {}
        self.tag = 0
        self.sequence = 0
        self.pool: Any = None
        self.pool_credit_max = 0
        self._bodies: dict[int, bytes] = {}
        self._plans: dict[tuple[str, str], Any] = {}
        self.is_done = True  # no call of it is under way

    # publishing

    def told(self, number: int, outcome: int) -> None:
        """Note the answer to a publish."""
        self.ledger.told(self._bodies.pop(number), outcome)

    def plan(self, exchange: str, key: str, targets: Any) -> Any:
        """A plan for publishes to an address, used again as long as it is current."""
        publishing: PublishingClient = self.core.publishing
        plan = self._plans.get((exchange, key))
        if plan is None:
            plan = self._plans[exchange, key] = publishing.plan(
                key, PROPERTIES_AMQP, b"", True, PLAIN, exchange
            )
        if not publishing.is_current(plan):
            publishing.aim(plan, targets())
        return plan

    def publish(self, plan: Any, bodies: list[bytes], *, is_varied: bool = False) -> None:
        """Publish messages; each is answered once."""
        templates = None
        if is_varied:
            properties = [encode_properties(Properties(message_id=str(len(body)))) for body in bodies]
            templates = vary(plan.template, properties, [True] * len(bodies))
        names = list(plan.queue_names)
        for body in bodies:
            self.sequence += 1
            self._bodies[self.sequence] = body
            self.ledger.published(self, self.sequence, body, names)
        numbers = list(range(self.sequence - len(bodies) + 1, self.sequence + 1))
        outcome = self.core.publishing.publish(plan, bodies, self.node.now_ms, templates)
        if outcome == ACCEPTED:
            self._confirm(numbers, durable=plan.durable)
        elif outcome in (UNROUTED, REFUSED_LOST) or len(bodies) == 1:
            self._answer(numbers, outcome)
        else:  # part of them may fit
            for index, number in enumerate(numbers):
                own = None if templates is None else templates[index : index + 1]
                one = self.core.publishing.publish(plan, [bodies[index]], self.node.now_ms, own)
                if one == ACCEPTED:
                    self._confirm([number], durable=plan.durable)
                else:
                    self._answer([number], one)

    def _confirm(self, numbers: list[int], *, durable: bool) -> None:
        if durable or not self.waiting.is_done():
            self.waiting.wait(numbers)
        else:
            self._answer(numbers, ACCEPTED)

    def _answer(self, numbers: list[int], outcome: int) -> None:
        for number in numbers:
            self.told(number, outcome)
            self.waiting.at_once(number)

    # consuming

    def share(self, credit_max: int) -> None:
        """Have all consumers share a limit."""
        consuming = self.core.consuming
        if self.pool is None:
            self.pool = consuming.credit(credit_max)
            for consumer in self.consumers:
                if consumer.handle is not None and not consumer.is_over and not consumer.no_ack:
                    self.ledger.queues[consumer.queue].is_ordered = False
                    consuming.share(consumer.handle, self.pool)
                    consumer.pool = self.pool
        else:
            self.pool.set_credit(credit_max)
        self.pool_credit_max = max(
            credit_max, sum(each.held_count() for each in self.consumers if each.pool is self.pool)
        )
        for consumer in self.consumers:
            if consumer.handle is not None and not consumer.is_over:
                consuming.wake(consumer.handle)

    def consume(self, name: str, credit_max: int, *, no_ack: bool) -> None:
        """Begin to consume."""
        try:
            queue = self.core.consuming.find(name)
        except QueueManagerError:
            return
        pool = None if no_ack else self.pool
        consumer = LinkConsumer(self, name, credit_max or UNLIMITED, no_ack=no_ack, pool=pool)
        self.consumers.append(consumer)
        if pool is not None:
            self.ledger.queues[name].sharers.add(self)
        if no_ack:
            self.ledger.queues[name].has_auto_ack = True
        answer: Answer[Any] = self.core.consuming.subscribe(
            queue,
            "",
            MATCH_ALL,
            consumer,
            consumer_id=self.name,
            credit_max=consumer.credit_max,
            no_ack=no_ack,
            exclusive=False,
            lease_ms=LEASE_MS,
            pool=pool,
        )
        self._begin(answer, consumer.came)

    def _begin(self, answer: Answer[Any], then: Callable[[Answer[Any]], object]) -> None:
        """Have nothing else done before the answer is there."""
        self.is_done = False

        def done(answer: Answer[Any]) -> None:
            self.is_done = True
            then(answer)

        answer.then(done)

    def cancel(self, consumer: LinkConsumer, *, keep_claims: bool) -> None:
        """End a consumer."""
        self.consumers.remove(consumer)
        queue = self.ledger.queues[consumer.queue]
        queue.is_ordered = False  # what it was not given yet comes to others behind what they have
        self._auto_ack_ends(consumer)
        was_over, consumer.is_over = consumer.is_over, True
        if consumer.handle is not None and not was_over:
            self.core.consuming.unsubscribe(consumer.handle, self.node.now_ms, keep_claims=keep_claims)
            if keep_claims:
                return
            for tag, hold in consumer.holds.items():
                if self.holds.pop(tag, None) is not None:
                    self.ledger.returned(hold)

    def _auto_ack_ends(self, consumer: LinkConsumer) -> None:
        """Note that what is on its way to a consumer is settled, though it never comes."""
        if consumer.no_ack:
            queue = self.ledger.queues[consumer.queue]
            queue.disturb()
            self.node.later(IN_TRANSIT_S, queue.disturb)

    def pull(self, name: str, *, no_ack: bool) -> None:
        """Take one message, as basic.get."""
        try:
            queue = self.core.consuming.find(name)
        except QueueManagerError:
            return
        puller = self.pullers.get(name)
        if puller is None or puller.is_over or self.core.consuming.is_gone(puller.handle):
            puller = self.pullers[name] = LinkConsumer(self, name, UNLIMITED, no_ack=False, pool=None)
            puller.is_puller = True
            puller.handle = self.core.consuming.puller(queue, puller, self.name, lease_ms=LEASE_MS)
        puller.no_ack = no_ack
        if no_ack:
            self.ledger.queues[name].has_auto_ack = True
        self._begin(self.core.consuming.pull(puller.handle, no_ack, self.node.now_ms), lambda answer: None)

    # settling

    def settle(self, how: str, tags: Sequence[int]) -> None:
        """Settle deliveries, in this order."""
        holds = [self._drop(tag) for tag in tags]
        claims = [hold.claim for hold in holds]
        settling, now_ms = self.core.settling, self.node.now_ms
        if how == "ack":
            self._settled(holds, SETTLED)
            settling.ack(claims, now_ms)
        elif how == "reject":
            self._settled(holds, MOVED)
            settling.reject(claims, now_ms)
        else:
            for hold in holds:
                self.ledger.returned(hold)
            settling.requeue(claims, now_ms, is_spared=how == "nack")

    def _drop(self, tag: int) -> Hold:
        hold = self.holds.pop(tag)
        hold.check_lasts()
        hold.consumer.holds.pop(tag, None)
        return hold

    def _settled(self, holds: list[Hold], state: str) -> None:
        for hold in holds:
            self.ledger.settled(hold, state)

    def close(self) -> None:
        """End: what is not settled returns."""
        consuming, now_ms = self.core.consuming, self.node.now_ms
        every = [each for each in (*self.consumers, *self.pullers.values()) if each.handle is not None]
        for consumer in every:
            if not consumer.is_over:
                consumer.handle.pause()
        tags = list(self.holds)
        holds = [self._drop(tag) for tag in tags]
        for hold in holds:
            self.ledger.returned(hold)
        self.core.settling.requeue([hold.claim for hold in holds], now_ms, delay_ms=0)
        for consumer in (*self.consumers, *self.pullers.values()):
            self._auto_ack_ends(consumer)
            self.ledger.queues[consumer.queue].is_ordered = False
            was_over, consumer.is_over = consumer.is_over, True
            if consumer.handle is not None and not was_over:
                consuming.unsubscribe(consumer.handle, now_ms)
        self.consumers = []
        self.pullers = {}

    # transactions

    def commit(self, published: list[tuple[str, str, Any, list[bytes]]], how: str, tags: list[int]) -> None:
        """Publish to addresses (exchange, routing key, where that leads) and settle, or do nothing."""
        publishing = self.core.publishing

        def judged() -> Sequence[Any]:
            wanted = [(self.plan(*address), bodies, None) for *address, bodies in published]
            return publishing.judge(wanted, self.node.now_ms)  # type: ignore[arg-type]

        bodies_of_all = []
        for *address, bodies in published:
            names = list(self.plan(*address).queue_names)
            for body in bodies:
                self.sequence += 1
                self.ledger.published(self, self.sequence, body, names)
                self.waiting.at_once(self.sequence)
                bodies_of_all.append(body)

        def end(outcome: int) -> None:
            for body in bodies_of_all:
                self.ledger.told(body, outcome)

        def here(answer: Answer[None]) -> None:
            try:
                answer.result()
            except QueueManagerError:
                end(PERHAPS)  # other shards may have done theirs
                return
            again = judged()
            if again and again[-1].outcome != ACCEPTED:
                end(PERHAPS)
                return
            for one in again:
                publishing.apply(one, self.node.now_ms)
                for body in one.bodies:
                    self.ledger.may_go_to(body, one.plan.queue_names)
            self._settle_durably(how, [tag for tag in tags if tag in self.holds])
            self._begin_wait(lambda: end(ACCEPTED))

        first = judged()
        if first and first[-1].outcome != ACCEPTED:
            end(ROLLED_BACK)
            return
        self._begin(publishing.publish_elsewhere(first), here)

    def _settle_durably(self, how: str, tags: list[int]) -> None:
        settling = self.core.settling
        groups = {settling.durable_group_of(self.holds[tag].claim): None for tag in tags}
        if tags:
            self.settle(how, tags)
        for group in groups:
            if group is not None:
                settling.write_soon(group)

    def _begin_wait(self, then: Callable[[], None]) -> None:
        self.is_done = False

        def durable(tokens: list[int]) -> None:
            self.is_done = True
            then()

        self.core.commits.wait(OnceDurable(durable), 0)

    def call(self, answer: Answer[Any], then: Callable[[bool], object]) -> None:
        """Go on by `then` once a call was answered and is durable: whether it was done."""

        def done(answer: Answer[Any]) -> None:
            if answer.is_error:
                then(False)
            else:
                self._begin_wait(lambda: then(True))

        self._begin(answer, done)
