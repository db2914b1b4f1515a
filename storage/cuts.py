"""Cuts: the database as of one moment, kept for readers elsewhere while the writer goes on.

A cut is a checkpoint of SlateDB behind a flush of its memory: its tables hold everything, so that a reader
needs no log, and collecting garbage leaves them alone until the cut is dropped or its time is over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from slatedb.uniffi import (
    Admin,
    AdminBuilder,
    CheckpointOptions,
    DbReader,
    DbReaderBuilder,
    ObjectStore,
    ReaderMode,
    ReaderOptions,
    VersionedManifest,
)

from config import limits
from storage.errors import StorageError
from storage.slate_errors import SLATE_ERRORS, answered, translate

_NAME: Final = "sluicemq-cut"

_Result = TypeVar("_Result")


class Cut(NamedTuple):
    """A cut by its checkpoint's name, and SlateDB's number of the last write in it."""

    id: str
    sequence: int


class TooManyCuts(StorageError):
    """As many cuts are kept as there may be."""


@dataclass(eq=False, repr=False, slots=True)
class Cuts:
    """Makes cuts of one open database: `_flush` puts everything written so far into tables; `_viewed` is held
    while a cut is made.
    """

    _admin: Admin
    _flush: Callable[[], Awaitable[None]]
    _viewed: Callable[[], AbstractContextManager[None]] = nullcontext
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def behind(
        self, settle: Callable[[], Awaitable[None]], viewed: Callable[[], AbstractContextManager[None]]
    ) -> "Cuts":
        """Return the same cuts for a later writer of the database.

        `settle` has it hold everything; while `viewed` is held it gets whole writes only.
        """

        async def flush() -> None:
            await settle()
            await self._flush()

        return Cuts(self._admin, flush, viewed)

    async def make(self) -> Cut:
        """Make a cut with every write that returned before this call, kept for `limits.CUT_LIFETIME_S`.

        Raises StorageError; TooManyCuts where `limits.CUTS_MAX` are kept.
        """
        async with answered("making a cut", limits.CUT_TIMEOUT_S), self._turn:
            if len(await self._admin.list_checkpoints(_NAME)) >= limits.CUTS_MAX:
                raise TooManyCuts(f"{limits.CUTS_MAX} cuts of the storage are kept already")
            with self._viewed():
                await self._flush()
                made = await self._admin.create_detached_checkpoint(
                    CheckpointOptions(lifetime_ms=limits.CUT_LIFETIME_S * 1_000, source=None, name=_NAME)
                )
            manifest = await self._admin.read_manifest(made.manifest_id)
        if manifest is None:
            raise StorageError("making a cut: its manifest is not there")
        return Cut(made.id, manifest.last_l0_seq)

    async def keep(self, cut_id: str) -> bool:
        """Keep a cut for another `limits.CUT_LIFETIME_S`; False if it is not there. Raises StorageError."""
        if not await self._is_kept(cut_id):
            return False
        await self._call(self._admin.refresh_checkpoint(cut_id, limits.CUT_LIFETIME_S * 1_000))
        return True

    async def drop(self, cut_id: str) -> bool:
        """Let go of a cut; False if it is not there. Raises StorageError."""
        if not await self._is_kept(cut_id):
            return False
        await self._call(self._admin.delete_checkpoint(cut_id))
        return True

    async def _is_kept(self, cut_id: str) -> bool:
        kept = await self._call(self._admin.list_checkpoints(_NAME))
        return any(checkpoint.id == cut_id for checkpoint in kept)

    async def _call(self, call: Awaitable[_Result]) -> _Result:
        async with answered("keeping a cut", limits.CUT_TIMEOUT_S):
            return await call


async def open_cut_reader(path: str, object_store: ObjectStore, cut_id: str) -> tuple[DbReader, int]:
    """Open a reader of a cut, which writes nothing; gives also the rough number of bytes in the cut's
    tables.

    Raises StorageError, also where there is no such cut.
    """
    builder = DbReaderBuilder(path, object_store)
    builder.with_reader_mode(ReaderMode.CHECKPOINT(cut_id))
    builder.with_options(
        ReaderOptions(
            manifest_poll_interval_ms=limits.CUT_LIFETIME_S * 1_000,
            checkpoint_lifetime_ms=2 * limits.CUT_LIFETIME_S * 1_000,  # makes none
            max_memtable_bytes=limits.STORE_TABLE_BYTES,
            skip_wal_replay=True,  # everything is in tables, and the log may be gone
        )
    )
    try:
        admin = AdminBuilder(path, object_store).build()
        ids = {each.id: each.manifest_id for each in await admin.list_checkpoints(_NAME)}
        manifest = await admin.read_manifest(ids[cut_id]) if cut_id in ids else None
        if manifest is None:
            raise StorageError(f"there is no cut {cut_id}, or no longer")
        return await builder.build(), _table_bytes(manifest)
    except SLATE_ERRORS as error:
        raise translate(error, "opening a cut") from error


def _table_bytes(manifest: VersionedManifest) -> int:
    views = [*manifest.l0, *[view for run in manifest.compacted for view in run.sst_views]]
    return sum(int(view.estimated_size_bytes) for view in views)
