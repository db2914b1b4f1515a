"""Payloads that several queues share, and letting go of them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.commit_loop import CommitLoop
from queue_manager.shard.commit import Commit
from storage.records import payload, payload_refs
from storage.store import Store


class PayloadReferences:
    """The counts of queues that need a payload, unwritten commits included."""

    def __init__(self, store: Store, commits: CommitLoop) -> None:
        self._store = store
        self._commits = commits

    async def count(self, message_id: int) -> int:
        """How many queues need the payload; 0: none counted."""
        key = payload_refs.key(message_id)
        for commit in self._commits.unwritten():
            if key in commit.deletes:
                return 0
            if key in commit.puts:
                return payload_refs.decode(commit.puts[key])
        value = await self._store.get(key)
        return 0 if value is None else payload_refs.decode(value)

    async def counts(self, message_ids: Iterable[int]) -> dict[int, int]:
        """As `count`, by message ID."""
        return {message_id: await self.count(message_id) for message_id in message_ids}

    def is_being_deleted(self, key: bytes) -> bool:
        """Whether a commit that is not written yet deletes this record."""
        return any(key in commit.deletes for commit in self._commits.unwritten())

    async def release(self, commit: Commit, message_id: int) -> None:
        """Take back one queue's reference to a shared payload; the last one takes the payload along."""
        drop_reference(commit, message_id, await self.count(message_id))


def drop_reference(commit: Commit, message_id: int, count: int) -> None:
    """Take back one of `count` references to a shared payload; the last one takes the payload along."""
    if count > 1:
        commit.put(payload_refs.key(message_id), payload_refs.encode(count - 1))
    else:
        commit.delete(payload_refs.key(message_id))
        commit.delete(payload.key(message_id))
