"""Before a local database is opened: recognising what a power cut left half written, and setting it aside.

Nothing confirmed is ever given up here. With a journal before the database (`storage.journal`) the log may
be cut anywhere: the journal holds what is missing then, or proves that it does not, and the start is
refused. In a synced database without one (of an earlier release) a commit returned after the fsync of its
WAL objects, so only a torn one at the end of the log is a commit that nobody was told about. Manifests and
tables are synced a little later, but until then what they replace is kept: a manifest is given up only if an
earlier one is whole, with all its tables and, without a journal, every WAL object from there on. Otherwise
the opening is refused, and a person decides.

Files set aside are renamed into `torn/` below the database, never deleted.
"""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Final

from slatedb.uniffi import Admin, AdminBuilder, ObjectStore, VersionedManifest

from config import limits
from storage.errors import FormatTooNew, StorageError
from storage.local_sync import COMPACTIONS_DIRECTORY, WAL_DIRECTORY, wal_ids, wal_name
from storage.slate_errors import SLATE_ERRORS
from storage.table_check import NewerFormat, table_problem

TORN_DIRECTORY: Final = "torn"
BOOT_FILE: Final = "boot-id"
"""Holds the kernel's boot identity of the last opening: while it is the same, no power cut has happened."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_STATE_VERSION_MAX: Final = 2  # of manifests and compaction states: the u16BE they begin with


async def set_aside_torn(directory: Path, path: str, object_store: ObjectStore, *, strict: bool) -> list[str]:
    """Make the database in `directory` (known to `object_store` as `path`) one that SlateDB can open.

    Returns a note for every file set aside. `strict`: all that was confirmed is in the database's log, and
    was synced, so only the end of it can be torn; without it the log is cut at the first object that is
    torn or missing. Raises StorageError when something is damaged that may have been confirmed,
    FormatTooNew when a newer SlateDB wrote it.
    """
    run = asyncio.get_running_loop().run_in_executor
    if not await run(None, directory.exists):
        return []
    notes: list[str] = []
    admin = AdminBuilder(path, object_store).build()
    every_block = await run(None, _power_may_have_failed, directory)
    manifest = await _newest_sound_manifest(admin, directory, notes, every_block=every_block, strict=strict)
    await run(None, _forget_compactions, directory)
    replayed = manifest.replay_after_wal_id if manifest is not None else 0
    notes += await run(None, partial(_drop_torn_wal, directory, replayed, strict=strict))
    await run(None, _remember_boot, directory)
    return notes


async def _newest_sound_manifest(
    admin: Admin, directory: Path, notes: list[str], *, every_block: bool, strict: bool
) -> VersionedManifest | None:
    run = asyncio.get_running_loop().run_in_executor
    names = _newest_first(directory / "manifest", ".manifest")  # on a slow disk many are not on disk yet
    torn: list[tuple[str, str]] = []
    for name in names:
        problem = _state_problem(directory / "manifest" / name)
        manifest = None
        if not problem:
            try:
                manifest = await admin.read_manifest(int(name.partition(".")[0]))
            except SLATE_ERRORS as error:
                problem = f"cannot be decoded ({_text(error)})"
        if manifest is not None:
            check = partial(_tables_problem, directory, _table_names(manifest), every_block)
            problem = await run(None, check)
        if manifest is not None and not problem:
            if strict and torn and not _log_reaches_from(directory, manifest.replay_after_wal_id):
                break
            for torn_name, reason in torn:
                notes.append(_set_aside(directory, "manifest", torn_name, reason))
            return manifest
        torn.append((name, problem))
    if not torn:
        return None
    reasons = "; ".join(f"manifest/{name}: {reason}" for name, reason in torn)
    raise StorageError(
        f"opening: {directory} is damaged beyond what a power cut explains, and going back further could "
        f"lose confirmed messages ({reasons})"
    )


def _table_names(manifest: VersionedManifest) -> list[str]:
    views = list(manifest.l0)
    runs = list(manifest.compacted)
    for segment in manifest.segments:
        views += segment.l0
        runs += segment.compacted
    for run in runs:
        views += run.sst_views
    return sorted({view.sst.id.value for view in views})


def _tables_problem(directory: Path, tables: list[str], every_block: bool) -> str:
    """Return the problem of the first unsound table, or ""."""
    folder = directory / "compacted"
    recent = _newest_change(directory) - limits.STORE_GARBAGE_AGE_MIN_S
    for table in tables:
        path = folder / f"{table}.sst"
        try:
            # what is older than that was synced by a sweep, and reading gigabytes at every start is slow
            deep = every_block and path.stat().st_mtime >= recent
            problem = table_problem(path, every_block=deep)
        except FileNotFoundError:
            problem = "missing"
        except NewerFormat as error:
            raise FormatTooNew(f"opening: {error}") from None
        if problem:
            return f"its table {path.name} is not whole: {problem}"
    return ""


def _newest_change(directory: Path) -> float:
    newest = 0.0
    for folder in ("manifest", WAL_DIRECTORY):
        try:
            newest = max(newest, (directory / folder).stat().st_mtime)
        except FileNotFoundError:
            continue
    return newest


def _log_reaches_from(directory: Path, replay_after: int) -> bool:
    """Return whether every WAL object after `replay_after` is there."""
    later = [wal_id for wal_id in wal_ids(directory) if wal_id > replay_after]
    return not later or later == list(range(replay_after + 1, later[-1] + 1))


def _forget_compactions(directory: Path) -> None:
    """Delete the states of compactions: what was being compacted is begun anew.

    One that is newer than the manifest would be gone on with, and then tables that the manifest still
    names, older than those it was about, would count as compacted: their rows would be gone. After a power
    cut nothing tells which of the two reached the disk. Raises FormatTooNew when a newer SlateDB wrote one.
    """
    names = _newest_first(directory / COMPACTIONS_DIRECTORY, ".compactions")
    for name in names:
        _state_problem(directory / COMPACTIONS_DIRECTORY / name)
    for name in names:
        (directory / COMPACTIONS_DIRECTORY / name).unlink()


def _drop_torn_wal(directory: Path, replay_after: int, *, strict: bool) -> list[str]:
    """Cut the log behind `replay_after` where it is no longer whole. Gives the notes."""
    unread = [wal_id for wal_id in wal_ids(directory) if wal_id > replay_after]
    missing = next((n for n, wal_id in enumerate(unread, replay_after + 1) if wal_id != n), None)
    if strict:
        if missing is not None:
            raise StorageError(
                f"opening: {directory} is damaged: {WAL_DIRECTORY}/{wal_name(missing)} is missing, and later "
                "ones are there. Put it back, or the whole directory from a backup"
            )
        return _drop_torn_end(directory, unread)
    for wal_id in unread:
        if missing is not None and wal_id > missing:
            return _drop_wal_from(directory, wal_id, f"{wal_name(missing)} is missing")
        problem = _wal_problem(directory / WAL_DIRECTORY / wal_name(wal_id))
        if problem:
            return _drop_wal_from(directory, wal_id, problem)
    return []


def _drop_torn_end(directory: Path, unread: list[int]) -> list[str]:
    """Set aside the torn objects behind the last whole one: each was synced before the next was begun.

    Empty ones may be fences, which are no commits.
    """
    first_torn, problem = 0, ""
    for wal_id in reversed(unread):
        path = directory / WAL_DIRECTORY / wal_name(wal_id)
        found = _wal_problem(path)
        if found:
            first_torn, problem = wal_id, found
        elif path.stat().st_size:
            break
    return _drop_wal_from(directory, first_torn, problem) if first_torn else []


def _drop_wal_from(directory: Path, first: int, problem: str) -> list[str]:
    """Set aside this object of the log and all behind it, the last first, so that no crash leaves a gap."""
    notes = []
    for wal_id in reversed(wal_ids(directory)):
        if wal_id >= first:
            reason = problem if wal_id == first else f"it follows {wal_name(first)}"
            notes.append(_set_aside(directory, WAL_DIRECTORY, wal_name(wal_id), reason))
    return notes


def _wal_problem(path: Path) -> str:
    try:
        if path.stat().st_size == 0:
            return ""  # a fence: every opening leaves one
        return table_problem(path, every_block=True)
    except NewerFormat as error:
        raise FormatTooNew(f"opening: {error}") from None


def _state_problem(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(2)
    version = int.from_bytes(head, "big")
    if len(head) < 2 or version == 0:
        return "it is empty"
    if version > _STATE_VERSION_MAX:
        raise FormatTooNew(f"opening: {path.name} has format version {version}")
    return ""


def _set_aside(directory: Path, folder: str, name: str, reason: str) -> str:
    torn = directory / TORN_DIRECTORY
    torn.mkdir(exist_ok=True)
    target = torn / f"{folder}-{name}"
    count = 1
    while target.exists():
        count += 1
        target = torn / f"{folder}-{name}.{count}"
    os.rename(directory / folder / name, target)
    return f"{folder}/{name} is not whole ({reason}): it is now {TORN_DIRECTORY}/{target.name}"


def _newest_first(folder: Path, suffix: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((name for name in names if name.endswith(suffix)), reverse=True)


def _power_may_have_failed(directory: Path) -> bool:
    try:
        return (directory / BOOT_FILE).read_text() != _BOOT_ID.read_text()
    except OSError:
        return True


def _remember_boot(directory: Path) -> None:
    try:
        (directory / BOOT_FILE).write_text(_BOOT_ID.read_text())
    except OSError:
        pass  # no such identity here: every opening reads recent tables whole


def _text(error: Exception) -> str:
    return str(getattr(error, "message", error))
