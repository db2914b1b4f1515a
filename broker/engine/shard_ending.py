"""The end of a shard, for those who wait for something that only a living one brings about."""

from __future__ import annotations

import asyncio

from queue_manager.errors import QueueNotFound
from storage.errors import StorageError


class BrokerStopped(StorageError):
    """The broker has stopped, or its store has failed for good (then that is the cause): nothing more is read
    or written. Whether a call that was waiting took effect is unknown.
    """


class WorkerLost(QueueNotFound):
    """The worker that has a queue is gone, and is started again: what was asked of it may have been done or
    not.
    """


class Ending:
    """Whether the end has come, and the futures that it settles."""

    __slots__ = ("_cause", "_reason", "_waiting")

    def __init__(self) -> None:
        self._reason = ""
        self._cause: StorageError | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def end(self, failure: StorageError | None = None) -> None:
        """Have all who wait, and who ask from now on, get BrokerStopped. Only the first call counts."""
        if self._reason:
            return
        self._reason = "the broker has stopped"
        if failure is not None:
            self._reason = f"the broker's store failed: {failure.reason}"
        self._cause = failure
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(self._error())

    def check(self) -> None:
        """Raise BrokerStopped once the end has come."""
        if self._reason:
            raise self._error()

    def future(self) -> asyncio.Future[None]:
        """Return something to wait for that raises BrokerStopped if the end comes first, or has come."""
        self.check()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    async def sleep(self, seconds: float) -> None:
        """Wait so long; raises BrokerStopped as soon as the end comes."""
        try:
            await asyncio.wait_for(self.future(), seconds)
        except TimeoutError:
            pass

    def _error(self) -> BrokerStopped:
        error = BrokerStopped(self._reason)
        error.__cause__ = self._cause
        return error


def resolve(future: asyncio.Future[None]) -> None:
    """Resolve a future, unless nobody waits any more."""
    if not future.done():
        future.set_result(None)
