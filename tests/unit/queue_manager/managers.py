"""A queue manager without a store, and consumers that note what they are given."""

from __future__ import annotations

from typing import Any

from queue_manager.claims.claim import UNLIMITED, Claim, Consumer, CreditPool
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.metadata_log import MetadataLog
from storage.records import message_ids
from storage.sequence import SequenceAllocator

NOW_MS = 1_767_225_600_000


class Sink:
    """Collects deliveries, call by call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.claims: list[Claim] = []
        self.revoked_count = 0
        self.cancelled_reasons: list[str] = []

    @property
    def offsets(self) -> list[int]:
        return [offset for call in self.calls for offset in call]

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        self.calls.append([message.offset for message in messages])
        self.claims += claims or []
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        self.revoked_count += len(claims)

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        self.cancelled_reasons.append(reason)


def make_policy(**fields: Any) -> QueuePolicy:
    """A policy with the fields given."""
    return QueuePolicy(**{"visibility_timeout_ms": 30_000, "message_bytes_max": 1 << 20, **fields})


def make_manager(*, auto_create: bool = True) -> QueueManager:
    """A manager with nothing in it."""
    return QueueManager(
        default_policy=make_policy(done_retention_ms=0, expires_ms=300_000),
        auto_create=auto_create,
        cache_bytes_max=1 << 20,
        log=MetadataLog(),
        message_ids=SequenceAllocator(message_ids.key()),
    )


def make_queue(manager: QueueManager, name: str = "jobs", *, durable: bool = True, **fields: Any) -> Queue:
    """A queue whose policy has the fields given."""
    return manager.queues.declare(
        QueueDefinition(name, durable=durable, policy=make_policy(**fields)), NOW_MS
    )


def publish(manager: QueueManager, count: int, topic: str = "$queue/jobs/eu", size: int = 1) -> int:
    """Publish `count` messages; gives the outcome."""
    plan = manager.plan(topic, 0, b"", True)
    plan.aim(manager.publisher.route(topic, NOW_MS))
    return manager.publish(plan, [b"x" * size] * count, NOW_MS)


def publish_durably(manager: QueueManager, count: int, topic: str = "$queue/jobs/eu", size: int = 1) -> int:
    """Publish, and have it durable: a stream's readers are not given it before."""
    outcome = publish(manager, count, topic, size)
    become_durable(manager)
    return outcome


def become_durable(manager: QueueManager) -> None:
    """As if everything published so far were stored."""
    for queue in manager.queues:
        for part in queue.parts:
            part.became_durable(part.log.next_offset, 1 << 20)


def consume(
    manager: QueueManager,
    queue: Queue,
    group: str = "",
    pattern: str = "#",
    *,
    credit_max: int = UNLIMITED,
    no_ack: bool = False,
    exclusive: bool = False,
    pool: CreditPool | None = None,
    lease_ms: int = 30_000,
    priority: int = 0,
) -> tuple[Consumer, Sink]:
    """A consumer and its sink."""
    sink = Sink()
    consumer = manager.consumption.subscribe(
        queue,
        group,
        pattern,
        sink,
        consumer_id="c",
        credit_max=credit_max,
        no_ack=no_ack,
        exclusive=exclusive,
        lease_ms=lease_ms,
        pool=pool,
        priority=priority,
    )
    return consumer, sink


def waiting_bytes(queue: Queue) -> int:
    """The bytes of payload that wait in the group with most of them, as the queue counts them."""
    return queue._levels.waiting_bytes()
