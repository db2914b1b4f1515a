"""Which publishes of one queue were taken already: by deduplication ID, or by producer and sequence.

Everything is in memory; a durable queue's is written with the publishes themselves, so that what is
remembered and what is in the queue are always the same.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from config import limits
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH, REFUSED_IDENTITY, REFUSED_ORDER, REFUSED_WINDOW
from storage.records import identified, producer
from storage.records.identified import DIGEST_BYTES, Identified
from storage.records.producer import ProducerProgress

if TYPE_CHECKING:
    from queue_manager.manager import QueueManager
    from queue_manager.plan import PublishPlan
    from queue_manager.queue import Queue

REPEATED: Final = -1  # taken before; any outcome but this and ACCEPTED refuses


def digest_of(body: bytes) -> bytes:
    """What tells one body from another."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()


class Identities:
    """What one queue remembers, the oldest first in both tables.

    `held_back` are producers whose publish the full queue refused, with its sequence: what they sent after it
    is refused too, or it would look as if the refused one had been taken.
    """

    __slots__ = ("held_back", "producers", "queue", "seen")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.seen: dict[str, Identified] = {}
        self.producers: dict[str, ProducerProgress] = {}
        self.held_back: dict[str, int] = {}

    def judge(self, options: PublishOptions, digest: bytes, now_ms: int) -> int:
        """ACCEPTED if the publish is new, REPEATED, or the outcome that refuses it."""
        if options.producer_id:
            verdict = self._judge_sequence(options, digest, now_ms)
            if verdict != ACCEPTED:
                return verdict
        name = options.deduplication_id
        if not name:
            return ACCEPTED
        known = self.seen.get(name)
        if known is not None and known.seen_ms + self.queue.policy.deduplication_window_ms > now_ms:
            return REPEATED if known.digest == digest else REFUSED_IDENTITY
        if len(self.seen) >= limits.DEDUPLICATION_IDS_MAX:
            return REFUSED_WINDOW
        return ACCEPTED

    def _judge_sequence(self, options: PublishOptions, digest: bytes, now_ms: int) -> int:
        name, sequence = options.producer_id, options.producer_sequence
        known = self.producers.get(name)
        if known is None:
            if len(self.producers) >= limits.PRODUCERS_PER_QUEUE_MAX:
                oldest = next(iter(self.producers.values()))
                if oldest.seen_ms + limits.PRODUCER_IDLE_MS_MIN > now_ms:
                    return REFUSED_WINDOW
        elif sequence <= known.sequence:
            if sequence == known.sequence and digest != known.digest:
                return REFUSED_IDENTITY
            return REPEATED
        if sequence > self.held_back.get(name, sequence):
            return REFUSED_ORDER
        return ACCEPTED

    def remember(self, options: PublishOptions, digest: bytes, now_ms: int) -> None:
        """The publish was taken, with the open commit."""
        queue = self.queue
        journal = queue.manager.journal
        name = options.deduplication_id
        if name:
            self.seen.pop(name, None)
            self.seen[name] = Identified(now_ms, digest)
            if queue.durable:
                journal.put(identified.key(queue.name, name), identified.encode(now_ms, digest))
            queue.manager.timers.set(self, now_ms + queue.policy.deduplication_window_ms)
        name = options.producer_id
        if name:
            if name not in self.producers and len(self.producers) >= limits.PRODUCERS_PER_QUEUE_MAX:
                self._forget_producer(next(iter(self.producers)))
            self.producers.pop(name, None)
            self.held_back.pop(name, None)
            sequence = options.producer_sequence
            self.producers[name] = ProducerProgress(sequence, now_ms, digest)
            if queue.durable:
                journal.put(producer.key(queue.name, name), producer.encode(sequence, now_ms, digest))

    def hold_back(self, options: PublishOptions) -> None:
        """The queue had no room for the publish: its producer has to send it again before the next."""
        name = options.producer_id
        if name and len(self.held_back) < limits.PRODUCERS_PER_QUEUE_MAX:
            self.held_back[name] = min(options.producer_sequence, self.held_back.get(name, 1 << 63))

    def _forget_producer(self, name: str) -> None:
        del self.producers[name]
        self.held_back.pop(name, None)
        if self.queue.durable:
            self.queue.manager.journal.delete(producer.key(self.queue.name, name))

    def on_timer(self, now_ms: int) -> None:
        """Forget IDs whose window has passed."""
        queue = self.queue
        if queue.deleted:
            return
        window_ms = queue.policy.deduplication_window_ms
        forgotten: list[str] = []
        for name, known in self.seen.items():
            if known.seen_ms + window_ms > now_ms or len(forgotten) == limits.DEDUPLICATION_STEP_IDS:
                queue.manager.timers.set(self, max(known.seen_ms + window_ms, now_ms))
                break
            forgotten.append(name)
        for name in forgotten:
            del self.seen[name]
            if queue.durable:
                queue.manager.journal.delete(identified.key(queue.name, name))

    def restore(
        self, seen: list[tuple[str, Identified]], producers: list[tuple[str, ProducerProgress]], now_ms: int
    ) -> None:
        """Take in what the store remembered."""
        self.seen = dict(sorted(seen, key=lambda item: item[1].seen_ms))
        self.producers = dict(sorted(producers, key=lambda item: item[1].seen_ms))
        if self.seen:
            self.queue.manager.timers.set(self, now_ms)

    def move_to(self, queue: Queue) -> None:
        """Have `queue`, which takes over the messages, remember the same."""
        queue.identities = self
        self.queue.manager.timers.forget(self)
        self.queue = queue
        if queue.durable:
            journal = queue.manager.journal
            for name, known in self.seen.items():
                journal.put(identified.key(queue.name, name), identified.encode(*known))
            for name, progress in self.producers.items():
                journal.put(producer.key(queue.name, name), producer.encode(*progress))
        if self.seen:
            first = next(iter(self.seen.values()))
            queue.manager.timers.set(self, first.seen_ms + queue.policy.deduplication_window_ms)


def publish_once(manager: QueueManager, plan: PublishPlan, bodies: list[bytes], now_ms: int) -> int:
    """As `QueueManager.publish`, for publishes with an identity: each queue takes it once.

    All `bodies` have the same identity. What was taken before counts as accepted; another body under the same
    identity is refused.
    """
    options = plan.options
    digest = digest_of(bodies[0])
    if any(digest_of(body) != digest for body in bodies[1:]):
        return REFUSED_IDENTITY
    fresh = []
    for queue in plan.queues:
        identities = queue.identities
        if identities is None:
            identities = queue.identities = Identities(queue)
        verdict = identities.judge(options, digest, now_ms)
        if verdict == ACCEPTED:
            fresh.append(identities)
        elif verdict != REPEATED:
            return verdict
    manager.repeated_publish_count += len(bodies) if not fresh else len(bodies) - 1
    if not fresh:
        return ACCEPTED
    once = manager.plan(
        plan.topic, plan.properties_kind, plan.properties, plan.persistent, options.without_identity()
    )
    once.aim(manager, tuple([identities.queue for identities in fresh]))
    outcome = manager.publish(once, bodies[:1], now_ms)
    for identities in fresh:
        if outcome == ACCEPTED:
            identities.remember(options, digest, now_ms)
        elif outcome == REFUSED_DEPTH:
            identities.hold_back(options)
    return outcome
