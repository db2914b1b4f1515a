"""Tasks in the background that end together, and those who wait for what they do."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from storage.errors import StorageError, StoreFull, StoreUnavailable

Work = Coroutine[Any, Any, None]


class Background:
    """Runs tasks until one of them fails, or until its end.

    `on_failure` is called with what a task failed with, which is final: all tasks have been ended then, and
    those who wait for progress are told.
    """

    def __init__(self, on_failure: Callable[[StorageError], None]) -> None:
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: StorageError | None = None
        self._progress = asyncio.Event()  # set, and replaced, at each progress

    @property
    def is_running(self) -> bool:
        """Whether there are tasks, and none has failed."""
        return bool(self._tasks) and self._failure is None

    def begin(self, *works: Work) -> None:
        """Run these, too."""
        for work in works:
            self._tasks.append(self._loop.create_task(self._run(work)))

    async def progress(self) -> None:
        """Wait for the next progress. Raises StorageError when there will be none."""
        if self._failure is not None:
            raise self._failure
        await self._progress.wait()
        if self._failure is not None:
            raise self._failure

    def tell_progress(self) -> None:
        """Wake those who wait for progress."""
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def fail(self, failure: StorageError) -> None:
        """End all tasks; those who wait are told."""
        if self._failure is None:
            self._failure = failure
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self.tell_progress()

    async def end(self) -> None:
        """End all tasks, and wait until they have."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, work: Work) -> None:
        try:
            await work
        except (StoreFull, StoreUnavailable) as error:
            # not to be tried again: what SlateDB has of the batch is not known
            self._give_up(StorageError(error.reason))
        except StorageError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(StorageError(f"handing over the journal: {type(error).__name__}: {error}"))

    def _give_up(self, failure: StorageError) -> None:
        self.fail(failure)
        self._on_failure(failure)
