"""Who is kept out: client identifiers, users, and addresses. Times are ms since 1970."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from broker.access.credentials import LoginRefused
from config import limits
from config.access_settings import FlappingSettings

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
TOLD: Final = "banned"


class BanKind(Enum):
    """What a ban is of."""

    CLIENT_ID = "client_id"
    """The client identifier of MQTT, or the container-id of AMQP 1.0."""
    USER = "user"
    ADDRESS = "address"
    """An IP address, or a network such as `10.0.0.0/8`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ban:
    """One ban. `until_ms` None: for good; `by` made it, "" the broker."""

    kind: BanKind
    value: str
    reason: str
    until_ms: int | None
    made_at_ms: int
    by: str

    def covers(self, *, client_id: str, user: str, host: str) -> bool:
        """Return whether it is of this client."""
        if self.kind is BanKind.ADDRESS:
            address = _address(host)
            return address is not None and address in ipaddress.ip_network(self.value)
        return self.value == (client_id if self.kind is BanKind.CLIENT_ID else user)


class Banned(LoginRefused):
    """The refusal of who is banned."""

    def __init__(self, ban: Ban) -> None:
        reason = f": {ban.reason}" if ban.reason else ""
        super().__init__(f"{ban.kind.value.replace('_', ' ')} {ban.value!r} is banned{reason}", TOLD)


def canonical_address(text: str) -> str:
    """Return an address or network as bans have it; raises ValueError."""
    network = ipaddress.ip_network(text, strict=False)
    return str(network.network_address) if network.num_addresses == 1 else str(network)


class BanTable:
    """The bans that hold, asked at each login. `is_empty`: there are none."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._bans: dict[tuple[BanKind, str], Ban] = {}
        self._networks: dict[str, _Network] = {}
        self.is_empty = True
        self.refused_count = 0

    def __len__(self) -> int:
        return len(self._bans)

    def all(self) -> list[Ban]:
        """Return those that hold, by kind and value."""
        found = [ban for ban in self._bans.values() if self._holds(ban)]
        return sorted(found, key=lambda ban: (ban.kind.value, ban.value))

    def ended(self) -> list[Ban]:
        """Return those whose time is over, to be removed."""
        return [ban for ban in self._bans.values() if not self._holds(ban)]

    def find(self, kind: BanKind, value: str) -> Ban | None:
        """Return the ban of exactly that."""
        ban = self._bans.get((kind, value))
        return ban if ban is not None and self._holds(ban) else None

    def put(self, ban: Ban) -> None:
        """Have a ban hold, in the place of another of the same."""
        self._bans[ban.kind, ban.value] = ban
        self.is_empty = False
        if ban.kind is BanKind.ADDRESS and "/" in ban.value:
            self._networks[ban.value] = ipaddress.ip_network(ban.value)

    def remove(self, ban: Ban) -> None:
        """Have a ban hold no more."""
        self._bans.pop((ban.kind, ban.value), None)
        if ban.kind is BanKind.ADDRESS:
            self._networks.pop(ban.value, None)
        self.is_empty = not self._bans

    def check_address(self, host: str) -> None:
        """Raise Banned if nobody may come in from there."""
        self._check(BanKind.ADDRESS, _unmapped(host))
        if self._networks:
            address = _address(host)
            for text, network in self._networks.items():
                if address is not None and address in network:
                    self._check(BanKind.ADDRESS, text)

    def check_user(self, user: str) -> None:
        """Raise Banned if the user may not come in."""
        self._check(BanKind.USER, user)

    def check_client(self, client_id: str) -> None:
        """Raise Banned if nobody may come in under this client identifier."""
        self._check(BanKind.CLIENT_ID, client_id)

    def _check(self, kind: BanKind, value: str) -> None:
        ban = self.find(kind, value)
        if ban is not None:
            self.refused_count += 1
            raise Banned(ban)

    def _holds(self, ban: Ban) -> bool:
        return ban.until_ms is None or ban.until_ms > self._now_ms()


class Flapping:
    """How often clients connected lately, by virtual host and client identifier; the table is bounded, those
    that came longest ago go first.
    """

    def __init__(self, settings: FlappingSettings) -> None:
        self.settings = settings
        self._connects: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        self.banned_count = 0

    def connected(self, vhost: str, client_id: str, now_ms: int) -> bool:
        """Note that a client connects; whether that is once too often, and it is counted anew."""
        settings = self.settings
        if not settings.connects:
            return False
        key = vhost, client_id
        count, began_ms = self._connects.pop(key, (0, now_ms))
        if now_ms - began_ms >= settings.window_ms:
            count, began_ms = 0, now_ms
        if count >= settings.connects:
            self.banned_count += 1
            return True
        if len(self._connects) >= limits.FLAPPING_CLIENTS_MAX:
            self._connects.popitem(last=False)
        self._connects[key] = count + 1, began_ms
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(_unmapped(host))
    except ValueError:
        return None


def _unmapped(host: str) -> str:
    """Return an IPv4 address that was written as one of IPv6 as itself."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host
