"""What one shard owes another: messages given up here whose dead letters go to a queue of another worker.

They wait in a durable queue of this shard, one for each such queue, put there by the commit that gives them
up. From there each goes to its queue under an identity of its own, so that it is taken once whatever is lost
on the way, and is acknowledged here when it is durable there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final
from zlib import crc32

from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from broker.engine.traffic import Claim, Consumer, Message
from broker.workers.asking_link import Link
from broker.workers.sharded_queues import Neighbours
from broker.workers.waits import Entry, Gate, Part
from config import limits
from queue_manager.address import OUTBOX_PREFIX, local_name, qualified_name, vhost_of
from queue_manager.errors import QueueBusy
from queue_manager.options import PublishOptions
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.route import ForeignQueue
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate

_NUMBER_BYTES: Final = 8
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
        """Begin to send: it is known which queues the other workers have."""
        self._is_open = True
        for queue in list(self._queues):
            if local_name(queue.name).startswith(OUTBOX_PREFIX):
                self._send(queue.description, queue)

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
            name = outbox_of(target, number)
            try:
                definition = QueueDefinition(
                    name, durable=True, policy=_POLICY, description=target, is_server_named=True
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
        self._identity = f"{queue.log.log_id}-{neighbours.number}-{crc32(target.encode()):08x}"
        made: Any = local.consuming.subscribe(
            queue,
            "",
            MATCH_ALL,
            self,
            consumer_id="outbox",
            credit_max=limits.OUTBOX_UNCONFIRMED_MAX,
            no_ack=False,
            exclusive=False,
            lease_ms=_POLICY.visibility_timeout_ms,
        )
        self._consumer: Consumer = made.result() if isinstance(made, Answer) else made

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
            first, last = link.publish(self._plan(message), [self._target], [message.body or b""], None)
            link.wait(Part(entry, first, last, (index,)))
        return True

    def _link(self) -> Link | None:
        queue = self._neighbours.directory.get(self._target)
        return None if queue is None else self._neighbours.link(queue.shard)

    def _plan(self, message: Message) -> PublishPlan:
        template = message.template
        options = PublishOptions(
            priority=template.priority, deduplication_id=f"{self._identity}-{message.offset}"
        )
        return PublishPlan(
            template.topic,
            template.properties_kind,
            template.properties,
            template.persistent,
            options,
            template.exchange,
        )

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


def outbox_of(name: str, number: int = 0) -> str:
    """Return the name of the queue of what a queue of another worker is owed; one of several by number."""
    short = local_name(name)
    if len(short.encode()) > limits.QUEUE_NAME_BYTES_MAX - len(OUTBOX_PREFIX) - _NUMBER_BYTES:
        short = f"{crc32(short.encode()):08x}-{short[:60]}"
    return qualified_name(vhost_of(name), OUTBOX_PREFIX + short + (f".{number}" if number else ""))
