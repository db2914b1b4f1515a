"""The lease of a broker on a database in an object store: for how long it may deliver and confirm.

The holder's record is written again every quarter of the lease. A broker that waits takes the database over
when it has seen the record stand still for a whole lease, which is later than the holder's own lease ends:
that one counts, by the clock of its own process, from before the record was written.

What is written fences: another broker that opens the database makes the holder's next write fail. So a
holder whose lease has ended may have it again with a write that succeeds; but only while a fence cannot have
been collected as garbage (`RENEWABLE_LEASES`), beyond which a late write might find its place free.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from config import limits
from storage.batch import WriteOps
from storage.errors import StorageError, StoreUnavailable
from storage.lease_clock import lease_clock_s
from storage.remote_hold import RemoteHold

RENEWABLE_LEASES: Final = limits.LEASES_WITHIN_GARBAGE_AGE


class StoreLease(RemoteHold):
    """Kept from `begin` on by itself; from `keep_by_commits` on by who commits, with `next_row`."""

    __slots__ = (
        "_begun", "_clock_s", "_is_lost", "_keeper_end", "_row_begun", "_until", "_url", "lease_s",
    )  # fmt: skip

    def __init__(
        self,
        write: Callable[[WriteOps], Awaitable[None]],
        url: str,
        lease_ms: int,
        clock_s: Callable[[], float] = lease_clock_s,
        until: Callable[[], float] | None = None,
    ) -> None:
        """`until`: the end of the lease of the node that the process belongs to, if that ends earlier."""
        super().__init__(write, lease_ms)
        self._until = until or (lambda: math.inf)
        self.lease_s = lease_ms / 1000
        self.interval_s = self.lease_s / limits.LEASE_BEATS
        self._url = url
        self._clock_s = clock_s
        self._begun = self._row_begun = clock_s()
        self._keeper_end: asyncio.TimerHandle | None = None
        self._is_lost = False

    async def begin(self) -> None:
        """Begin the lease. Raises StorageError."""
        await super().begin()
        # a start that hangs does not keep others out for ever
        self._keeper_end = asyncio.get_running_loop().call_later(limits.LEASE_START_S_MAX, self.stop_beating)

    def keep_by_commits(self) -> None:
        """Leave it to commits to keep the lease: it is to show that those get on."""
        self.stop_beating()

    def stop_beating(self) -> None:
        """Write nothing more by itself."""
        if self._keeper_end is not None:
            self._keeper_end.cancel()
        super().stop_beating()

    def next_row(self) -> tuple[bytes, bytes]:
        """Return the record that renews the lease as from now; `renewed` says that it is durable."""
        self._row_begun = self._clock_s()
        return super().next_row()

    def renewed(self) -> None:
        """Note that the last row is durable. Raises StorageError where that proves nothing any more."""
        self.check_renewable()
        self._begun = self._row_begun

    def due_s(self) -> float:
        """Return in how long the next row should be written; 0: now."""
        return max(0.0, self._row_begun + self.interval_s - self._clock_s())

    def is_valid(self) -> bool:
        """Return whether the lease lasts."""
        return self._clock_s() < min(self._begun + self.lease_s, self._until())

    @property
    def begun_s(self) -> float:
        """When the lease was last begun, by the clock of leases: what was committed shows that."""
        return self._begun

    def check_renewable(self) -> None:
        """Raise StorageError, for good, if the lease ended so long ago that it cannot be had again."""
        silent_s = self._clock_s() - self._begun
        if self._is_lost or silent_s >= RENEWABLE_LEASES * self.lease_s:
            self._is_lost = True
            raise StorageError(
                f"{self._ended(silent_s)}, too long to be renewed: another broker may have the database"
            )

    @property
    def trouble(self) -> StoreUnavailable | None:
        """The end of the lease, if it has ended."""
        now = self._clock_s()
        if now >= self._begun + self.lease_s:
            ended = self._ended(now - self._begun)
        elif now >= self._until():
            ended = f"the lease of this node was not renewed and ended {now - self._until():.1f} s ago"
        else:
            return None
        return StoreUnavailable(f"{ended}; until it is, nothing is delivered or confirmed")

    async def release(self) -> None:
        """Let others in at once, unless they may be in already. Raises StorageError."""
        self.stop_beating()
        if not self._is_lost:
            await super().release()

    async def _beat(self) -> None:
        await super()._beat()
        self.renewed()

    def _ended(self, silent_s: float) -> str:
        return (
            f"the lease of {self.lease_s:g} s on {self._url} was not renewed and ended"
            f" {silent_s - self.lease_s:.1f} s ago"
        )
