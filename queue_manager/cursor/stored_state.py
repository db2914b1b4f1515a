"""The state of a cursor on the store, and when that is brought up to date."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field

from config import limits
from queue_manager.log.queue_log import QueueLog
from queue_manager.shard.commit import Commit
from queue_manager.shard.context import WHOLE, Stateful, StateWrites
from storage.records import group_position, log_cursor


@dataclass(eq=False, repr=False, slots=True)
class StoredState:
    """Has a cursor written when something changed, at most once in `limits.STATE_FLUSH_INTERVAL_MS`.

    A busy group's claim that is settled before the next writing so never touches an active record. What a
    crash loses thereby is delivered again, never lost. `is_dirty`: there is something to write, in whichever
    part of the cursor: buckets, attempts and ranges only list what of them is unwritten. Log sequence and
    position are written when they are others than before.
    """

    _cursor: Stateful
    _log: QueueLog
    _storage_id: str
    _: KW_ONLY
    is_kept: InitVar[bool] = True
    _is_kept: bool = field(init=False)
    is_dirty: bool = field(default=False, init=False)
    _flushed_at_ms: int = field(default=0, init=False)
    _is_awaited: bool = field(default=False, init=False)
    _sequence: int = field(default=-1, init=False)
    _position: int = field(default=-1, init=False)
    _state_writes: StateWrites = field(init=False)

    def __post_init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept and self._log.durable
        self._state_writes = self._log.context.state_writes

    def mark_dirty(self) -> None:
        """Have position and claims written with one of the next commits, if they are kept at all."""
        if not self.is_dirty and self._is_kept and not self._log.deleted:
            self.is_dirty = True
            self._want_write()

    def _want_write(self) -> None:
        due_ms = WHOLE if self._is_awaited else self._flushed_at_ms + limits.STATE_FLUSH_INTERVAL_MS
        self._state_writes.add(self._cursor, due_ms)

    def write_soon(self) -> None:
        """Have all that changed written with the open commit."""
        self._is_awaited = True
        if self.is_dirty:
            self._want_write()

    def write_at(self, due_ms: int) -> None:
        """Have what changes from now on written at that time."""
        self._is_awaited = False
        self._flushed_at_ms = due_ms - limits.STATE_FLUSH_INTERVAL_MS

    def write_place(self, sequence: int, position: int, commit: Commit) -> None:
        """Put into the commit what changed of the place in the log."""
        if sequence != self._sequence:
            self._sequence = sequence
            commit.put(log_cursor.key(self._storage_id, self._log.log_id), log_cursor.encode(sequence))
        if position != self._position:
            self._position = position
            commit.put(group_position.key(self._storage_id), group_position.encode(position))

    def written(self, now_ms: int) -> None:
        """Note that what changed is in a commit."""
        self.is_dirty = False
        self._is_awaited = False
        self._flushed_at_ms = now_ms
        self._state_writes.forget(self._cursor)

    def write_rest(self, now_ms: int) -> None:
        """Have the rest written with the next commits: only a part of what changed is in one."""
        self.is_dirty = True
        self._state_writes.add(self._cursor, now_ms)

    def leave(self) -> None:
        """Write nothing any more: the queue or the group is gone."""
        self._is_kept = False
        self.is_dirty = False
        self._state_writes.forget(self._cursor)
