"""Failed logins make the next ones wait: by address, by user, and by both together."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from config import limits

_HALF_LIFE_S: Final = 60.0


class _Failures:
    """Of one address, user or pair: a count that halves every minute, and when the next attempt may be."""

    __slots__ = ("count", "counted_at", "free_at")

    def __init__(self, now: float) -> None:
        self.count = 0.0
        self.counted_at = now
        self.free_at = now

    def add(self, now: float) -> None:
        self.count = self.count_at(now) + 1
        self.counted_at = now

    def take_turn(self, at: float, delay: float) -> None:
        self.free_at = max(self.free_at, at) + delay

    def count_at(self, now: float) -> float:
        return float(self.count * 0.5 ** ((now - self.counted_at) / _HALF_LIFE_S))


class Throttle:
    """How long a login has to wait, so that nobody tries passwords quickly.

    The first few failures cost nothing; then each doubles the wait. Who has come in from an address before is
    slowed only by failures of that user from that address: others cannot lock them out. Both tables are
    bounded, the longest untouched entries go first. Times are monotonic seconds.
    """

    __slots__ = ("_failures", "_known")

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def wait_s(self, host: str, user: str, now: float) -> float | None:
        """How long this login has to wait before it is looked at; None: too long, it is to be refused.

        The turn is taken: a login beside it waits longer.
        """
        waiting = 0.0
        slowed = []
        for key in self._keys(host, user):
            failures = self._failures.get(key)
            if failures is None:
                continue
            delay = _delay_s(failures.count_at(now), by_user=not key[0])
            if delay:
                waiting = max(waiting, failures.free_at - now)
                slowed.append((failures, delay))
        if waiting > limits.LOGIN_WAIT_S_MAX:
            return None
        for failures, delay in slowed:
            failures.take_turn(now + waiting, delay)
        return waiting

    def failed(self, host: str, user: str, now: float) -> None:
        """The login was refused."""
        for key in self._keys(host, user):
            failures = self._failures.get(key)
            if failures is None:
                if len(self._failures) >= limits.LOGIN_FAILURES_KEPT_MAX:
                    self._failures.popitem(last=False)
                failures = self._failures[key] = _Failures(now)
            failures.add(now)
            self._failures.move_to_end(key)

    def succeeded(self, host: str, user: str) -> None:
        """The user came in."""
        key = (_network(host), user)
        self._failures.pop(key, None)
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > limits.LOGIN_FAILURES_KEPT_MAX:
            self._known.popitem(last=False)

    def _keys(self, host: str, user: str) -> list[tuple[str, str]]:
        network = _network(host)
        pair = (network, user)
        return [pair] if pair in self._known else [pair, (network, ""), ("", user)]


def _delay_s(count: float, *, by_user: bool) -> float:
    """What another attempt has to wait for; a user's own name slows less, it is known to everybody."""
    over = count - limits.LOGIN_FAILURES_FREE
    if over <= 0:
        return 0.0
    longest = limits.LOGIN_DELAY_OF_USER_S_MAX if by_user else limits.LOGIN_DELAY_S_MAX
    return float(min(longest, limits.LOGIN_DELAY_S_MIN * 2 ** min(over, 30)))


def _network(host: str) -> str:
    """The address, of IPv6 the network that one subscriber has."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
