"""A loop in a thread of its own, for reads whose answers may be large.

SlateDB's binding works in whoever polls: an answer of 100 MB is copied there, twice, which takes longer than
the event loop of a broker may be held up.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ReadThread:
    """Runs coroutines, one thread for all; it is started with the first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, reading: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine, and return or raise what it does. Cancelling this cancels it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="store-reads", daemon=True
            )
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(reading, self._loop))

    async def stop(self) -> None:
        """Cancel what is running, and end the thread."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            self._loop = self._thread = None
            asyncio.run_coroutine_threadsafe(_end(), loop)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _end() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    asyncio.get_running_loop().stop()
