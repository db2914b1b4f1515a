"""`sluicemq store merge`: the shards of several workers as one. What reads stores is imported as it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from broker.commands.http_api import AsJson
from broker.commands.printing import print_json
from broker.commands.stored_data import Config, Storage, done, stored
from config import limits
from config.settings import StorageSettings
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.engine.merging.shard_merge import Moved
    from storage.store import Store

Doing = Callable[[str], None]


def merge_store(storage: Storage = None, config: Config = None, as_json: AsJson = False) -> None:
    """Bring what the shards of all workers hold into the first one, so that the broker can start with
    `workers: 1`. Ended on the way it goes on when it is run again; no broker starts meanwhile.
    """
    moved = done(_merge(stored(storage, config)))
    if as_json:
        print_json([asdict(each) for each in moved])
        return
    for each in moved:
        typer.echo(
            f"shard {each.shard}: {each.queues} queues, {each.sessions} sessions,"
            f" {each.retained_messages} retained messages; {each.records} records"
        )
    if not moved:
        typer.echo("nothing to merge")


async def _merge(settings: StorageSettings) -> list[Moved]:
    from broker.engine.merging.shard_merge import merge_state
    from storage.open import open_store
    from storage.read_only import open_read_only
    from storage.shards import shards_of

    with Console(stderr=True).status("reading") as status:
        if settings.is_remote:
            await _refuse_nodes(settings)
        await (await open_read_only(settings, status.update)).close()  # refuses where there is no storage
        target = await open_store(settings, tell=status.update)
        try:
            begun = await merge_state(target)
            numbers = (await shards_of(settings))[1:]
            if begun is not None:
                numbers = [begun.shard, *[number for number in numbers if number != begun.shard]]
            found = [await _merge_one(settings, target, number, status.update) for number in numbers]
        finally:
            await target.close()
    return [moved for moved in found if moved is not None]


async def _refuse_nodes(settings: StorageSettings) -> None:
    """Raise StorageError if the shards of a storage are those of nodes: each of them is of one node."""
    from broker.nodes.node_keeper import FOLDER
    from broker.nodes.shard_map import MAP_KEY
    from storage.object_records import ObjectRecords

    if await ObjectRecords(settings.url, FOLDER, limits.STORE_CALL_TIMEOUT_S).get(MAP_KEY) is not None:
        raise StorageError(
            f"opening: {settings.url} is the storage of nodes (cluster.listen): each shard is of one of them,"
            " and they have as many for ever; those of workers can be merged"
        )


async def _merge_one(settings: StorageSettings, target: Store, number: int, tell: Doing) -> Moved | None:
    from broker.engine.merging import shard_merge
    from storage.open import open_store
    from storage.read_only import open_read_only
    from storage.records import COPIED
    from storage.shards import remove_shard, shard_settings

    own = shard_settings(settings, number)
    state = await shard_merge.merge_state(target)
    is_copied = state is not None and state.state == COPIED
    moved: Moved | None = None
    if not is_copied or own.is_remote:
        await (await open_read_only(own, tell)).close()
        source = await open_store(own, tell=tell)
        try:
            if not is_copied:
                moved = await shard_merge.bring_over(
                    target, source, number, lambda seen: tell(f"shard {number}: {seen:,} records")
                )
                if moved is None:
                    return None
            if own.is_remote:
                await shard_merge.empty(source)
        finally:
            await source.close()
    if not own.is_remote:
        await remove_shard(settings, number)
    await shard_merge.end(target)
    return moved
