"""Deleting what SlateDB needs no more on a local disk, once what replaces it is on disk.

SlateDB's own collector goes by age, and by a newest manifest that may be in the kernel's memory only. Here
everything goes by the last whole sweep (`LocalSync.on_disk`), however slow the disk is:

- log objects go once a manifest that does not replay them is on disk with all its tables,
- manifests and compaction states, once a newer one is,
- tables that no manifest needs go through SlateDB's collector. It keeps those a compaction replaced for
  `limits.STORE_COMPACTED_AGE_MIN_S` after the manifest that let them go; a sweep that began and ended within
  that time has put that manifest on disk, or the tables are still kept.
"""

import asyncio
import os
import time
from pathlib import Path

from slatedb.uniffi import (
    Admin,
    GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
    VersionedManifest,
)

from config import limits
from storage.local_sync import (
    COMPACTIONS_DIRECTORY,
    MANIFEST_DIRECTORY,
    WAL_DIRECTORY,
    OnDisk,
    numbers_of,
    wal_ids,
    wal_name,
    wall_s,
)
from storage.slate_errors import SLATE_ERRORS, translate


class LocalGarbage:
    """The collector of one database directory."""

    def __init__(self, database: Path, admin: Admin) -> None:
        self._database = database
        self._admin = admin
        self._before: OnDisk | None = None

    async def collect(self, on_disk: OnDisk) -> None:
        """Delete what was superfluous at the last call already, so that nobody still reads it.

        `on_disk` is the state of the last whole sweep. Raises StorageError.
        """
        before, self._before = self._before, on_disk
        if before is None:
            return
        try:
            manifest = await self._admin.read_manifest(before.manifest)
            newest = await self._admin.read_manifest(None)
            if manifest is None or newest is None:
                return
            kept = _checkpointed(manifest) | _checkpointed(newest)
            await asyncio.get_running_loop().run_in_executor(None, self._delete_files, before, manifest, kept)
            if _tables_are_safe(on_disk):
                await self._admin.run_gc_once(_tables_only())
        except SLATE_ERRORS as error:
            raise translate(error, "collecting garbage") from error

    def _delete_files(self, before: OnDisk, manifest: VersionedManifest, kept: set[int]) -> None:
        # the log is synced object by object: what is next may not be missing, though nobody needs it
        kept_from = min(manifest.replay_after_wal_id, before.next_wal_id)
        replayed = [wal_id for wal_id in wal_ids(self._database) if wal_id < kept_from]
        self._delete(WAL_DIRECTORY, [wal_name(wal_id) for wal_id in replayed])
        for folder, newest, needed in (
            (MANIFEST_DIRECTORY, before.manifest, kept),
            (COMPACTIONS_DIRECTORY, before.compactions, set[int]()),
        ):
            older = [
                name
                for name in os.listdir(self._database / folder)
                if (number := max(numbers_of([name]), default=newest)) < newest and number not in needed
            ]
            self._delete(folder, older)

    def _delete(self, folder: str, names: list[str]) -> None:
        for name in names:
            (self._database / folder / name).unlink(missing_ok=True)


def _checkpointed(manifest: VersionedManifest) -> set[int]:
    return {checkpoint.manifest_id for checkpoint in manifest.checkpoints}


def _tables_are_safe(on_disk: OnDisk) -> bool:
    """Return whether no table that the manifest on disk needs can have lost its protection since the sweep
    began.
    """
    elapsed_s = time.monotonic() - on_disk.begun_monotonic_s
    stepped_s = abs(wall_s() - on_disk.begun_wall_s - elapsed_s)
    return elapsed_s < limits.STORE_COMPACTED_AGE_MIN_S / 2 and stepped_s < limits.STORE_CLOCK_STEP_S_MAX


def _tables_only() -> GarbageCollectorOptions:
    collect = GarbageCollectorDirectoryOptions(
        min_age_ms=1_000 * limits.STORE_GARBAGE_AGE_MIN_S, dry_run=False
    )
    return GarbageCollectorOptions(
        manifest_options=None,
        wal_options=None,
        wal_fence_options=None,
        compacted_options=collect,
        compactions_options=None,
        detach_options=None,
        disable_boundary_files=True,
    )
