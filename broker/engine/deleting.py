"""The tools of removals: they find by scanning what is to go, and delete it with open commits."""

from __future__ import annotations

from typing import NamedTuple

from broker.engine.commit_loop import CommitLoop
from broker.engine.payload_references import PayloadReferences
from queue_manager.manager import QueueManager
from storage.store import Store


class Deleting(NamedTuple):
    """Where to look, and what the deletes go into: a bounded number into each commit."""

    store: Store
    manager: QueueManager
    commits: CommitLoop
    references: PayloadReferences
