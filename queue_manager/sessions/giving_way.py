"""Messages that give way: a session is not sent them, as more waits for it than may."""

from __future__ import annotations

from queue_manager.sessions.common import NEWEST, OLDEST, Bounds, Common
from queue_manager.sessions.merging import Merged


class GivingWay:
    """Looked at when the session reads: the oldest give way, or the newest, as the bounds say."""

    __slots__ = ("_kept_newest", "_message_ids")

    def __init__(self, common: Common) -> None:
        self._message_ids = common.context.message_ids
        self._kept_newest: tuple[int, int] | None = None  # so many are taken still; below this ID none beyond

    def keep(self, merged: list[Merged], bounds: Bounds, count: int, body_bytes: int) -> list[Merged]:
        """Keep, of what is read next and is among `count` that wait, what does not give way."""
        if bounds.drop != OLDEST:
            return self._without_newest(merged, bounds, count, body_bytes)
        kept = []
        for each in merged:
            if not bounds.excess(count, body_bytes):
                kept.append(each)
            count -= len(each.subscriptions)
            body_bytes -= len(each.subscriptions) * len(each.message.body)
        return kept

    def _without_newest(
        self, merged: list[Merged], bounds: Bounds, count: int, body_bytes: int
    ) -> list[Merged]:
        """Keep as many of the oldest as may wait."""
        if self._kept_newest is None:
            if bounds.drop != NEWEST or not bounds.excess(count, body_bytes):
                return merged
            mean_bytes = max(1, body_bytes // max(1, count))
            by_bytes = bounds.bytes_max // mean_bytes if bounds.bytes_max else count
            room = min(bounds.messages_max or count, by_bytes)
            self._kept_newest = room, self._message_ids.next_value
        room, end_id = self._kept_newest
        kept = []
        for each in merged:
            if each.message.message_id >= end_id:
                self._kept_newest = None
                kept.append(each)
            elif room:
                room -= 1
                kept.append(each)
        if self._kept_newest is not None:
            self._kept_newest = room, end_id
        return kept
