"""What one shard owes another: messages given up here whose dead letters go to a queue of another worker.

They wait in a durable queue of this shard, one for each such queue, put there by the commit that gives them
up. From there each goes to its queue under an identity of its own, so that it is taken once whatever is lost
on the way, and is acknowledged here when it is durable there. Where shards were merged meanwhile `OwnOutbox`
gives what is left to the queue, which is here then, under the same identity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from secrets import token_hex
from typing import Any, Final
from zlib import crc32

import structlog

from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from broker.engine.traffic import Claim, Consumer, Message, Sink
from broker.workers.asking_link import Link
from broker.workers.neighbours import Neighbours
from broker.workers.waits import Entry, Gate, Part
from config import limits
from queue_manager.address import OUTBOX_PREFIX, local_name, qualified_name, vhost_of
from queue_manager.errors import QueueBusy, QueueManagerError
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, UNROUTED
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.route import ForeignQueue
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate

_NUMBER_BYTES: Final = 8
_IDENTITY: Final = "identity"
_IDENTITY_BYTES: Final = 8
_log: Final = structlog.get_logger("sluicemq.workers")
_POLICY: Final = QueuePolicy(
    visibility_timeout_ms=limits.OUTBOX_LEASE_MS,
    message_bytes_max=limits.MESSAGE_BYTES_MAX,
    done_retention_ms=0,
)


class Outbox:
    """The queues of what other workers are owed, and what sends it there."""

    def __init__(self, local: ShardClient, shard: Shard, neighbours: Neighbours) -> None:
        self._local = local
        self._shard = shard
        self._queues = shard.manager.queues
        self._neighbours = neighbours
        self._senders: dict[str, _Sender] = {}  # by the queue that is owed
        self._is_open = False

    def begin(self) -> None:
        """Begin to send: it is known which queues the other workers have. What is owed to one that none has,
        as one in memory whose worker ended, too, goes.
        """
        self._is_open = True
        for queue in self._queues.outboxes():
            target = queue.description
            if target in self._queues:
                OwnOutbox(self._local, self._shard, queue)
            elif self._neighbours.directory.get(target) is not None:
                self._send(target, queue)
            else:
                self._queues.delete_unused(queue, self._shard.clock.now_ms())

    def pass_on(self, target: ForeignQueue, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """Keep a message for a queue of another worker, with the open commit."""
        queue = self._queue_of(target.name, now_ms)
        queue.append_one(template, body, now_ms)
        if self._is_open:
            self._send(target.name, queue)

    def _queue_of(self, target: str, now_ms: int) -> Queue:
        """Return the queue of what a queue is owed, made if need be; while one of that name is being removed,
        another.
        """
        sender = self._senders.get(target)
        if sender is not None:
            return sender.queue
        for number in count():
            name = outbox_of(target, self._neighbours.number, number)
            try:
                definition = QueueDefinition(
                    name,
                    durable=True,
                    policy=_POLICY,
                    arguments={_IDENTITY: token_hex(_IDENTITY_BYTES)},
                    description=target,
                    is_server_named=True,
                )
                return self._queues.get(name) or self._queues.declare(definition, now_ms)
            except QueueBusy:
                continue
        raise AssertionError("there is always another number")

    def target_is_gone(self, target: str) -> None:
        """Delete the queue of what a queue was owed that was deleted."""
        sender = self._senders.pop(target, None)
        if sender is not None:
            sender.end()
            if not sender.queue.deleted:
                self._queues.delete(sender.queue, self._shard.clock.now_ms())
                self._shard.follow_up()

    def _send(self, target: str, queue: Queue) -> None:
        if target not in self._senders:
            self._senders[target] = _Sender(self._local, self._shard, self._neighbours, target, queue)

    def link_is_up(self) -> None:
        """Go on with what is owed to a worker that is there again."""
        for sender in self._senders.values():
            sender.go_on()


class _Sender:
    """Sends what one queue is owed. Implements `broker.engine.traffic.Sink`."""

    def __init__(
        self, local: ShardClient, shard: Shard, neighbours: Neighbours, target: str, queue: Queue
    ) -> None:
        self._local = local
        self._shard = shard
        self._neighbours = neighbours
        self._target = target
        self.queue = queue
        self._consumer = _consuming(local, queue, self)

    def end(self) -> None:
        """Send nothing more."""
        self._local.consuming.unsubscribe(self._consumer, self._shard.clock.now_ms())

    def go_on(self) -> None:
        """Send again: the worker that has the queue may be there."""
        self._consumer.resume()
        self._local.consuming.wake(self._consumer)
        self._shard.follow_up()

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        """See `Sink`."""
        assert claims is not None
        link = self._link()
        if link is None:  # the queue is gone: so would these be
            self._local.settling.ack(list(claims), self._shard.clock.now_ms())
            return True
        if not link.is_up:
            consumer.pause()
            self._local.settling.requeue(list(claims), self._shard.clock.now_ms(), delay_ms=0)
            return True
        waiter = _Sent(self._local, self._shard, list(claims))
        gate = Gate(waiter, {})
        for index, message in enumerate(messages):
            entry = Entry(gate, [index], -1)
            gate.entries.append(entry)
            plan = _plan_of(self.queue, message)
            first, last = link.publish(plan, [self._target], [message.body or b""], None)
            link.wait(Part(entry, first, last, (index,)))
        return True

    def _link(self) -> Link | None:
        queue = self._neighbours.directory.get(self._target)
        return None if queue is None else self._neighbours.link(queue.shard)

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """See `Sink`: they are sent again, under the same identity."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `Sink`: who deleted the queue of what is owed wants it gone."""


class _Sent:
    """Settles what was sent, as the other worker takes it. Implements `RefusalWaiter`."""

    def __init__(self, local: ShardClient, shard: Shard, claims: list[Claim]) -> None:
        self._local = local
        self._shard = shard
        self._claims = claims
        self._refused: set[int] = set()

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `RefusalWaiter`: to be tried again."""
        self._refused.update(tokens)

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`."""
        settling, now_ms = self._local.settling, self._shard.clock.now_ms()
        for token in tokens:
            claim = self._claims[token]
            if token not in self._refused:
                settling.ack([claim], now_ms)
            else:
                settling.requeue([claim], now_ms, delay_ms=limits.OUTBOX_RETRY_MS)
        self._shard.follow_up()


class OwnOutbox:
    """Gives a queue of this shard what it is owed from when it was in another, then deletes the outbox.
    Implements `broker.engine.traffic.Sink`.
    """

    def __init__(self, local: ShardClient, shard: Shard, queue: Queue) -> None:
        self._local = local
        self._shard = shard
        self._queue = queue
        self._given_count = 0
        self._consumer = _consuming(local, queue, self)
        self._delete_if_empty()

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        """See `Sink`."""
        assert claims is not None
        self._given_count += len(claims)
        asyncio.get_running_loop().call_soon(self._give, messages, claims)
        return True

    def _give(self, messages: Sequence[Message], claims: Sequence[Claim]) -> None:
        """Publish messages and be done with them, in one commit; those that are refused are tried again."""
        self._given_count -= len(claims)
        publishing, settling, now_ms = (
            self._local.publishing,
            self._local.settling,
            self._shard.clock.now_ms(),
        )
        target = publishing.named(self._queue.description)
        for message, claim in zip(messages, claims, strict=True):
            plan = publishing.plan(*_plan_fields(self._queue, message))
            publishing.aim(plan, target)
            try:
                outcome = publishing.publish(plan, [message.body or b""], now_ms)
            except QueueManagerError as error:
                _log.warning("outbox.refused", queue=self._queue.description, reason=error.reason)
                outcome = UNROUTED
            if outcome in (ACCEPTED, UNROUTED):  # or the queue is gone: so would this be
                settling.ack([claim], now_ms)
            else:
                settling.requeue([claim], now_ms, delay_ms=limits.OUTBOX_RETRY_MS)
        self._delete_if_empty()
        self._shard.follow_up()

    def _delete_if_empty(self) -> None:
        queue = self._queue
        if not queue.deleted and not queue.depth() and not self._given_count:
            now_ms = self._shard.clock.now_ms()
            self._local.consuming.unsubscribe(self._consumer, now_ms)
            self._shard.manager.queues.delete(queue, now_ms)

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """See `Sink`: they come again."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `Sink`."""


def _consuming(local: ShardClient, queue: Queue, sink: Sink) -> Consumer:
    """Have a sink given what lies in an outbox."""
    made: Any = local.consuming.subscribe(
        queue,
        "",
        MATCH_ALL,
        sink,
        consumer_id="outbox",
        credit_max=limits.OUTBOX_UNCONFIRMED_MAX,
        no_ack=False,
        exclusive=False,
        lease_ms=_POLICY.visibility_timeout_ms,
    )
    consumer: Consumer = made.result() if isinstance(made, Answer) else made
    return consumer


def _plan_of(queue: Queue, message: Message) -> PublishPlan:
    return PublishPlan(*_plan_fields(queue, message))


def _plan_fields(queue: Queue, message: Message) -> tuple[str, int, bytes, bool, PublishOptions, str]:
    """Return how a message of an outbox is published: under an identity that stays the same in another shard
    and is never given again.
    """
    template = message.template
    identity = (queue.arguments or {})[_IDENTITY]
    return (
        template.topic,
        template.properties_kind,
        template.properties,
        template.persistent,
        PublishOptions(priority=template.priority, deduplication_id=f"{identity}-{message.offset}"),
        template.exchange,
    )


def outbox_of(name: str, worker: int, number: int = 0) -> str:
    """Return the name of a worker's queue of what a queue of another is owed; one of several by number."""
    short = local_name(name)
    prefix = f"{OUTBOX_PREFIX}{worker}."
    if len(short.encode()) > limits.QUEUE_NAME_BYTES_MAX - len(prefix) - _NUMBER_BYTES:
        short = f"{crc32(short.encode()):08x}-{short[:60]}"
    return qualified_name(vhost_of(name), prefix + short + (f".{number}" if number else ""))
