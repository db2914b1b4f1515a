"""Work that is due at once, or at a time."""

import asyncio

from storage.journal.due import Due
from tests.waiting import LoopClock


async def wait_s(due: Due) -> float:
    """How long it took until the work was due."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    async with asyncio.timeout(20):
        await due.wait()
    return loop.time() - begun_s


async def is_due_within(due: Due, seconds: float) -> bool:
    """Whether the work is due once so much time has passed, at once."""
    clock = LoopClock()
    waiting = asyncio.ensure_future(due.wait())
    await clock.advance(seconds)
    is_due = waiting.done()
    waiting.cancel()
    return is_due


async def test_work_is_due_at_the_first_time_that_was_told():
    due = Due()
    due.after(0.05)
    due.after(3_600)
    assert await wait_s(due) >= 0.045
    due.after(0.01)  # another time, then
    assert await wait_s(due) >= 0.005


async def test_what_is_due_at_once_forgets_the_time_that_was_told_before():
    due = Due()
    due.after(0.02)
    due.now()
    await due.wait()
    assert not await is_due_within(due, 0.1)


async def test_cancelled_work_is_not_due():
    due = Due()
    due.after(0.01)
    due.cancel()
    assert not await is_due_within(due, 0.1)
