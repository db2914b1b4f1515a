"""`sluicemq store`: looking at the data of a broker that does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.status import Status

from broker.commands.http_api import AsJson
from broker.commands.printing import EXIT_REFUSED, print_json, print_table, refuse
from config.settings import StorageSettings
from config.settings_loader import ConfigError, load_settings
from storage.errors import StorageError

if TYPE_CHECKING:
    from storage.inspection import Inspection, Rows

app: Final = typer.Typer(help="Look at the data of a broker that is not running.", no_args_is_help=True)

Storage = Annotated[str | None, typer.Option(help="A directory, or s3://bucket/prefix.")]
_Found = TypeVar("_Found")
Config = Annotated[Path | None, typer.Option(help="The broker's configuration file.")]


@app.command("inspect")
def inspect_store(storage: Storage = None, config: Config = None, as_json: AsJson = False) -> None:
    """Count the records of each kind, and their bytes."""
    _show(_inspections(storage, config, verify=False), as_json)


@app.command("verify")
def verify_store(storage: Storage = None, config: Config = None, as_json: AsJson = False) -> None:
    """Decode every record, and look for what belongs to nothing; exit 1 if there are problems."""
    found = _inspections(storage, config, verify=True)
    _show(found, as_json)
    if any(each.problem_count for _, each in found):
        raise typer.Exit(EXIT_REFUSED)


@app.command("repair")
def repair_store(storage: Storage = None, config: Config = None, as_json: AsJson = False) -> None:
    """Delete payloads that nothing holds and lower counts of references that are too high, as `verify` tells
    them. Changes nothing where a record cannot be read; exit 1 if problems are left.
    """
    repaired = done(of_shards(stored(storage, config), _repair))
    if as_json:
        print_json(_told([(n, {**asdict(found), "repaired_count": c}) for n, (found, c) in repaired]))
    else:
        for number, (found, repaired_count) in repaired:
            _head(number, len(repaired))
            _tell_problems(found)
            typer.echo(f"{repaired_count} repaired")
    if any(found.problem_count for _, (found, _) in repaired):
        raise typer.Exit(EXIT_REFUSED)


def _inspections(storage: str | None, config: Path | None, *, verify: bool) -> list[tuple[int, Inspection]]:
    return done(of_shards(stored(storage, config), partial(_inspect, verify=verify)))


async def of_shards(
    settings: StorageSettings, work: Callable[[StorageSettings], Awaitable[_Found]]
) -> list[tuple[int, _Found]]:
    """Return what comes of work on each shard of a storage, with its number."""
    from storage.shards import shard_settings, shards_of

    return [(number, await work(shard_settings(settings, number))) for number in await shards_of(settings)]


def _told(found: list[tuple[int, dict[str, Any]]]) -> Any:
    """Return what JSON says: of several shards a list."""
    if len(found) == 1:
        return found[0][1]
    return [{"shard": number, **document} for number, document in found]


def _head(number: int, count: int) -> None:
    """Print which shard follows, if there are several."""
    if count > 1:
        typer.echo(f"shard {number}")


def stored(storage: str | None, config: Path | None) -> StorageSettings:
    """Return where the storage is; exits if that cannot be."""
    try:
        settings = load_settings(config, overrides={"storage.url": storage}).storage
        if settings.url == "memory:":
            raise ConfigError(["storage.url: what is in memory ends with its broker"])
        if "://" not in settings.url and not Path(settings.url).is_dir():
            raise ConfigError([f"{settings.url}: no such directory"])
    except (ConfigError, OSError) as error:
        refuse(error)
    return settings


def done(work: Coroutine[Any, Any, _Found]) -> _Found:
    """Return what comes of work on a storage; exits where it fails."""
    try:
        return asyncio.run(work)
    except (StorageError, OSError) as error:
        refuse(error)


async def _repair(settings: StorageSettings) -> tuple[Inspection, int]:
    from broker.engine.ownership import repair
    from storage.open import open_store
    from storage.read_only import open_read_only

    with Console(stderr=True).status("reading") as status:
        await (await open_read_only(settings, status.update)).close()  # refuses where there is no storage
        store = await open_store(settings, tell=status.update)
        try:
            return await repair(store, lambda seen: status.update(f"{seen:,} records"))
        finally:
            await store.close()


async def _inspect(settings: StorageSettings, *, verify: bool) -> Inspection:
    from storage.read_only import open_read_only  # with the database's library

    with Console(stderr=True).status("reading") as status:
        store = await open_read_only(settings, status.update)
        try:
            return await _look(store, status, verify=verify)
        finally:
            await store.close()


async def _look(store: Rows, status: Status, *, verify: bool) -> Inspection:
    from broker.engine.ownership import Ownership
    from storage.inspection import inspect

    def tell(seen: int) -> None:
        status.update(f"{seen:,} records")

    if not verify:
        return await inspect(store, verify=False, tell=tell)
    ownership = Ownership()
    found = await inspect(store, verify=True, tell=tell, beside=ownership.note)
    status.update("comparing what holds with what is held")
    for problem in ownership.problems():
        found.complain(problem.key, problem.what)
    return found


def _show(inspections: list[tuple[int, Inspection]], as_json: bool) -> None:
    if as_json:
        print_json(_told([(number, asdict(found)) for number, found in inspections]))
        return
    columns = (("name", "RECORD"), ("count", "COUNT"), ("key_bytes", "KEYS"), ("value_bytes", "VALUES"))
    for number, found in inspections:
        _head(number, len(inspections))
        print_table(columns, [{"name": name, **asdict(tally)} for name, tally in found.tallies.items()])
        _tell_problems(found)


def _tell_problems(found: Inspection) -> None:
    for problem in found.problems:
        typer.echo(problem, err=True)
    if found.problem_count:
        typer.echo(f"{found.problem_count} problems", err=True)
