"""Wait in tests: for something to be so, for turns of the loop, and for time where a test is about it."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 20.0  # waited out only by a test that fails
INTERVAL_S = 0.01


def until(holds: Callable[[], T], timeout_s: float = PATIENCE_S, *, told: Callable[[], object] = str) -> T:
    """Return what `holds` gives once that is true; fail with what `told` gives if it does not become so."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not so within {timeout_s} s: {told()}")
        time.sleep(INTERVAL_S)
    return found


async def until_so(
    holds: Callable[[], Any],
    timeout_s: float = PATIENCE_S,
    *,
    told: Callable[[], object] = str,
) -> Any:
    """Do the same as `until` while the loop goes on; `holds` may be a coroutine function."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not so within {timeout_s} s: {told()}")
        await asyncio.sleep(INTERVAL_S / 10)


async def turns(count: int = 1) -> None:
    """Let the loop do everything that is ready, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)


def hold_up(seconds: float) -> None:
    """Hold the calling thread up, as a slow disk or a slow peer does."""
    time.sleep(seconds)


async def hold_up_task(seconds: float) -> None:
    """Hold the calling task up, as a slow disk or a slow peer does; the loop goes on."""
    await asyncio.sleep(seconds)


def pass_time(seconds: float) -> None:
    """Let real time pass: an expiry, a keep alive, the pace of a client."""
    time.sleep(seconds)


class LoopClock:
    """The time of the running loop, moved on at will: for timers, where no sockets or threads take part."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        real_time = loop.time
        self._ahead_s = 0.0
        loop.time = lambda: real_time() + self._ahead_s  # type: ignore[method-assign]

    def jump(self, seconds: float) -> None:
        """Move on at once, as if the loop had been held up for so long."""
        self._ahead_s += seconds

    async def advance(self, seconds: float, step_s: float = INTERVAL_S) -> None:
        """Move on in steps, with turns of the loop behind each, so that timers come in their order."""
        for _ in range(round(seconds / step_s)):
            self._ahead_s += step_s
            await turns(3)
