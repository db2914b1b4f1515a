"""Going through many messages in steps, at a bearable rate."""

from __future__ import annotations

import asyncio
import math

from broker.engine.shard import Shard
from broker.engine.shard_ending import resolve
from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.moving.redrive import Drain


class Pace:
    """How many messages may go now, at `per_second` (None: as many as a step takes)."""

    def __init__(self, shard: Shard, per_second: float | None) -> None:
        if per_second is not None and not 0 < per_second < math.inf:
            raise InvalidArgument(f"a rate is above 0 messages per second, not {per_second}")
        self._clock = shard.clock
        self._ending = shard.ending
        self._per_second = per_second
        self._begin_s = shard.clock.monotonic()
        self._gone = 0

    async def next_step(self) -> int:
        """Wait until at least one may go; give how many. Raises BrokerStopped."""
        if self._per_second is None:
            await asyncio.sleep(0)
            self._ending.check()
            return limits.REDRIVE_STEP_MESSAGES_MAX
        while True:
            elapsed_s = self._clock.monotonic() - self._begin_s
            count = 1 + int(elapsed_s * self._per_second) - self._gone
            if count > 0:
                return min(count, limits.REDRIVE_STEP_MESSAGES_MAX)
            await self._ending.sleep(max(0.001, self._gone / self._per_second - elapsed_s))

    def went(self, count: int) -> None:
        """Count so many that went."""
        self._gone += count


def bounded(limit: int | None, most: int) -> int:
    """Return how many messages a call may touch; raises InvalidArgument."""
    if limit is not None and limit < 0:
        raise InvalidArgument(f"a limit is at least 0, not {limit}")
    return most if limit is None else min(limit, most)


def note(shard: Shard, pace: Pace, count: int) -> int:
    """Count so many: have them delivered and written."""
    pace.went(count)
    shard.follow_up()
    return count


async def loaded(shard: Shard, drain: Drain) -> None:
    """Wait for what is being read back."""
    if not shard.wakeups.is_running:
        await shard.load_once()
        return
    loaded = shard.ending.future()
    drain.consumer.group.when_loaded(lambda now_ms: resolve(loaded))
    shard.wake()
    await loaded
