"""The place of a cursor as it is on the store."""

from __future__ import annotations

from queue_manager.shard.commit import Commit
from storage.records import group_position, log_cursor


class StoredPlace:
    """Writes log sequence and position when they are others than before."""

    __slots__ = ("_log_id", "_position", "_sequence", "_storage_id")

    def __init__(self, storage_id: str, log_id: str) -> None:
        self._storage_id = storage_id
        self._log_id = log_id
        self._sequence = -1
        self._position = -1

    def write(self, sequence: int, position: int, commit: Commit) -> None:
        """Put into the commit what changed."""
        if sequence != self._sequence:
            self._sequence = sequence
            commit.put(log_cursor.key(self._storage_id, self._log_id), log_cursor.encode(sequence))
        if position != self._position:
            self._position = position
            commit.put(group_position.key(self._storage_id), group_position.encode(position))
