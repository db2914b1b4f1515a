"""Which publishes of one queue were taken already: by deduplication ID, or by producer and sequence.

Everything is in memory; a durable queue's is written with the publishes themselves, so that what is
remembered and what is in the queue are always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from config import limits
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_IDENTITY, REFUSED_ORDER, REFUSED_WINDOW
from queue_manager.rules.stored_window import Host
from queue_manager.shard.record_types import RecordType, Row
from storage.records import DIGEST_BYTES, NONE_TAKEN, Identified, ProducerProgress, identified, producer

REPEATED: Final = -1  # taken before; any outcome but this and ACCEPTED refuses


def digest_of(body: bytes) -> bytes:
    """Return what tells one body from another."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()


class IdentitiesAhead:
    """Identities of publishes that are judged together and come before, as if they had been taken."""

    __slots__ = ("_producers", "_seen")

    def __init__(self) -> None:
        self._seen: dict[tuple[Identities, str], Identified] = {}
        self._producers: dict[tuple[Identities, str], ProducerProgress] = {}

    def take(self, queue: Identities, options: PublishOptions, digest: bytes, now_ms: int) -> None:
        """Note that one more will have been taken by a queue."""
        if options.deduplication_id:
            self._seen[queue, options.deduplication_id] = Identified(now_ms, digest)
        if options.producer_id:
            progress = ProducerProgress(options.producer_sequence, now_ms, digest)
            self._producers[queue, options.producer_id] = progress

    def seen(self, queue: Identities, name: str) -> Identified | None:
        """Return what a queue will know of a deduplication ID."""
        return self._seen.get((queue, name)) or queue.seen.get(name)

    def producer(self, queue: Identities, name: str) -> ProducerProgress | None:
        """Return what a queue will know of a producer."""
        return self._producers.get((queue, name)) or queue.producers.get(name)


class Identities:
    """The memory of one queue, the oldest first in both tables.

    What a producer sends after a publish that the full queue refused (`ProducerProgress.refused`) is refused
    too until that one comes again, or it would look as if it had been taken. So the refusal is remembered
    like a publish, and told when that is durable (`is_remembered`).
    """

    __slots__ = ("_context", "producers", "queue", "seen")

    def __init__(self, queue: Host) -> None:
        self.queue = queue
        self._context = queue.context
        self.seen: dict[str, Identified] = {}
        self.producers: dict[str, ProducerProgress] = {}

    def judge(self, options: PublishOptions, digest: bytes, now_ms: int, ahead: IdentitiesAhead) -> int:
        """Return ACCEPTED if the publish is new after `ahead`, REPEATED, or the outcome that refuses it."""
        if options.producer_id:
            verdict = self._judge_sequence(options, digest, now_ms, ahead)
            if verdict != ACCEPTED:
                return verdict
        name = options.deduplication_id
        if not name:
            return ACCEPTED
        known = ahead.seen(self, name)
        if known is not None and known.seen_ms + self.queue.policy.deduplication_window_ms > now_ms:
            return REPEATED if known.digest == digest else REFUSED_IDENTITY
        if len(self.seen) >= limits.DEDUPLICATION_IDS_MAX:
            return REFUSED_WINDOW
        return ACCEPTED

    def _judge_sequence(
        self, options: PublishOptions, digest: bytes, now_ms: int, ahead: IdentitiesAhead
    ) -> int:
        name, sequence = options.producer_id, options.producer_sequence
        known = ahead.producer(self, name)
        if known is None:
            if len(self.producers) >= limits.PRODUCERS_PER_QUEUE_MAX:
                oldest = next(iter(self.producers.values()))
                if oldest.seen_ms + limits.PRODUCER_IDLE_MS_MIN > now_ms:
                    return REFUSED_WINDOW
        elif sequence <= known.sequence:
            if sequence == known.sequence and digest != known.digest:
                return REFUSED_IDENTITY
            return REPEATED
        if known is not None and known.refused is not None and sequence > known.refused:
            return REFUSED_ORDER
        return ACCEPTED

    def records(self, options: PublishOptions, digest: bytes, now_ms: int) -> list[tuple[bytes, bytes]]:
        """Yield what tells the store that the publish was taken."""
        found: list[tuple[bytes, bytes]] = []
        if not self.queue.durable:
            return found
        queue_name, name = self.queue.name, options.deduplication_id
        if name:
            found.append((identified.key(queue_name, name), identified.encode(now_ms, digest)))
        name = options.producer_id
        if name:
            value = producer.encode(options.producer_sequence, now_ms, digest)
            found.append((producer.key(queue_name, name), value))
        return found

    def remember(self, options: PublishOptions, digest: bytes, now_ms: int) -> None:
        """Remember the publish, which was taken with the open commit; `records` of it have to go into
        that.
        """
        queue = self.queue
        name = options.deduplication_id
        if name:
            self.seen.pop(name, None)
            self.seen[name] = Identified(now_ms, digest)
            self._context.timers.set(self, now_ms + queue.policy.deduplication_window_ms)
        if options.producer_id:
            self._note(options.producer_id, ProducerProgress(options.producer_sequence, now_ms, digest))

    def note_refused(self, options: PublishOptions, now_ms: int) -> None:
        """Note that the queue had no room for the publish: its producer has to send it again before the
        next.
        """
        name, refused = options.producer_id, options.producer_sequence
        if not name:
            return
        progress = ProducerProgress(NONE_TAKEN, now_ms, bytes(DIGEST_BYTES), refused)
        known = self.producers.get(name)
        if known is not None:
            if known.refused is not None:
                refused = min(refused, known.refused)
            progress = known._replace(seen_ms=now_ms, refused=refused)
        self._note(name, progress)
        queue = self.queue
        if queue.durable:
            self._context.commit.put(producer.key(queue.name, name), producer.encode(*progress))

    def note_dropped(self, options: PublishOptions) -> None:
        """Let the producer of a publish that no group wants go on, if the queue had no room for it before."""
        name = options.producer_id
        known = self.producers.get(name)
        if known is not None and known.refused == options.producer_sequence:
            progress = self.producers[name] = known._replace(refused=None)
            queue = self.queue
            if queue.durable:
                self._context.commit.put(producer.key(queue.name, name), producer.encode(*progress))

    def _note(self, name: str, progress: ProducerProgress) -> None:
        if name not in self.producers and len(self.producers) >= limits.PRODUCERS_PER_QUEUE_MAX:
            self._forget_producer(next(iter(self.producers)))
        self.producers.pop(name, None)
        self.producers[name] = progress

    def _forget_producer(self, name: str) -> None:
        del self.producers[name]
        if self.queue.durable:
            self._context.commit.delete(producer.key(self.queue.name, name))

    def on_timer(self, now_ms: int) -> None:
        """Forget IDs whose window has passed."""
        queue = self.queue
        if queue.deleted:
            return
        window_ms = queue.policy.deduplication_window_ms
        forgotten: list[str] = []
        for name, known in self.seen.items():
            if known.seen_ms + window_ms > now_ms or len(forgotten) == limits.DEDUPLICATION_STEP_IDS:
                self._context.timers.set(self, max(known.seen_ms + window_ms, now_ms))
                break
            forgotten.append(name)
        for name in forgotten:
            del self.seen[name]
            if queue.durable:
                self._context.commit.delete(identified.key(queue.name, name))

    def restore(
        self, seen: list[tuple[str, Identified]], producers: list[tuple[str, ProducerProgress]], now_ms: int
    ) -> None:
        """Take in what the store remembered."""
        self.seen = dict(sorted(seen, key=lambda item: item[1].seen_ms))
        self.producers = dict(sorted(producers, key=lambda item: item[1].seen_ms))
        if self.seen:
            self._context.timers.set(self, now_ms)

    def move_to(self, queue: Host) -> None:
        """Have `queue`, which takes over the messages, remember the same."""
        self._context.timers.forget(self)
        self.queue = queue
        if queue.durable:
            commit = self._context.commit
            for name, known in self.seen.items():
                commit.put(identified.key(queue.name, name), identified.encode(*known))
            for name, progress in self.producers.items():
                commit.put(producer.key(queue.name, name), producer.encode(*progress))
        if self.seen:
            first = next(iter(self.seen.values()))
            self._context.timers.set(self, first.seen_ms + queue.policy.deduplication_window_ms)


def restore_identities(
    identities: Identities, seen: Sequence[Row], producers: Sequence[Row], now_ms: int
) -> None:
    """Remember what a queue did before the start."""
    identities.restore(
        [(identified.parse_key(key)[1], identified.decode(value)) for key, value in seen],
        [(producer.parse_key(key)[1], producer.decode(value)) for key, value in producers],
        now_ms,
    )


IDENTITY_TYPES: Final = (RecordType(record=identified), RecordType(record=producer))
