"""`sluicemq backup` and `sluicemq restore`. What reads and writes stores is imported when one is to be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from broker.clock import Clock, iso_time
from broker.commands.http_api import Api, AsJson, segment, with_api
from broker.commands.printing import print_json, refuse
from broker.commands.stored_data import Config, done
from broker.commands.stored_data import Storage as StoppedStorage
from broker.version import PRODUCT, VERSION
from config import limits
from config.settings import StorageSettings
from config.settings_loader import ConfigError, load_settings
from storage.errors import StorageError

if TYPE_CHECKING:
    from storage.backup.archive import Index
    from storage.backup.backup_places import FileSink
    from storage.backup.copying import About, Tell

Storage = Annotated[
    str | None,
    typer.Option(
        help="Where this machine sees the storage, if not where the broker does: a directory, or a URL."
    ),
]
Place = Annotated[
    str, typer.Argument(help="A directory, or s3://bucket/prefix; for a new backup an empty one.")
]


class Origin(NamedTuple):
    """A cut to copy: where it is, and what the index says of it."""

    url: str
    cut_id: str
    about: About


Origins = contextlib.AbstractAsyncContextManager[list[Origin]]
"""A cut of each shard; that of the first one first."""


def backup(
    api: Api,
    to: Place,
    storage: Storage = None,
    config: Config = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Of a broker that does not run: by --storage or --config.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy everything a broker has confirmed, while it goes on; all as of one moment."""
    if offline:
        settings = _storage_settings(storage, config)
        origins = _stopped_cut(settings)
    elif config is not None:
        raise typer.BadParameter("is for --offline", param_hint="--config")
    else:
        origins = running_cut(api, storage)
    with _progress("copying") as bar:
        index = done(_back_up(origins, to, bar))
    _show(index, to, as_json)


def restore(
    place: Annotated[str, typer.Argument(metavar="BACKUP", help="What `backup` wrote.")],
    storage: StoppedStorage = None,
    config: Config = None,
    check: Annotated[bool, typer.Option("--check", help="Only read and compare with the checksums.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fill an empty storage with a backup, once all its checksums are found right."""
    settings = None if check else _storage_settings(storage, config)
    with _progress("checking") as bar:
        index = done(_restore(place, settings, bar))
    _show(index, place if settings is None else settings.url, as_json)


async def _back_up(origins: Origins, to: str, bar: _Bar) -> Index:
    """Copy the cuts of all shards; that of the first comes last, so that a backup that has one is whole."""
    from storage.backup.backup_places import open_for_writing
    from storage.shards import shard_path

    first_sink = await open_for_writing(to)
    try:
        async with origins as found:
            for number, origin in reversed(list(enumerate(found))):
                if number:
                    sink = await open_for_writing(shard_path(to, number))
                    try:
                        await _copy(origin, sink, bar, f"copying shard {number}")
                    finally:
                        await sink.close()
            return await _copy(found[0], first_sink, bar, "copying")
    finally:
        await first_sink.close()


async def _copy(origin: Origin, sink: FileSink, bar: _Bar, doing: str) -> Index:
    from storage.backup.copying import copy_cut
    from storage.backup.source import CutSource

    source = await CutSource.open(origin.url, origin.cut_id)
    try:
        return await copy_cut(source, sink, origin.about, bar.told(source.estimated_bytes, doing))
    finally:
        await source.close()


async def _restore(place: str, settings: StorageSettings | None, bar: _Bar) -> Index:
    """Check all shards of a backup before any is restored; the first one is the last, as in `_back_up`."""
    from storage.backup.backup_places import open_for_reading
    from storage.backup.restoring import check_backup, check_empty, restore_backup
    from storage.shards import shard_path, shard_settings

    sources = [await open_for_reading(place)]
    try:
        indexes = [await check_backup(sources[0], bar.told(0))]
        for number in range(1, indexes[0].shards):
            sources.append(await open_for_reading(shard_path(place, number)))
            indexes.append(await check_backup(sources[number], bar.told(0, f"checking shard {number}")))
        if settings is not None:
            await check_empty(settings.url)
            for number, index in reversed(list(enumerate(indexes))):
                tell = bar.told(index.bytes, f"restoring shard {number}" if number else "restoring")
                await restore_backup(sources[number], index, shard_settings(settings, number), tell)
        return indexes[0]
    finally:
        for source in sources:
            await source.close()


@contextlib.asynccontextmanager
async def running_cut(api: Api, storage: str | None) -> AsyncIterator[list[Origin]]:
    """Hold the cuts that a running broker makes, for as long as they are used."""
    from storage.shards import shard_url

    made = await asyncio.to_thread(api.call, "POST", "/cuts")
    cuts = [made, *made.get("others", ())]
    paths = [f"/cuts/{segment(cut['id'])}" for cut in cuts]
    keeper = asyncio.create_task(_keep(api, paths))
    try:
        yield [
            Origin(
                cut["storage"] if storage is None else shard_url(storage, number),
                cut["id"],
                _about(made["made_at"], cut["sequence"], 1 if number else len(cuts)),
            )
            for number, cut in enumerate(cuts)
        ]
        if keeper.done():
            keeper.result()
    finally:
        keeper.cancel()
        for path in paths:
            with contextlib.suppress(typer.Exit):  # of a broker that is gone: the cut's time ends by itself
                await asyncio.to_thread(api.call, "DELETE", path)


async def _keep(api: Api, paths: Sequence[str]) -> None:
    while True:
        await asyncio.sleep(limits.CUT_KEEP_INTERVAL_S)
        for path in paths:
            await asyncio.to_thread(api.call, "POST", f"{path}/keep")


@contextlib.asynccontextmanager
async def _stopped_cut(settings: StorageSettings) -> AsyncIterator[list[Origin]]:
    """Hold a cut of each shard of a storage that no broker has open."""
    from storage.open import absolute_path, open_store
    from storage.read_only import check_is_storage
    from storage.shards import shard_settings, shards_of

    if "://" not in settings.url and settings.url != "memory:":
        check_is_storage(absolute_path(settings.url))
    numbers = await shards_of(settings) if settings.url != "memory:" else [0]
    if numbers != list(range(len(numbers))):
        raise StorageError(f"there are shards {numbers}: one between them is missing")
    origins: list[Origin] = []
    async with contextlib.AsyncExitStack() as held:
        for number in numbers:
            own = shard_settings(settings, number)
            store = await open_store(own)
            held.push_async_callback(store.close)
            if store.cuts is None:
                raise StorageError("there is nothing in memory to copy")
            cut = await store.cuts.make()
            held.push_async_callback(store.cuts.drop, cut.id)
            about = _about(iso_time(Clock().now_ms()), cut.sequence, 1 if number else len(numbers))
            origins.append(Origin(own.url, cut.id, about))
        yield origins


def _about(made_at: str, sequence: int, shards: int) -> About:
    from storage.backup.copying import About

    return About(made_by=f"{PRODUCT} {VERSION}", made_at=made_at, sequence=sequence, shards=shards)


def _storage_settings(storage: str | None, config: Path | None) -> StorageSettings:
    if storage is None and config is None:
        raise typer.BadParameter("one of them says which storage is meant", param_hint="--storage, --config")
    try:
        return load_settings(config, overrides={"storage.url": storage}).storage
    except ConfigError as error:
        refuse("; ".join(error.problems))


class _Bar:
    """A bar that shows how many bytes are done of about how many."""

    def __init__(self, progress: Progress, doing: str) -> None:
        self._progress = progress
        self._task = progress.add_task(doing, total=None)

    def told(self, total_bytes: int, doing: str | None = None) -> Tell:
        """Return what tells of the bytes that are done."""
        self._progress.update(self._task, completed=0, total=total_bytes or None)
        if doing is not None:
            self._progress.update(self._task, description=doing)
        return lambda done: self._progress.update(
            self._task, completed=done, total=max(total_bytes, done) or None
        )


@contextlib.contextmanager
def _progress(doing: str) -> Iterator[_Bar]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, doing)


def _show(index: Index, place: str, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(index), "bytes": index.bytes, "place": place})
        return
    typer.echo(
        f"{place}: {index.rows:,} records, {index.bytes:,} bytes in {len(index.files)} files, "
        f"as of {index.made_at} (sequence {index.sequence})"
        + (f"; the first of {index.shards} shards" if index.shards > 1 else "")
    )


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {"backup": with_api(backup), "restore": restore}
