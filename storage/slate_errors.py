"""SlateDB's errors in the words of `storage.errors`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slatedb.uniffi import CloseReason, Error
from slatedb.uniffi._slatedb_uniffi.slatedb import InternalError

from storage.errors import StorageError, StoreFenced, StoreFull, StoreUnavailable

SLATE_ERRORS = (Error, InternalError)
"""The exceptions of the binding: the library's errors, and its panics."""

_NO_ROOM = ("no space left", "os error 28", "disk quota exceeded", "quotaexceeded")


def translate(error: Exception, doing: str) -> StorageError:
    """Return the StorageError for `error`, which came while `doing` ("writing", ...). Raise it `from
    error`.
    """
    text = str(getattr(error, "message", "") or error)
    reason = f"{doing}: {text}"
    if isinstance(error, Error.Closed):
        if error.reason == CloseReason.FENCED:
            return StoreFenced(f"{doing}: another process has opened this database")
        if _names_full_disk(text):
            return StoreFull(reason)
        return StorageError(f"{doing}: the database is closed ({error.reason.name.lower()}): {text}")
    if _names_full_disk(text):
        return StoreFull(reason)
    if isinstance(error, Error.Unavailable):
        return StoreUnavailable(reason)
    return StorageError(reason)


@asynccontextmanager
async def answered(doing: str, timeout_s: float) -> AsyncIterator[None]:
    """Raise StorageError for errors of SlateDB, and StoreUnavailable if it does not answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"{doing}: no answer in {timeout_s} s") from None
    except SLATE_ERRORS as error:
        raise translate(error, doing) from error


def _names_full_disk(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _NO_ROOM)
