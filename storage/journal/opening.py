"""Making the journal of a local database, taking it over at a start, and leaving it.

The directory and the record in the database (`journal_state`) belong together by a random number, and
change hands in an order that can be told apart after a crash: what is made or given up lies in
`journal.changing`, the record is written, then the directory is renamed. So a record without a directory,
or the other way round, is a loss, not a crash, and opening is refused.
"""

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from config import limits
from storage.batch import WriteOps
from storage.directory_lock import DirectoryLock
from storage.errors import StorageError
from storage.journal.early import read_early
from storage.journal.files import JournalFiles, create_files, sync_directory
from storage.journal.frames import EndRecord, seed_of
from storage.journal.handing_over import HandingOver
from storage.journal.journal_survey import JournalDamaged, Survey, read_end, read_portions, survey_journal
from storage.journal.journaled_store import JournaledStore, Replaying
from storage.local_sync import sync_filesystem_of
from storage.records import JournalState, format_marker, journal_state
from storage.slate_store import SlateStore
from storage.store import Replay

JOURNAL_DIRECTORY: Final = "journal"
CHANGING_DIRECTORY: Final = "journal.changing"
ACCEPT_LOSS_FILE: Final = "accept-loss"
"""Made by a person in the storage directory: start although something is missing. Works once."""


def has_journal(root: Path) -> bool:
    """Return whether there is a journal in the storage directory."""
    return (root / JOURNAL_DIRECTORY).is_dir()


def journal_of(root: Path, state: JournalState | None, *, is_beside: bool = True) -> Path | None:
    """Return where the journal is that a database knows of by `state`, None if it has none; nothing is
    changed.

    `is_beside`: one in `root` cannot be another database's. Raises StorageError if it is not the one.
    """
    directory, changing = root / JOURNAL_DIRECTORY, root / CHANGING_DIRECTORY
    if state is None:
        if is_beside and directory.is_dir():
            raise _strange(directory)
        return None
    if changing.is_dir() and read_end(changing, state.database_id) is not None:
        return changing
    if not directory.is_dir():
        raise StorageError(f"opening: {directory} is missing, and what was confirmed last is in it")
    return directory


async def open_journaled(slate: SlateStore, lock: DirectoryLock, *, leaves: bool = False) -> JournaledStore:
    """Put a journal in the locked directory before the database `slate`: its own, replayed, or a new one.

    The lock is held, and goes over to the store. The format marker in the database must say that there may
    be a journal. `leaves`: the store gives the journal up when it is closed. Raises StorageError.
    """
    try:
        return await _Opening(slate, lock.directory).open(lock, leaves=leaves)
    except OSError as error:
        raise StorageError(f"opening the journal: {error.strerror}: {error.filename}") from error


async def leave_journal(slate: SlateStore, root: Path) -> None:
    """Have `slate`, the database in `root`, do without a journal: hand over what is in it, then remove it.

    Older programs can open the database afterwards. Raises StorageError.
    """
    try:
        await _Opening(slate, root).leave()
    except OSError as error:
        raise StorageError(f"opening the journal: {error.strerror}: {error.filename}") from error


class _Opening:
    """One start, with what it finds out."""

    def __init__(self, slate: SlateStore, root: Path) -> None:
        self._slate = slate
        self._root = root
        self._directory = root / JOURNAL_DIRECTORY
        self._changing = root / CHANGING_DIRECTORY
        self._notes = list(slate.notes)
        self._replayed: Replay | None = None
        self._behind: Survey | None = None  # to be replayed once the store is there

    async def open(self, lock: DirectoryLock, *, leaves: bool) -> JournaledStore:
        """See `open_journaled`."""
        state = await self._state()
        last, generation = (None, 0) if state is None else await self._take_over(state, may_wait=True)
        if state is None or last is None:
            state = await self._create()
            last = _end_of(state)
        behind = self._behind
        held = {} if behind is None else behind.held_segments()
        seal = self._slate.seal
        writer = await _run(JournalFiles, self._directory, state.database_id, last, generation, held, seal)
        replaying = None
        if behind is not None:
            early = await _run(read_early, behind, seal)
            replaying = Replaying(early, behind.last.sequence, self._hand_over(state, behind))
        return JournaledStore(
            self._slate,
            writer,
            lock,
            state.database_id,
            notes=tuple(self._notes),
            replayed=self._replayed,
            replaying=replaying,
            leave=self._give_up if leaves else None,
        )

    async def leave(self) -> None:
        """See `leave_journal`."""
        state = await self._state()
        if state is not None:
            await self._take_over(state)
            await self._give_up()
        await _run(shutil.rmtree, self._changing, True)

    async def _give_up(self) -> None:
        """Remove the journal: the database has everything, and is to stand without it."""
        await _run(sync_filesystem_of, self._root)
        if self._directory.is_dir():
            await _run(self._rename, self._directory, self._changing)
        ops = WriteOps()
        ops.delete(journal_state.key())
        ops.put(format_marker.key(), format_marker.encode(self._slate.format_version))
        await self._slate.write(ops)
        await _run(sync_filesystem_of, self._root)
        await _run(shutil.rmtree, self._changing, True)

    async def _state(self) -> JournalState | None:
        """Return the state of the journal in the database's words, once they agree with the directories."""
        value = await self._slate.get(journal_state.key())
        if value is None:
            if self._directory.is_dir():
                raise _strange(self._directory)
            return None
        state = journal_state.decode(value)
        await _run(self._finish_change, state)
        return state

    def _finish_change(self, state: JournalState) -> None:
        """Go on where a crash came between the record and the directory."""
        if self._changing.is_dir() and read_end(self._changing, state.database_id) is not None:
            if self._directory.is_dir():
                self._set_aside()
            self._rename(self._changing, self._directory)

    async def _create(self) -> JournalState:
        """Begin a journal without a commit. One that is there was given up."""
        database_id = secrets.randbits(64)
        state = JournalState(database_id, 0, seed_of(database_id))
        await _run(shutil.rmtree, self._changing, True)
        await _run(create_files, self._changing, database_id)
        await _run(sync_directory, self._root)
        ops = WriteOps()
        ops.put(journal_state.key(), journal_state.encode(*state))
        await self._slate.write(ops)
        await _run(self._finish_change, state)
        return state

    async def _take_over(
        self, state: JournalState, *, may_wait: bool = False
    ) -> tuple[EndRecord | None, int]:
        """Replay the journal; gives its last commit, and the highest generation of a segment.

        `may_wait`: if there is much to replay, leave that to the store. No commit if something is missing
        and a person wants a start all the same: the journal is of no more use.
        """
        if not self._directory.is_dir():
            await self._refuse_unless_accepted(
                f"opening: {self._directory} is missing, and what was confirmed last is in it", "Put it back"
            )
            return None, 0
        held = _end_of(state)
        try:
            survey: Survey = await _run(survey_journal, self._directory, state.database_id, held)
        except JournalDamaged as damage:
            await self._refuse_unless_accepted(damage.reason, "Put back the storage directory from a backup")
            await self._replay(state, damage.survey)
            return None, 0
        self._notes += survey.notes
        is_much = survey.replay_bytes > limits.JOURNAL_REPLAY_AT_ONCE_BYTES
        if may_wait and is_much and len(survey.to_replay) <= limits.JOURNAL_SEGMENTS_MAX:
            self._behind = survey
        else:
            await self._replay(state, survey)
        return survey.last, survey.generation

    async def _replay(self, state: JournalState, survey: Survey) -> None:
        """Hand over what the database has not, and have it on disk there: then every segment is free."""
        if survey.replay_count:
            self._replayed = await self._hand_over(state, survey)

    async def _hand_over(self, state: JournalState, survey: Survey) -> Replay:
        begun = time.monotonic()
        behind = HandingOver(self._slate, state.database_id)
        try:
            await behind.replay(read_portions(survey, limits.JOURNAL_REPLAY_BYTES, self._slate.seal))
        finally:
            await behind.close()
        took_ms = round(1000 * (time.monotonic() - begun))
        return Replay(survey.replay_count, survey.replay_bytes, took_ms)

    async def _refuse_unless_accepted(self, problem: str, remedy: str) -> None:
        file = self._root / ACCEPT_LOSS_FILE
        if not await _run(file.exists):
            raise StorageError(
                f"{problem}. {remedy}. To start without what is missing, for good, make an empty file {file} "
                "and start again"
            )
        await _run(file.unlink)
        self._notes.append(f"{problem}; started all the same, because there was a file {ACCEPT_LOSS_FILE}")

    def _set_aside(self) -> None:
        """Keep a journal that was given up, for a person to look at."""
        number = 1
        while (target := self._root / f"{JOURNAL_DIRECTORY}.damaged-{number}").exists():
            number += 1
        self._rename(self._directory, target)
        self._notes.append(f"the damaged journal is kept as {target}")

    def _rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)
        sync_directory(self._root)


def _strange(directory: Path) -> StorageError:
    return StorageError(
        f"opening: {directory} belongs to another database than the one beside it, and may "
        "hold the only copy of confirmed messages. Put the database's files back beside it, from "
        "a backup; move the journal away only if what it holds may be lost"
    )


def _end_of(state: JournalState) -> EndRecord:
    return EndRecord(state.sequence, state.checksum)


async def _run(call: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
