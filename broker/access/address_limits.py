"""How many connections one address may have, and how quickly it may make them."""

from __future__ import annotations

from collections import OrderedDict

from config import limits
from config.access_settings import AccessSettings


class Addresses:
    """The connections of each address, and who connected lately. Times are monotonic seconds.

    Who may connect n times a second may make n connections at once, after a second without any.
    """

    __slots__ = ("_counts", "_settings", "_tokens")

    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._counts: dict[str, int] = {}
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def follow(self, settings: AccessSettings) -> None:
        """Go by these settings from now on; who is in stays."""
        self._settings = settings

    def enter(self, host: str, now: float) -> str:
        """Count a connection from there; returns why it may not be, "" if it may (then `leave` has to
        follow).
        """
        settings = self._settings
        if settings.connects_per_second and not self._take_token(host, settings.connects_per_second, now):
            return f"more than {settings.connects_per_second} connections a second from one address"
        count = self._counts.get(host, 0)
        if settings.connections_per_address and count >= settings.connections_per_address:
            return f"more than {settings.connections_per_address} connections from one address"
        self._counts[host] = count + 1
        return ""

    def leave(self, host: str) -> None:
        """Count a connection from there as gone."""
        count = self._counts.get(host, 0) - 1
        if count > 0:
            self._counts[host] = count
        else:
            self._counts.pop(host, None)

    def _take_token(self, host: str, per_second: int, now: float) -> bool:
        left, counted_at = self._tokens.pop(host, (float(per_second), now))
        left = min(float(per_second), left + (now - counted_at) * per_second)
        if len(self._tokens) >= limits.ADDRESSES_KEPT_MAX:
            self._tokens.popitem(last=False)
        self._tokens[host] = (left - 1 if left >= 1 else left, now)
        return left >= 1
