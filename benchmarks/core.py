"""The core alone, for benchmarks without store, wire and loop."""

from __future__ import annotations

from queue_manager.claims.claim import Claim, Consumer
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from storage.metadata_log import MetadataLog
from storage.records import message_ids
from storage.sequence import SequenceAllocator

NOW_MS = 1_767_225_600_000


def new_manager(policy: QueuePolicy) -> QueueManager:
    """A queue manager without queues."""
    return QueueManager(
        default_policy=policy,
        auto_create=False,
        cache_bytes_max=1 << 26,
        log=MetadataLog(),
        message_ids=SequenceAllocator(message_ids.KEY),
    )


class Collector:
    """A consumer that keeps what it was given until it settles."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        """See `queue_manager.claims.claim.Sink`."""
        self.claims += claims or []
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        """See `queue_manager.claims.claim.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `queue_manager.claims.claim.Sink`."""
