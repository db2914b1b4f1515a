"""The tools of removals: they find by scanning what is to go, and delete it with open commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from broker.engine.commit_loop import CommitLoop
from broker.engine.log_steps import Steps, walk_log
from broker.engine.payload_references import PayloadReferences, drop_reference
from queue_manager.manager import QueueManager
from queue_manager.shard.commit import Commit
from storage.metadata_log import ScanRange
from storage.store import Store


class Deleting(NamedTuple):
    """Where to look, and what the deletes go into: a bounded number into each commit."""

    store: Store
    manager: QueueManager
    commits: CommitLoop
    references: PayloadReferences

    @property
    def commit(self) -> Commit:
        """The open commit."""
        return self.manager.context.commit

    def entries(
        self, log_id: str, sequence: int, steps: Steps
    ) -> AsyncIterator[tuple[ScanRange, list[tuple[bytes, bytes]]]]:
        """Yield the entries of a log from a sequence on; see `walk_log`."""
        metadata_log = self.manager.context.metadata_log
        return walk_log(self.store, metadata_log.scan_bounds(log_id, sequence), steps)

    @asynccontextmanager
    async def letting_go(self, own: list[bytes], shared: Iterable[int]) -> AsyncIterator[Commit]:
        """Delete payloads by their keys, and take references to shared ones back; gives the commit that this
        goes into, for what is to go with them: a repetition would take no reference back twice.
        """
        async with self.references.counted(shared) as counts:
            commit = self.commit
            commit.delete_run(own)
            for message_id, count in counts.items():
                drop_reference(commit, message_id, count)
            yield commit
