"""The holder of a database in an object store: one broker, as long as it says so.

There is no lock between machines. So a broker writes a record that says who it is, again every few seconds,
and deletes it when it stops. A start that finds the record waits while it goes on changing. A record that has
stood still for a while is of a broker that is gone; if it is not, opening the database fences it even so.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable

from slatedb.uniffi import DbReader

from config import limits
from storage.batch import WriteOps
from storage.errors import StorageError, StoreUnavailable
from storage.place import close_reader
from storage.records import Holder, holder
from storage.slate_errors import answered


class RemoteHold:
    """Says, from `begin` to `release`, that this process has the database open."""

    __slots__ = ("_holder", "_is_held", "_task", "_write", "interval_s")

    def __init__(self, write: Callable[[WriteOps], Awaitable[None]], lease_ms: int | None = None) -> None:
        """`lease_ms`: those who wait take the database over after so long without a new record."""
        self._write = write
        self._holder = Holder(secrets.randbits(64), 0, os.getpid(), os.uname().nodename, lease_ms)
        self._task: asyncio.Task[None] | None = None
        self._is_held = False
        self.interval_s: float = limits.HOLD_BEAT_INTERVAL_S

    async def begin(self) -> None:
        """Write the record, and from now on again and again. Raises StorageError."""
        await self._beat()
        self._is_held = True
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    def stop_beating(self) -> None:
        """Write nothing more by itself."""
        if self._task is not None:
            self._task.cancel()

    async def release(self) -> None:
        """Let others in at once. Raises StorageError."""
        if not self._is_held:
            return
        self._is_held = False
        self.stop_beating()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        ops = WriteOps()
        ops.delete(holder.key())
        await self._write(ops)

    def next_row(self) -> tuple[bytes, bytes]:
        """Return the record that says it once more."""
        self._holder = self._holder._replace(beat=self._holder.beat + 1)
        return holder.key(), holder.encode(*self._holder)

    async def _beat(self) -> None:
        ops = WriteOps()
        ops.put(*self.next_row())
        await self._write(ops)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self.interval_s)
            try:
                await self._beat()
            except StoreUnavailable:
                continue  # commits tell what is wrong; without any there is nobody to tell
            except StorageError:
                return


async def wait_for_holder(
    reader: DbReader,
    url: str,
    tell: Callable[[str], None],
    open_again: Callable[[], Awaitable[DbReader | None]],
    look_ms: int = limits.HOLD_LOOK_INTERVAL_MS,
) -> DbReader:
    """Return once no broker has the database of `reader` open, as far as that can be seen.

    `tell` is given what is waited for. A reader that is cut off from the store sees the record stand still:
    so before that is believed another one is opened, by `open_again`. Gives the reader that is open in the
    end; none is if this raises StorageError, or is cancelled.
    """
    loop = asyncio.get_running_loop()
    last: Holder | None = None
    changed = 0.0
    is_fresh = False
    try:
        while (found := await _read(reader)) is not None and not _is_dead(found):
            still_s = loop.time() - changed
            rest_s = look_ms / 1000
            timeout_s = limits.HOLD_TIMEOUT_S if found.lease_ms is None else found.lease_ms / 1000
            if found != last:
                last, changed, is_fresh = found, loop.time(), False
            elif is_fresh and still_s >= timeout_s:
                break
            elif is_fresh:
                rest_s = min(rest_s, timeout_s - still_s)
            elif still_s >= limits.HOLD_FRESH_LOOK_SHARE * timeout_s:
                again = await _opened_again(open_again)
                if again is not None:
                    await close_reader(reader)
                    reader, is_fresh = again, True
                    continue
                changed = loop.time()  # it cannot be seen whether the record stands still
            tell(f"waiting for {found.describe()}, which has {url} open, to stop or fall silent")
            await asyncio.sleep(rest_s)
    except BaseException:
        await close_reader(reader)
        raise
    return reader


async def _opened_again(open_again: Callable[[], Awaitable[DbReader | None]]) -> DbReader | None:
    """Open another reader; None where the store does not answer."""
    try:
        return await open_again()
    except StoreUnavailable:
        return None


def _is_dead(found: Holder) -> bool:
    """Return whether the process ran on this machine and does not any more.

    One of this process's own number did: in a container that was started again it is the same each time.
    """
    if found.host != os.uname().nodename:
        return False
    if found.pid == os.getpid():
        return True
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


async def _read(reader: DbReader) -> Holder | None:
    async with answered("opening", limits.STORE_CALL_TIMEOUT_S):
        value = await reader.get(holder.key())
    return None if value is None else holder.decode(value)
