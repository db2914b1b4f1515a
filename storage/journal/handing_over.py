"""The commits that the journal holds and SlateDB does not: seen by reads, and handed over behind the
commits.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from slatedb.uniffi import WriteBatch

from config import limits
from storage.errors import StorageError, StoreUnavailable
from storage.journal.background import Background
from storage.journal.due import Due
from storage.journal.filling import filled_batch
from storage.journal.frames import EndRecord
from storage.journal.waiting_commits import ABSENT, Portion, Rows, Waiting
from storage.slate_store import SlateStore


class _Filled(NamedTuple):
    """A batch, and what it holds."""

    batch: WriteBatch
    portion: Portion


@dataclass(eq=False, repr=False, slots=True)
class HandingOver:
    """Hands commits to the database in batches, and has them made durable there, both lazily.

    A batch holds whole commits, and says in the database which is the last of them. `on_durable` is called
    with a sequence number when everything up to it is on disk in the database; `on_failure` once, when that
    will never be again. Nothing happens by itself before `start`.
    """

    _database: SlateStore
    _database_id: int
    _: KW_ONLY
    on_durable: Callable[[int], Coroutine[Any, Any, None]] | None = None
    on_failure: Callable[[StorageError], None] | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _background: Background = field(init=False)  # progress: after each batch and each flush
    _waiting: Waiting = field(default_factory=Waiting, init=False)
    _applying: Rows = field(default_factory=dict, init=False)  # on its way to the database
    _applied_sequence: int = field(default=0, init=False)
    _durable_sequence: int = field(default=0, init=False)
    _wanted_sequence: int = field(default=0, init=False)
    """Up to this commit somebody waits for the database to have them."""
    _undurable_bytes: int = field(default=0, init=False)  # applied, and not on disk in the database
    _apply_due: Due = field(default_factory=Due, init=False)
    _flush_due: Due = field(default_factory=Due, init=False)
    is_replaying: bool = field(default=False, init=False)
    """Whether commits of before the opening are still being handed over."""

    def __post_init__(self) -> None:
        self._background = Background(self._failed)

    def start(self, replay: Coroutine[Any, Any, int] | None = None) -> None:
        """Begin to work in the background: with `replay`, if there is one, before anything else. It gives the
        commit up to which the database has everything on disk then.
        """
        if replay is None:
            self._background.begin(self._apply_loop(), self._flush_loop())
        else:
            self.is_replaying = True
            self._background.begin(self._after(replay))

    async def _after(self, replay: Coroutine[Any, Any, int]) -> None:
        self._applied_sequence = self._durable_sequence = await replay
        self.is_replaying = False
        if self.on_durable is not None:
            await self.on_durable(self._applied_sequence)
        self._background.begin(self._apply_loop(), self._flush_loop())
        self._background.tell_progress()

    @property
    def has_waiting(self) -> bool:
        """Whether there are commits since the opening that the database has not."""
        return bool(self._waiting or self._applying)

    @property
    def is_empty(self) -> bool:
        """Whether the database has everything."""
        return not (self._waiting or self._applying or self.is_replaying)

    @property
    def waiting_bytes(self) -> int:
        """How much is in the journal that the database has not, or not on disk yet."""
        return self._waiting.journal_bytes + self._undurable_bytes

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits to be handed over that writers have to wait."""
        return self._waiting.is_crowded

    def add(self, commit: EndRecord, rows: Rows, size_bytes: int) -> None:
        """Take a commit that is on disk in the journal."""
        self._waiting.add(commit, rows, size_bytes, self._loop.time())
        due_s = self._waiting.due_s
        if not due_s:
            self._apply_due.now()
        else:
            self._apply_due.at(due_s)

    def find(self, key: bytes) -> object:
        """Return the value of a key that the database has not, None if it is deleted; else ABSENT."""
        found = self._waiting.find(key)
        return self._applying.get(key, ABSENT) if found is ABSENT else found

    def viewed(self) -> AbstractContextManager[None]:
        """Hold this, from before `catch_up`, to see whole commits in the database."""
        return self._waiting.viewed()

    async def catch_up(self) -> None:
        """Return once the database has every commit taken so far. Raises StorageError."""
        commit = self._waiting.last
        if commit is not None:
            self._want(commit.sequence)
        while (
            self.is_replaying
            or self._applying
            or (commit is not None and self._applied_sequence < commit.sequence)
        ):
            await self.progress()

    async def replayed(self) -> None:
        """Return once the database has every commit of before the opening. Raises StorageError."""
        while self.is_replaying:
            await self.progress()

    def hurry(self) -> None:
        """Make durable what was handed over, and hand over the oldest commits if that is nothing or too
        many wait: writers wait for it.
        """
        if self._durable_sequence == self._applied_sequence or self._waiting.is_crowded:
            self._want(self._applied_sequence + 1)
        self._flush_due.now()

    async def progress(self) -> None:
        """Wait for the next batch or flush. Raises StorageError when there will be none."""
        await self._background.progress()

    def fail(self, failure: StorageError) -> None:
        """Hand over nothing more; who waits is told."""
        self._stop_timers()
        self._background.fail(failure)

    def _failed(self, failure: StorageError) -> None:
        self._stop_timers()
        if self.on_failure is not None:
            self.on_failure(failure)

    async def close(self) -> None:
        """Hand over what is left, then stop. Raises StorageError."""
        try:
            if self._background.is_running:
                await self.catch_up()
        finally:
            self._stop_timers()
            await self._background.end()

    async def apply(self) -> None:
        """Hand what was collected over as one batch. Raises StorageError."""
        filled = await self._fill()
        if filled is not None:
            await self._hand_over(filled)

    async def replay(self, commits: Iterable[tuple[EndRecord, Rows, int]]) -> None:
        """Hand over what was read from a journal, and have it made durable.

        While the database takes one batch the next is filled. Raises StorageError, OSError.
        """
        handing: asyncio.Task[None] | None = None
        waiting_bytes = 0
        reading = iter(commits)
        try:
            while (read := await self._loop.run_in_executor(None, next, reading, None)) is not None:
                commit, rows, body_bytes = read
                self.add(commit, rows, body_bytes)
                waiting_bytes += body_bytes
                if waiting_bytes < limits.JOURNAL_REPLAY_BYTES:
                    continue
                waiting_bytes = 0
                filled = await self._fill()
                if handing is not None:
                    await handing
                if filled is not None:
                    handing = self._loop.create_task(self._hand_over(filled))
        finally:
            if handing is not None:
                await handing
        while self._waiting:
            await self.apply()
        await self.flush()

    async def _fill(self) -> _Filled | None:
        """Make a batch of the oldest commits that wait; None if there are none."""
        portion = self._waiting.take()
        if portion is None:
            return None
        self._applying = portion.rows
        return _Filled(await filled_batch(portion, self._database_id, self._database.fill), portion)

    async def _hand_over(self, filled: _Filled) -> None:
        portion = filled.portion
        await self._database.apply(filled.batch)
        if self._applying is portion.rows:
            self._applying = {}
        self._applied_sequence = portion.last.sequence
        self._note_undurable(portion.journal_bytes)
        self._background.tell_progress()

    async def flush(self) -> None:
        """Make durable what was handed over. Raises StorageError."""
        self._flush_due.cancel()
        sequence = self._applied_sequence
        self._undurable_bytes = 0
        await self._database.make_durable()
        if self.on_durable is not None:
            await self.on_durable(sequence)
        self._durable_sequence = sequence
        self._background.tell_progress()

    def _want(self, sequence: int) -> None:
        self._wanted_sequence = max(self._wanted_sequence, sequence)
        self._apply_due.now()

    def _is_due(self) -> bool:
        return bool(self._waiting) and (
            self._wanted_sequence > self._applied_sequence or self._waiting.due_s <= self._loop.time()
        )

    def _note_undurable(self, size: int) -> None:
        self._undurable_bytes += size
        if self._undurable_bytes >= limits.JOURNAL_FLUSH_BYTES:
            self._flush_due.now()
        else:
            self._flush_due.after(limits.JOURNAL_FLUSH_INTERVAL_MS / 1000)

    async def _apply_loop(self) -> None:
        while True:
            await self._apply_due.wait()
            await asyncio.sleep(0)  # the loop first writes what this turn confirmed,
            os.sched_yield()  # and the reader, whom the system starts on this processor, has its turn
            while self._is_due():
                await self.apply()
            if self._waiting:
                self._apply_due.at(self._waiting.due_s)

    async def _flush_loop(self) -> None:
        while True:
            await self._flush_due.wait()
            try:
                await self.flush()
            except StoreUnavailable:  # no file can be opened now; what was synced is remembered
                self._flush_due.after(limits.STORE_SWEEP_INTERVAL_S)

    def _stop_timers(self) -> None:
        self._apply_due.cancel()
        self._flush_due.cancel()
