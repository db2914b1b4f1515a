"""The storages of a broker with several workers: the first one's, and beside it one for each other worker.

Shard 0 is the storage that the settings name, shard K lies in `shard-K` within that directory, or below that
URL. In memory each process has its own.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config.settings import StorageSettings
from storage.encoding import prefix_end
from storage.errors import StorageError
from storage.journal.files import sync_directory
from storage.open import is_remote_database
from storage.place import DATABASE
from storage.records import queue_spec, retained, session

_SHARD: Final = re.compile(r"shard-([1-9][0-9]{0,3})")
_HELD: Final = (queue_spec, session, retained)


def shard_url(url: str, number: int) -> str:
    """Return the URL or path of a shard of the storage at `url`."""
    return url if url == "memory:" else shard_path(url, number)


def shard_path(path: str, number: int) -> str:
    """Return what is to a shard as `path` is to the first one."""
    return f"{path.rstrip('/')}/shard-{number}" if number else path


def shard_settings(settings: StorageSettings, number: int) -> StorageSettings:
    """Return the settings of a shard's storage."""
    return settings.model_copy(
        update={
            "url": shard_url(settings.url, number),
            "journal_directory": shard_path(settings.journal_directory, number),
        }
    )


def is_shard(path: Path) -> bool:
    """Return whether a file in a storage's directory is the storage of another shard."""
    return _SHARD.fullmatch(path.name) is not None


async def shards_of(settings: StorageSettings) -> list[int]:
    """Return the numbers of the shards that a storage has; 0 is the first."""
    if settings.is_remote:
        return [0, *await _in_store(settings, 1)]
    return [0, *await asyncio.get_running_loop().run_in_executor(None, _in_directory, settings.url, 1)]


async def refuse_left_shards(
    settings: StorageSettings, count: int, tell: Callable[[str], None] = lambda doing: None
) -> None:
    """Raise StorageError if shards of the storage hold something that `count` workers would leave alone.

    Costs one listing of a directory, or one look into an object store, where there are no such shards. `tell`
    is given what is waited for.
    """
    if settings.url == "memory:":
        return
    if settings.is_remote:
        left = await _in_store(settings, count)
    else:
        left = await asyncio.get_running_loop().run_in_executor(None, _in_directory, settings.url, count)
    held = [number for number in left if await _holds(shard_settings(settings, number), tell)]
    if held:
        names = ", ".join([shard_url(settings.url, number) for number in held])
        raise StorageError(
            f"opening: {names} {'hold' if len(held) > 1 else 'holds'} queues, sessions or retained messages,"
            f" which workers: {count} would leave there: start with workers: {max(held) + 1} or more, or have"
            " `sluicemq store merge` bring all into one"
        )


async def remove_shard(settings: StorageSettings, number: int) -> None:
    """Remove the directory of a shard that nobody has open, if it is there. Raises OSError."""
    path = Path(shard_path(settings.url, number))
    await asyncio.get_running_loop().run_in_executor(None, _remove, path)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    sync_directory(path.parent)


def _in_directory(url: str, first: int) -> list[int]:
    """Return the numbers, from `first` on, of the shards in a storage's directory."""
    try:
        names = os.listdir(url)
    except OSError:  # there is none yet, or the opening says what is wrong
        return []
    numbers = sorted([int(found[1]) for name in names if (found := _SHARD.fullmatch(name))])
    return [
        number
        for number in numbers
        if number >= first and any(Path(shard_path(url, number), DATABASE, "manifest").glob("*.manifest"))
    ]


async def _in_store(settings: StorageSettings, first: int) -> list[int]:
    """Return the numbers, from `first` on, of the shards below a URL: there is none without those before."""
    number = first
    while await is_remote_database(shard_url(settings.url, number)):
        number += 1
    return list(range(first, number))


async def _holds(settings: StorageSettings, tell: Callable[[str], None]) -> bool:
    """Return whether anything lies there that is not made anew at each start. Raises StorageError."""
    from storage.read_only import open_read_only  # with what reads journals

    store = await open_read_only(settings, tell)
    try:
        for kind in _HELD:
            if await store.scan(kind.prefix(), prefix_end(kind.prefix()), limit=1):
                return True
        return False
    finally:
        await store.close()
