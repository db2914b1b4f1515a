"""Appending commits: within the call while the disk is quick, else in a thread with one hop back."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Final

from config import limits
from storage.errors import StorageError
from storage.journal.files import JournalFiles
from storage.journal.frames import EndRecord, FrameBody

_SYNCS_AVERAGED: Final = 8


class Append:
    """One commit on its way; `done` has its result, and may be waited for by nobody."""

    __slots__ = ("body", "done", "rows")

    def __init__(self, body: FrameBody, rows: dict[bytes, bytes | None], done: asyncio.Future[None]) -> None:
        self.body = body
        self.rows = rows
        self.done = done


class Appender:
    """Hands commits to the files, in order, and each to `on_durable` once it is on disk.

    That is called in the event loop whether or not anybody still waits: what is on disk counts.
    """

    def __init__(
        self,
        files: JournalFiles,
        on_durable: Callable[[EndRecord, FrameBody, dict[bytes, bytes | None]], None],
    ) -> None:
        self._files = files
        self._on_durable = on_durable
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Append | Callable[[], None] | None] = queue.SimpleQueue()
        self._sync_s = limits.JOURNAL_INLINE_SYNC_US_MAX / 1e6  # not known yet: not below
        self.pending_count = 0
        """Commits the thread has not reported back."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append_now(self, body: FrameBody, rows: dict[bytes, bytes | None]) -> bool:
        """Append within this call if that is quick and nothing is before it; whether it was done.

        Raises StorageError.
        """
        if (
            self.pending_count
            or self._sync_s >= limits.JOURNAL_INLINE_SYNC_US_MAX / 1e6
            or body.size > limits.JOURNAL_INLINE_BYTES_MAX
            or not self._files.fits(body.size)
        ):
            return False
        end = self._files.append(body)
        self._learn(self._files.sync_s)
        self._on_durable(end, body, rows)
        return True

    def append(self, body: FrameBody, rows: dict[bytes, bytes | None]) -> Append:
        """Append behind what is before it."""
        job = Append(body, rows, self._loop.create_future())
        self.pending_count += 1
        self._jobs.put(job)
        return job

    def after(self, call: Callable[[], None]) -> None:
        """Have the thread make a call once it has appended what it was given."""
        self._jobs.put(call)

    async def stop(self) -> bool:
        """Have the thread end after what it was given. Must be called; whether it has ended.

        If the disk holds it up it has not: then the files are still in its hands.
        """
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join, limits.STORE_CLOSE_TIMEOUT_S)
        return not self._thread.is_alive()

    def _learn(self, sync_s: float) -> None:
        self._sync_s += (sync_s - self._sync_s) / _SYNCS_AVERAGED

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not isinstance(job, Append):
                job()
                continue
            end: EndRecord | None = None
            failure: StorageError | None = None
            try:
                end = self._files.append(job.body)
            except StorageError as error:
                failure = error
            except Exception as error:  # a bug; without an answer the commit would wait for ever
                failure = StorageError(f"writing the journal: {type(error).__name__}: {error}")
            try:
                self._loop.call_soon_threadsafe(self._report, job, end, failure, self._files.sync_s)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told

    def _report(
        self, job: Append, end: EndRecord | None, failure: StorageError | None, sync_s: float
    ) -> None:
        self.pending_count -= 1
        if end is not None:
            if job.body.size <= limits.JOURNAL_INLINE_BYTES_MAX:
                self._learn(sync_s)
            self._on_durable(end, job.body, job.rows)
            if not job.done.done():
                job.done.set_result(None)
        elif failure is not None and not job.done.done():
            job.done.set_exception(failure)
            job.done.exception()  # seen, even if who waited has gone
