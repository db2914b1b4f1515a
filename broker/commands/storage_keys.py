"""`sluicemq store keys`: which keys encrypt what is stored. What reads stores is imported when it does."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from broker.commands.backups import Origin, running_cut
from broker.commands.http_api import Api, AsJson
from broker.commands.printing import print_json, print_table, refuse
from broker.commands.stored_data import Config, Storage, done, of_shards, stored
from config.settings import StorageSettings
from storage.errors import StorageError

if TYPE_CHECKING:
    from storage.sealing.sealed_store import SealedStore
    from storage.sealing.used_keys import KeyUses, Tell


def store_keys(
    api: Api,
    storage: Storage = None,
    config: Config = None,
    running: Annotated[
        bool, typer.Option("--running", help="Of a broker that runs: without its keys, by --url.")
    ] = False,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="First encrypt anew all that is not with the first key.")
    ] = False,
    forget: Annotated[
        str | None, typer.Option(metavar="ID", help="Then do without this key, if it is not in use.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the records that each key of storage.encryption encrypts."""
    changes = rewrite or forget is not None
    with Console(stderr=True).status("reading") as status:

        def tell(seen: int) -> None:
            status.update(f"{seen:,} records")

        if running and (changes or config is not None):
            refuse("--running only counts, what the broker at --url has")
        if running:
            uses = done(_of_running(api, storage, tell))
        elif changes:
            change = partial(_changed, rewrite=rewrite, forget=forget, tell=tell)
            uses = done(of_shards(stored(storage, config), change))
        else:
            uses = done(of_shards(stored(storage, config), partial(_of_stopped, tell=tell)))
    _show(uses, as_json)


async def _of_running(api: Api, storage: str | None, tell: Tell) -> list[tuple[int, KeyUses]]:
    async with running_cut(api, storage) as origins:
        return [(number, await _of_cut(origin, tell)) for number, origin in enumerate(origins)]


async def _of_cut(origin: Origin, tell: Tell) -> KeyUses:
    from storage.backup.source import CutSource
    from storage.records import encryption
    from storage.sealing.used_keys import KeyUses

    source = await CutSource.open(origin.url, origin.cut_id)
    try:
        value = await source.get(encryption.key())
        uses = KeyUses(None if value is None else encryption.decode(value))
        seen = 0
        async for page in source.pages():
            for key, row_value in page:
                uses.note(key, row_value)
            seen += len(page)
            tell(seen)
        return uses
    finally:
        await source.close()


async def _of_stopped(settings: StorageSettings, tell: Tell) -> KeyUses:
    from storage.read_only import open_read_only
    from storage.records import encryption
    from storage.sealing.used_keys import KeyUses

    store = await open_read_only(settings)
    try:
        value = await store.get(encryption.key())
        uses = KeyUses(None if value is None else encryption.decode(value))
        for start in store.commit_starts:
            uses.note_commit(start)
        seen = 0
        async for page in store.pages_as_they_lie():
            for key, row_value in page:
                uses.note(key, row_value)
            seen += len(page)
            tell(seen)
        return uses
    finally:
        await store.close()


async def _changed(settings: StorageSettings, *, rewrite: bool, forget: str | None, tell: Tell) -> KeyUses:
    if settings.encryption is None:
        raise StorageError("there is no storage.encryption with keys in the configuration")
    from storage.open import open_unjournaled
    from storage.read_only import open_read_only
    from storage.sealing.used_keys import count_keys, forget_key, seal_anew

    await (await open_read_only(settings)).close()  # refuses where there is no storage
    store = await open_unjournaled(settings)
    try:
        sealed: SealedStore = store  # type: ignore[assignment]
        if rewrite:
            count = await seal_anew(sealed, tell)
            typer.echo(f"{count:,} records encrypted anew with key {sealed.ring.newest.id}", err=True)
        if forget is not None:
            await forget_key(sealed, forget, tell)
            typer.echo(f"{forget}: forgotten; take it out of storage.encryption.keys", err=True)
        return await count_keys(sealed, tell)
    finally:
        await store.close()


def _show(found: list[tuple[int, KeyUses]], as_json: bool) -> None:
    of_several = len(found) > 1
    rows = [
        {**({"shard": number} if of_several else {}), **asdict(use)}
        for number, uses in found
        for use in uses.found()
    ]
    if as_json:
        print_json(rows)
        return
    columns = [("id", "KEY"), ("records", "RECORDS"), ("bytes", "BYTES"), ("commits", "COMMITS IN JOURNAL")]
    if of_several:
        columns.insert(0, ("shard", "SHARD"))
    print_table(columns, [{**row, "id": row["id"] or "(not encrypted)"} for row in rows])
