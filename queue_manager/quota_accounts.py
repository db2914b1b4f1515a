"""Quotas: what a virtual host and a user may have, and how much of it they have.

Something that is made counts for its virtual host and for the user who made it, as long as it is there; None
stands for no user: the configuration, an operator, the broker itself. What flows is bounded by the second: it
is counted once it has come or gone, and who is over a quota has to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from config import limits
from queue_manager.errors import LimitReached

CONNECTIONS: Final = "connections"
CHANNELS: Final = "channels"
CONSUMERS: Final = "consumers"
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
BINDINGS: Final = "bindings"
SUBSCRIPTIONS: Final = "subscriptions"
SESSIONS: Final = "sessions"
RETAINED: Final = "retained"
BYTES: Final = "bytes"
MESSAGES_IN: Final = "messages_in"
BYTES_IN: Final = "bytes_in"
MESSAGES_OUT: Final = "messages_out"
BYTES_OUT: Final = "bytes_out"

RETAINED_BYTES: Final = "retained bytes"  # counted, and bounded as a part of BYTES
FLOWS: Final = frozenset((MESSAGES_IN, BYTES_IN, MESSAGES_OUT, BYTES_OUT))
_ALIKE: Final = frozenset((EXCHANGES, BINDINGS))  # all shards of a broker have the same
_NOTHING: Final[Mapping[str, int]] = {}

AccountKey = tuple[bool, str]
"""Which account: whether it is a user's, and its name."""

_NOUNS: Final = {
    CONNECTIONS: "connection",
    CHANNELS: "channel",
    CONSUMERS: "consumer",
    QUEUES: "queue",
    EXCHANGES: "exchange",
    BINDINGS: "binding",
    SUBSCRIPTIONS: "subscription",
    SESSIONS: "session",
    RETAINED: "retained message",
    BYTES: "byte",
}
_RATES: Final = {
    MESSAGES_IN: "publishes more than {} messages a second",
    BYTES_IN: "sends more than {} bytes a second",
    MESSAGES_OUT: "is sent more than {} messages a second",
    BYTES_OUT: "is sent more than {} bytes a second",
}
SHARES_OF_USERS: Final[Mapping[str, int]] = {
    QUEUES: int(limits.QUEUES_MAX * limits.SHARE_OF_ONE_USER),
    EXCHANGES: int(limits.EXCHANGES_MAX * limits.SHARE_OF_ONE_USER),
    BINDINGS: int(limits.BINDINGS_MAX * limits.SHARE_OF_ONE_USER),
    SESSIONS: int(limits.MQTT_SESSIONS_MAX * limits.SHARE_OF_ONE_USER),
    RETAINED: int(limits.RETAINED_MESSAGES_MAX * limits.SHARE_OF_ONE_USER),
    RETAINED_BYTES: int(limits.RETAINED_BYTES_MAX * limits.SHARE_OF_ONE_USER),
}
"""What one user may have where no quota says so: others are to find room, too."""


def counted_user(name: str) -> str | None:
    """Return the user for whom a session counts; None for those of the broker itself, whose names have a
    control character.
    """
    return name if name.isprintable() else None


class Meter:
    """So many of something a second, with what was not used kept for one second. It may run into debt.

    `spent` counts what was taken since it was set to 0.
    """

    __slots__ = ("_left", "_most", "_seen_at", "per_s", "spent")

    def __init__(self, per_s: int, now: float) -> None:
        self.per_s = self._most = per_s
        self.spent = 0
        self._left = float(per_s)
        self._seen_at = now

    def spend(self, count: int, now: float) -> float:
        """Take so many; return after how many seconds the debt will have been paid, 0 if there is none."""
        self.spent += count
        left = min(self.per_s, self._left + (now - self._seen_at) * self.per_s) - count
        self._seen_at = now
        self._left = left
        return -left / self.per_s if left < 0 else 0.0

    def leave(self, elsewhere: int, shards: int) -> None:
        """Leave to other shards what they took in the last second, but for an equal share."""
        self.per_s = max(self._most // shards, self._most - elsewhere, 1)


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota: what it bounds, `most` (0: nothing bounds it), what there is, and what was refused, or had
    to wait, since the start. Of what flows `used` is 0.
    """

    quota: str
    most: int
    used: int
    refused: int


class Account:
    """What one virtual host or user has, and may have. `meters` are those of what flows and is bounded.

    `shares` are those of clients that are connected. `stored_bytes` was counted last, where it is bounded.
    `elsewhere` is what it has in other shards, as they said last.
    """

    __slots__ = (
        "_bounds",
        "_counts",
        "_has_own_bounds",
        "_shares_of_pools",
        "elsewhere",
        "meters",
        "name",
        "refused",
        "shares",
        "stored_bytes",
        "title",
    )

    def __init__(self, name: str, title: str, shares_of_pools: Mapping[str, int]) -> None:
        self.name = name
        self.title = title
        self._shares_of_pools = shares_of_pools
        self._bounds: Mapping[str, int] = {}
        self._has_own_bounds = False
        self._counts: Counter[str] = Counter()
        self.meters: dict[str, Meter] = {}
        self.refused: Counter[str] = Counter()
        self.shares: set[Share] = set()
        self.stored_bytes = 0
        self.elsewhere = _NOTHING

    def usage(self) -> dict[str, int]:
        """Return what it has that other shards have to know of, and what flowed since this was asked last."""
        used = {kind: count for kind, count in self._counts.items() if kind not in _ALIKE}
        if self.stored_bytes:
            used[BYTES] = self.stored_bytes
        for flow, meter in self.meters.items():
            if meter.spent:
                used[flow], meter.spent = meter.spent, 0
        return used

    def take_elsewhere(self, used: Mapping[str, int], shards: int) -> None:
        """Note what it has in the other shards; `shards` are all of them."""
        self.elsewhere = used
        for flow, meter in self.meters.items():
            meter.leave(used.get(flow, 0), shards)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing, and no quota of its own: it would be made again as it is."""
        return not (self._has_own_bounds or self._counts or self.shares)

    @property
    def bounds(self) -> Mapping[str, int]:
        """The quotas that were set."""
        return self._bounds

    def bound(self, bounds: Mapping[str, int], now: float, *, are_own: bool) -> None:
        """Have these quotas from now on, set for it (`are_own`) or for any; what is there stays."""
        self._has_own_bounds = are_own and bool(bounds)
        if bounds == self._bounds:
            return
        self._bounds = dict(bounds)
        self.meters = {flow: Meter(bounds[flow], now) for flow in FLOWS if flow in bounds}
        for share in self.shares:
            share.follow()

    def most(self, kind: str) -> int:
        """Return how much it may have; 0: as much as there is room for."""
        return self._bounds.get(kind) or self._shares_of_pools.get(kind, 0)

    def count(self, kind: str) -> int:
        """Return how much it has."""
        return self._counts[kind]

    def check(self, kind: str, count: int = 1) -> None:
        """Raise LimitReached if it may not have so much more."""
        most = self.most(kind)
        if most and self._counts[kind] + self.elsewhere.get(kind, 0) + count > most:
            self.refused[kind] += 1
            raise LimitReached(self.reason(kind, most))

    def reason(self, kind: str, most: int) -> str:
        """Say that it is over a quota."""
        if kind in _RATES:
            return f"{self.title} {_RATES[kind].format(most)}"
        where = "of" if self._shares_of_pools else "in"  # a user's, or in a virtual host, as RabbitMQ says it
        return f"{_NOUNS.get(kind, kind)} limit {where} {self.title} ({most}) is reached"

    def add(self, kind: str, count: int = 1) -> None:
        """Count so much more; below 0: less."""
        self.remove(kind, -count)

    def remove(self, kind: str, count: int = 1) -> None:
        """Count so much less."""
        left = self._counts[kind] - count
        if left:
            self._counts[kind] = left
        else:
            del self._counts[kind]

    def bytes_refusal(self) -> str:
        """Return why nothing more is stored for it; "": it is."""
        most = self._bounds.get(BYTES, 0)
        if not most or self.stored_bytes + self.elsewhere.get(BYTES, 0) < most:
            return ""
        return self.reason(BYTES, most)

    def views(self) -> list[QuotaView]:
        """Return its quotas, and what it has of what they could bound."""
        found = []
        for kind in (*_NOUNS, *_RATES):
            most = self._bounds.get(kind, 0)
            used = self._counts[kind]
            if kind == BYTES:
                used = self.stored_bytes if most else 0
            if most or used:
                found.append(QuotaView(kind, most, used, self.refused[kind]))
        return found


class Share:
    """What a client takes counts for its virtual host and its user. `is_paced`: something that flows is
    bounded.
    """

    __slots__ = ("_accounts", "is_paced", "user", "vhost")

    def __init__(self, vhost: Account, user: Account) -> None:
        self.vhost = vhost
        self.user = user
        self._accounts = (vhost, user)
        self.is_paced = False

    def follow(self) -> None:
        """Follow other quotas."""
        self.is_paced = any(account.meters for account in self._accounts)

    def check(self, kind: str) -> None:
        """Raise LimitReached if there may not be one more."""
        for account in self._accounts:
            account.check(kind)

    def add(self, kind: str, count: int = 1) -> None:
        """Count so many more."""
        for account in self._accounts:
            account.add(kind, count)

    def take(self, kind: str) -> None:
        """Count one more; raises LimitReached."""
        self.check(kind)
        self.add(kind)

    def give(self, kind: str, count: int = 1) -> None:
        """Count so many less."""
        for account in self._accounts:
            account.remove(kind, count)

    def spend(self, flow: str, count: int, now: float) -> tuple[float, str]:
        """Count what flowed; return how many seconds to wait before more may, and who is over what."""
        wait_s, reason = 0.0, ""
        for account in self._accounts:
            meter = account.meters.get(flow)
            if meter is not None:
                debt_s = min(meter.spend(count, now), limits.QUOTA_HOLD_S_MAX)
                if debt_s > 0:
                    account.refused[flow] += 1
                if debt_s > wait_s:
                    wait_s, reason = debt_s, account.reason(flow, account.bounds[flow])
        return wait_s, reason

    def per_s(self, flow: str) -> int:
        """Return how much may flow a second; 0: any."""
        bounds = [account.meters[flow].per_s for account in self._accounts if flow in account.meters]
        return min(bounds, default=0)


NO_SHARE: Final = Share(Account("", "", {}), Account("", "", {}))
"""That of clients that are not let in yet."""


class Quotas:
    """The accounts of all virtual hosts and users."""

    def __init__(self) -> None:
        self._vhosts: dict[str, Account] = {}
        self._users: dict[str, Account] = {}
        self._of_users: Mapping[str, Mapping[str, int]] = {}
        self._of_any_user: Mapping[str, int] = {}
        self._callers: dict[str, Share] = {}
        self._elsewhere: Mapping[AccountKey, Mapping[str, int]] = {}
        self._shards = 1

    # who there is

    def of_vhost(self, name: str) -> Account:
        """Return the account of a virtual host."""
        account = self._vhosts.get(name)
        if account is None:
            account = self._vhosts[name] = Account(name, f"vhost '{name}'", {})
            self._follow_elsewhere(False, account)
        return account

    def of_user(self, name: str, now: float = 0.0) -> Account:
        """Return the account of a user; "" is everybody who comes in without a name."""
        account = self._users.get(name)
        if account is None:
            title = f"user '{name}'" if name else "clients without a user"
            account = self._users[name] = Account(name, title, SHARES_OF_USERS)
            self._bound_user(account, now)
            self._follow_elsewhere(True, account)
        return account

    def _bound_user(self, account: Account, now: float) -> None:
        bounds = self._bounds_of_user(account.name)
        account.bound(bounds, now, are_own=account.name in self._of_users)

    def _bounds_of_user(self, name: str) -> Mapping[str, int]:
        return {**self._of_any_user, **self._of_users.get(name, {})}

    # other shards

    def usage(self) -> dict[AccountKey, dict[str, int]]:
        """Return what accounts with quotas have here; see `Account.usage`."""
        found = [(False, account) for account in self._vhosts.values() if account.bounds]
        found += [(True, account) for account in self._users.values() if account.bounds]
        told = {(is_user, account.name): account.usage() for is_user, account in found}
        return {key: used for key, used in told.items() if used}

    def take_elsewhere(self, used: Mapping[AccountKey, Mapping[str, int]], shards: int) -> None:
        """Note what accounts have in the other shards; `shards` are all of them."""
        self._elsewhere = used
        self._shards = shards
        for is_user, accounts in ((False, self.vhosts()), (True, self.users())):
            for account in accounts:
                self._follow_elsewhere(is_user, account)

    def _follow_elsewhere(self, is_user: bool, account: Account) -> None:
        account.take_elsewhere(self._elsewhere.get((is_user, account.name), _NOTHING), self._shards)

    def vhosts(self) -> Iterator[Account]:
        """Yield the accounts of virtual hosts."""
        yield from list(self._vhosts.values())

    def users(self) -> Iterator[Account]:
        """Yield the accounts of users."""
        yield from list(self._users.values())

    # what they may have

    def bound_vhost(self, name: str, bounds: Mapping[str, int], now: float = 0.0) -> None:
        """Let a virtual host have so much; what it has stays."""
        self.of_vhost(name).bound(bounds, now, are_own=True)
        self._drop_if_idle(name, None)

    def bound_users(
        self, any_user: Mapping[str, int], users: Mapping[str, Mapping[str, int]], now: float = 0.0
    ) -> None:
        """Let each of these users have so much, and of what is not said there as much as any user may."""
        self._of_any_user = any_user
        self._of_users = users
        for name in users:
            self.of_user(name, now)
        for account in self.users():
            self._bound_user(account, now)
            if account.is_idle:
                del self._users[account.name]

    def are_bytes_bounded(self) -> bool:
        """Return whether somebody may only have so many bytes stored."""
        is_bounded = BYTES in self._of_any_user or any(BYTES in each for each in self._of_users.values())
        return is_bounded or any(BYTES in account.bounds for account in self._vhosts.values())

    def bounds_bytes_of(self, vhost: str, user: str | None) -> bool:
        """Return whether the bytes in a queue of theirs have to be counted."""
        if BYTES in self.of_vhost(vhost).bounds:
            return True
        return user is not None and BYTES in self._bounds_of_user(user)

    # what they have

    def check(self, kind: str, vhost: str, user: str | None, count: int = 1) -> None:
        """Raise LimitReached if one of them may not have so much more."""
        for account in self._accounts(vhost, user):
            account.check(kind, count)

    def add(self, kind: str, vhost: str, user: str | None, count: int = 1) -> None:
        """Count so much more."""
        for account in self._accounts(vhost, user):
            account.add(kind, count)

    def remove(self, kind: str, vhost: str, user: str | None, count: int = 1) -> None:
        """Count so much less."""
        for account in self._accounts(vhost, user):
            account.remove(kind, count)
        self._drop_if_idle(vhost, user)

    def _accounts(self, vhost: str, user: str | None) -> tuple[Account, ...]:
        of_vhost = self.of_vhost(vhost)
        return (of_vhost,) if user is None else (of_vhost, self.of_user(user))

    def check_bytes(self, vhost: str, user: str | None) -> None:
        """Raise LimitReached if nothing more is stored for them."""
        refusal = self.bytes_refusal(vhost, user)
        if refusal:
            raise LimitReached(refusal)

    def bytes_refusal(self, vhost: str, user: str | None) -> str:
        """Return why nothing more is stored for them; "": it is."""
        return next(filter(None, (each.bytes_refusal() for each in self._accounts(vhost, user))), "")

    def _drop_if_idle(self, vhost: str, user: str | None) -> None:
        """Forget accounts that say nothing: users come and go."""
        account = self._vhosts.get(vhost)
        if account is not None and account.is_idle:
            del self._vhosts[vhost]
        account = None if user is None else self._users.get(user)
        if account is not None and account.is_idle:
            del self._users[account.name]

    # clients

    def enter(self, caller: str, vhost: str, user: str, now: float) -> Share:
        """Let a client in, which has a connection then; raises LimitReached."""
        share = Share(self.of_vhost(vhost), self.of_user(user, now))
        try:
            share.take(CONNECTIONS)
        except LimitReached:
            self._drop_if_idle(vhost, user)
            raise
        share.vhost.shares.add(share)
        share.user.shares.add(share)
        share.follow()
        self._callers[caller] = share
        return share

    def leave(self, caller: str) -> None:
        """Note that a client is gone."""
        share = self._callers.pop(caller, None)
        if share is not None:
            share.give(CONNECTIONS)
            share.vhost.shares.discard(share)
            share.user.shares.discard(share)
            self._drop_if_idle(share.vhost.name, share.user.name)

    def user_of(self, caller: str) -> str | None:
        """Return the user of a client; None if the caller is no client."""
        share = self._callers.get(caller)
        return None if share is None else share.user.name
