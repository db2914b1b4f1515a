"""So many of something a second, with what was not used kept for one second."""

from __future__ import annotations


class Rate:
    """A bucket that fills with `per_s` a second and holds as many."""

    __slots__ = ("_left", "_per_s", "_seen_at")

    def __init__(self, per_s: int, now: float) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._seen_at = now

    def take(self, count: int, now: float) -> bool:
        """Return whether so many are allowed now; if not, none are taken."""
        self._left = min(self._per_s, self._left + (now - self._seen_at) * self._per_s)
        self._seen_at = now
        if count > self._left:
            return False
        self._left -= count
        return True
