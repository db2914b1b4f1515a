"""Failed logins make the next ones wait: by address, by user, and by both together."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from broker.access.credentials import LoginRefused
from config import limits

_HALF_LIFE_S: Final = 60.0


_Key = tuple[str | None, str | None]
"""An address with a user, an address (and None), or (None and) a user."""


class _Failures:
    """Of one address, user or pair: how many ever, a count that halves every minute, and when the next
    attempt may be.
    """

    __slots__ = ("count", "counted_at", "free_at", "total")

    def __init__(self, now: float) -> None:
        self.count = 0.0
        self.counted_at = now
        self.free_at = now
        self.total = 0

    def add(self, now: float) -> None:
        self.count = self.count_at(now) + 1
        self.counted_at = now
        self.total += 1

    def take_turn(self, at: float, delay: float) -> None:
        self.free_at = max(self.free_at, at) + delay

    def count_at(self, now: float) -> float:
        return float(self.count * 0.5 ** ((now - self.counted_at) / _HALF_LIFE_S))


class _Slots:
    """Of one address or pair: so many logins are looked at together, and who has to do with that."""

    __slots__ = ("free", "user_count")

    def __init__(self, slot_count: int) -> None:
        self.free = asyncio.Semaphore(slot_count)
        self.user_count = 0

    def enter(self) -> None:
        """Count one more who has to do with it."""
        self.user_count += 1

    def leave(self) -> bool:
        """Count one less; return whether that was the last."""
        self.user_count -= 1
        return not self.user_count


class Throttle:
    """How long a login has to wait, so that nobody tries passwords quickly.

    The first few failures cost nothing; then each doubles the wait. What others do slows nobody who has come
    in from an address before, and failures elsewhere slow a user only at addresses that have used up their
    first few: so strangers cannot lock a user out. Few logins are looked at together (`slot`), so failures
    count before many more were tried. All tables are bounded, the longest untouched entries go first. Times
    are monotonic seconds.
    """

    __slots__ = ("_failures", "_known", "_slots")

    def __init__(self) -> None:
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        self._known: OrderedDict[_Key, None] = OrderedDict()
        self._slots: dict[_Key, _Slots] = {}

    def __len__(self) -> int:
        return len(self._failures)

    @asynccontextmanager
    async def slot(self, host: str, user: str) -> AsyncIterator[None]:
        """Hold a place among the few logins of the address, and of the user from it, that are looked at
        together.

        Raises LoginRefused where it is not their turn within `limits.LOGIN_WAIT_S_MAX`. How many wait is for
        the caller to bound.
        """
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(limits.LOGIN_WAIT_S_MAX):
                    for key in self._of_address(host, user):
                        slots = self._slots_of(key)
                        slots.enter()
                        held.callback(self._leave, key, slots)
                        await held.enter_async_context(slots.free)
            except TimeoutError:
                raise LoginRefused("too many logins at once") from None
            yield

    def _slots_of(self, key: _Key) -> _Slots:
        slots = self._slots.get(key)
        if slots is None:
            is_pair = key[1] is not None
            most = limits.LOGINS_OF_USER_AT_ONCE_MAX if is_pair else limits.LOGINS_AT_ONCE_MAX
            slots = self._slots[key] = _Slots(most)
        return slots

    def _leave(self, key: _Key, slots: _Slots) -> None:
        if slots.leave():
            del self._slots[key]

    def wait_s(self, host: str, user: str, now: float) -> float | None:
        """Return how long this login has to wait before it is looked at; None: too long, it is to be refused.

        The turn is taken: a login beside it waits longer.
        """
        waiting = 0.0
        slowed = []
        for key in self._slowing(host, user):
            failures = self._failures.get(key)
            if failures is None:
                continue
            delay = _delay_s(failures.count_at(now), by_user=key[0] is None)
            if delay:
                waiting = max(waiting, failures.free_at - now)
                slowed.append((failures, delay))
        if waiting > limits.LOGIN_WAIT_S_MAX:
            return None
        for failures, delay in slowed:
            failures.take_turn(now + waiting, delay)
        return waiting

    def failed(self, host: str, user: str, now: float) -> None:
        """Note that the login was refused."""
        keys = self._of_address(host, user)
        for key in keys if len(keys) == 1 else [*keys, *_everywhere(user)]:
            failures = self._failures.get(key)
            if failures is None:
                if len(self._failures) >= limits.LOGIN_FAILURES_KEPT_MAX:
                    self._failures.popitem(last=False)
                failures = self._failures[key] = _Failures(now)
            failures.add(now)
            self._failures.move_to_end(key)

    def succeeded(self, host: str, user: str) -> None:
        """Note that the user came in."""
        key = self._of_address(host, user)[0]
        self._failures.pop(key, None)
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > limits.LOGIN_FAILURES_KEPT_MAX:
            self._known.popitem(last=False)

    def _of_address(self, host: str, user: str) -> list[_Key]:
        """Return the keys of the pair, and of the address, unless the user is known there."""
        network = _network(host)
        pair = (network, _bounded(user))
        return [pair] if pair in self._known else [pair, (network, None)]

    def _slowing(self, host: str, user: str) -> list[_Key]:
        """Return the keys whose failures slow a login."""
        keys = self._of_address(host, user)
        own = self._failures.get(keys[0])
        if len(keys) == 1 or own is None or own.total <= limits.LOGIN_FAILURES_FREE:
            return keys
        return [*keys, *_everywhere(user)]


def _bounded(user: str) -> str:
    """Return as much of a name as any user has; the one that is sent may be longer."""
    return user[: limits.USER_NAME_BYTES_MAX]


def _everywhere(user: str) -> list[_Key]:
    """Return the key of the user at any address; tokens come without one."""
    return [(None, _bounded(user))] if user else []


def _delay_s(count: float, *, by_user: bool) -> float:
    """Return how long another attempt has to wait; a user's own name slows less, as it is known to
    everybody.
    """
    over = count - limits.LOGIN_FAILURES_FREE
    if over <= 0:
        return 0.0
    longest = limits.LOGIN_DELAY_OF_USER_S_MAX if by_user else limits.LOGIN_DELAY_S_MAX
    return float(min(longest, limits.LOGIN_DELAY_S_MIN * 2 ** min(over, 30)))


def _network(host: str) -> str:
    """Return the address, of IPv6 the network that one subscriber has."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
