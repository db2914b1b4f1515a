"""A journal that does not lie beside its database: on a local disk, before an object store.

A broker that ends in order hands everything over and gives its journal up, so that the next one may start
anywhere. After a crash what was confirmed last is on that disk alone, and a start that has not got it
refuses, before it fences anybody.
"""

from pathlib import Path

from slatedb.uniffi import DbReader

from config import limits
from storage.errors import StorageError
from storage.journal.opening import ACCEPT_LOSS_FILE, CHANGING_DIRECTORY, JOURNAL_DIRECTORY
from storage.records import holder, journal_state
from storage.slate_errors import answered


async def refuse_without_journal(reader: DbReader, url: str, root: Path) -> None:
    """Raise StorageError if the database has a journal, and that is not in `root`, an absolute path."""
    async with answered("opening", limits.STORE_CALL_TIMEOUT_S):
        state = await reader.get(journal_state.key())
        held_by = await reader.get(holder.key())
    names = (JOURNAL_DIRECTORY, CHANGING_DIRECTORY, ACCEPT_LOSS_FILE)
    if state is None or any((root / name).exists() for name in names):
        return
    who = "" if held_by is None else f", by {holder.decode(held_by).describe()}"
    raise StorageError(
        f"opening: what was confirmed last to {url} is in a journal on the disk of the machine that wrote"
        f" it{who}, and not in {root}. Start there, or bring its storage.journal_directory here."
        f" To start without what is missing, for good, make an empty file {root / ACCEPT_LOSS_FILE}"
        " and start again"
    )
