"""The lease of a member: a record of its own in the store, which it writes again every quarter of the lease.

The lease counts, by the member's clock, from before the write that renewed it, whose outcome is known. Others
see, by their clocks, for how long the record has stood still. Whoever finds that it has for longer than a
lease *ends* it: it writes, by If-Match on what stood still, that the lease has ended. So either the member
has renewed it before, and goes on, or it never can again; and what it had is free, since its lease has run
out. Clocks need not agree, only run at about the same rate (`limits.LEASE_DRIFT_PERCENT`).
"""

from __future__ import annotations

import json
from typing import Final

from config import limits
from storage.object_records import Stored, Tag

_NODES: Final = "nodes/"


def lease_key(member: str) -> str:
    """Return where the record of a member lies."""
    return _NODES + member


def ended_by(member: str) -> bytes:
    """Return what `member` writes to end another's lease."""
    return json.dumps({"ended_by": member}).encode()


def _is_ended(stored: Stored) -> bool:
    return b'"ended_by"' in stored.content


class OwnLease:
    """A member's own lease. `end_ms`: deliver and confirm only before. `is_lost`: it has ended for good."""

    __slots__ = ("_beat", "_begun_ms", "_last_begun_ms", "_length_ms", "_tag", "end_ms", "is_lost")

    def __init__(self, length_ms: int) -> None:
        self.end_ms = 0
        self.is_lost = False
        self._length_ms = length_ms
        self._tag: Tag | None = None
        self._beat = 0
        self._begun_ms: dict[int, int] = {}
        """When each write was begun that may be in the store, or may come to be."""
        self._last_begun_ms: int | None = None

    def due_ms(self) -> int:
        """Return when it is to be renewed."""
        if self._last_begun_ms is None:
            return 0
        return self._last_begun_ms + self._length_ms // limits.LEASE_BEATS

    def next_write(self, now_ms: int) -> tuple[bytes, Tag | None]:
        """Begin to renew it; gives the record, and what it replaces."""
        self._beat += 1
        useful_ms = now_ms - self._length_ms  # what was begun earlier renews nothing any more
        self._begun_ms = {beat: begun for beat, begun in self._begun_ms.items() if begun > useful_ms}
        self._begun_ms[self._beat] = self._last_begun_ms = now_ms
        return json.dumps({"beat": self._beat}).encode(), self._tag

    def written(self, tag: Tag) -> None:
        """Note that the last write is in the store."""
        self._renewed(self._beat, tag)

    def found(self, stored: Stored | None) -> None:
        """Note what is in the store, behind a write of which that is not known."""
        if stored is None:
            self.is_lost = self._tag is not None
            self._last_begun_ms = None
        elif _is_ended(stored):
            self.is_lost = True
        else:
            self._renewed(int(json.loads(stored.content)["beat"]), stored.tag)
        if self.is_lost:
            self.end_ms = 0

    def _renewed(self, beat: int, tag: Tag) -> None:
        self._tag = tag
        if beat < self._beat:
            self._last_begun_ms = None  # the last write came to nothing, as far as is known: the next at once
        if beat in self._begun_ms:
            self.end_ms = self._begun_ms[beat] + self._length_ms


class SeenLease:
    """The lease of another member, as it is seen here."""

    __slots__ = ("_length_ms", "_seen_ms", "_still_since_ms", "is_ended", "look_ms", "tag")

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._seen_ms: int | None = None
        self._still_since_ms = 0
        self.tag: Tag | None = None
        self.look_ms = 0
        """When to look again."""
        self.is_ended = False

    def found(self, stored: Stored | None, now_ms: int) -> None:
        """Note what is in the store now."""
        tag = None if stored is None else stored.tag
        # who did not see it for long may be the one that was cut off, as the member may have been
        is_gap = self._seen_ms is None or now_ms - self._seen_ms > self._length_ms // 2
        if is_gap or tag != self.tag:
            self._still_since_ms = now_ms
        self.tag, self._seen_ms = tag, now_ms
        self.is_ended |= stored is not None and _is_ended(stored)

    @property
    def is_seen(self) -> bool:
        """Return whether it was looked at."""
        return self._seen_ms is not None

    def is_suspect(self, now_ms: int) -> bool:
        """Return whether it should have been renewed long ago."""
        return self._seen_ms is not None and now_ms - self._still_since_ms > self._length_ms // 2

    def is_over(self, now_ms: int) -> bool:
        """Return whether it may be ended."""
        is_fresh = self._seen_ms is not None and now_ms - self._seen_ms <= self._length_ms // 2
        return is_fresh and now_ms >= self.over_ms()

    def look_interval_ms(self, now_ms: int) -> int:
        """Return how soon to look again."""
        looks = limits.NODE_HASTY_LOOKS if self.is_suspect(now_ms) else limits.LEASE_LOOKS
        return self._length_ms // looks

    def over_ms(self) -> int:
        """Return when it may be ended, if it stands still."""
        return self._still_since_ms + self._length_ms * (100 + limits.LEASE_DRIFT_PERCENT) // 100
