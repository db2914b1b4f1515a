"""`sluicemq backup` and `sluicemq restore`. What reads and writes stores is imported when one is to be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
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
        origin = _stopped_cut(settings)
    elif config is not None:
        raise typer.BadParameter("is for --offline", param_hint="--config")
    else:
        origin = running_cut(api, storage)
    with _progress("copying") as bar:
        index = done(_back_up(origin, to, bar))
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


async def _back_up(origin: contextlib.AbstractAsyncContextManager[Origin], to: str, bar: _Bar) -> Index:
    from storage.backup.backup_places import open_for_writing
    from storage.backup.copying import copy_cut
    from storage.backup.source import CutSource

    sink = await open_for_writing(to)
    try:
        async with origin as found:
            source = await CutSource.open(found.url, found.cut_id)
            try:
                return await copy_cut(source, sink, found.about, bar.told(source.estimated_bytes))
            finally:
                await source.close()
    finally:
        await sink.close()


async def _restore(place: str, settings: StorageSettings | None, bar: _Bar) -> Index:
    from storage.backup.backup_places import open_for_reading
    from storage.backup.restoring import check_backup, restore_backup

    source = await open_for_reading(place)
    try:
        index = await check_backup(source, bar.told(0))
        if settings is not None:
            await restore_backup(source, index, settings, bar.told(index.bytes, "restoring"))
        return index
    finally:
        await source.close()


@contextlib.asynccontextmanager
async def running_cut(api: Api, storage: str | None) -> AsyncIterator[Origin]:
    """Hold a cut that a running broker makes, for as long as it is used."""
    made = await asyncio.to_thread(api.call, "POST", "/cuts")
    path = f"/cuts/{segment(made['id'])}"
    keeper = asyncio.create_task(_keep(api, path))
    try:
        about = _about(made["made_at"], made["sequence"])
        yield Origin(storage or made["storage"], made["id"], about)
        if keeper.done():
            keeper.result()
    finally:
        keeper.cancel()
        with contextlib.suppress(typer.Exit):  # of a broker that is gone: the cut's time ends by itself
            await asyncio.to_thread(api.call, "DELETE", path)


async def _keep(api: Api, path: str) -> None:
    while True:
        await asyncio.sleep(limits.CUT_KEEP_INTERVAL_S)
        await asyncio.to_thread(api.call, "POST", f"{path}/keep")


@contextlib.asynccontextmanager
async def _stopped_cut(settings: StorageSettings) -> AsyncIterator[Origin]:
    """Hold a cut of a storage that no broker has open."""
    from storage.open import absolute_path, open_store
    from storage.read_only import check_is_storage

    if "://" not in settings.url and settings.url != "memory:":
        check_is_storage(absolute_path(settings.url))
    store = await open_store(settings)
    try:
        cuts = store.cuts
        if cuts is None:
            raise StorageError("there is nothing in memory to copy")
        cut = await cuts.make()
        made_at = iso_time(Clock().now_ms())
        yield Origin(settings.url, cut.id, _about(made_at, cut.sequence))
        await cuts.drop(cut.id)
    finally:
        await store.close()


def _about(made_at: str, sequence: int) -> About:
    from storage.backup.copying import About

    return About(made_by=f"{PRODUCT} {VERSION}", made_at=made_at, sequence=sequence)


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
    )


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {"backup": with_api(backup), "restore": restore}
