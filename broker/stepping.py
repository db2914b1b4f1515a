"""Going through much in steps, between which everybody else has their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from config import limits

T = TypeVar("T")


async def in_steps(
    items: Sequence[T], size: int = limits.LISTED_QUEUES_PER_STEP
) -> AsyncIterator[Sequence[T]]:
    """Yield the items in parts of at most `size`."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
        await asyncio.sleep(0)


async def one_by_one(items: Sequence[T], size: int = limits.LISTED_QUEUES_PER_STEP) -> AsyncIterator[T]:
    """Yield each of the items; others have their turn after every `size` of them."""
    async for part in in_steps(items, size):
        for item in part:
            yield item
