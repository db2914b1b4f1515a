"""Payloads that several queues share, and letting go of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from broker.engine.commit_loop import CommitLoop
from queue_manager.shard.commit import Commit
from storage.records import payload, payload_refs
from storage.store import Store


class PayloadReferences:
    """The counts of queues that need a payload, unwritten commits included.

    Reading them takes a while, in which others may want to take references back, too: each has its turn.
    """

    def __init__(self, store: Store, commits: CommitLoop) -> None:
        self._store = store
        self._commits = commits
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def counted(self, message_ids: Iterable[int]) -> AsyncIterator[dict[int, int]]:
        """Return how many queues need each of these payloads, 0: none counted.

        Nobody else takes a reference back before the end of the block; what that takes back it puts into the
        commit that is open then.
        """
        async with self._turn:
            yield {message_id: await self._count(message_id) for message_id in message_ids}

    async def _count(self, message_id: int) -> int:
        key = payload_refs.key(message_id)
        for commit in self._commits.unwritten():
            if key in commit.deletes:
                return 0
            if key in commit.puts:
                return payload_refs.decode(commit.puts[key])
        value = await self._store.get(key)
        return 0 if value is None else payload_refs.decode(value)

    def is_being_deleted(self, key: bytes) -> bool:
        """Return whether a commit that is not written yet deletes this record."""
        return any(key in commit.deletes for commit in self._commits.unwritten())


def drop_reference(commit: Commit, message_id: int, count: int) -> None:
    """Take back one of `count` references to a shared payload; the last one takes the payload along."""
    if count > 1:
        commit.put(payload_refs.key(message_id), payload_refs.encode(count - 1))
    else:
        commit.delete(payload_refs.key(message_id))
        commit.delete(payload.key(message_id))
