"""Bans that operators make, and those of clients that come too often: kept, told, and carried out at once."""

from __future__ import annotations

from typing import Any, Final

import structlog

from broker.access.access import Access
from broker.access.ban_table import TOLD, Ban, BanKind, Banned, canonical_address
from broker.access.credentials import host_of
from broker.clock import Clock
from broker.connections.registry import Connections, Goodbye
from broker.engine.client import ShardClient
from broker.events.event_facts import Events
from config import limits
from queue_manager.api import BanKey, StoredBan
from queue_manager.errors import InvalidArgument, LimitReached, PreconditionFailed, QueueManagerError

_log: Final = structlog.get_logger("sluicemq.access")
_NUMBERS: Final = {BanKind.CLIENT_ID: 0, BanKind.USER: 1, BanKind.ADDRESS: 2}
_KINDS: Final = {number: kind for kind, number in _NUMBERS.items()}


class BanNotFound(QueueManagerError):
    """There is no such ban."""

    def __init__(self, kind: BanKind, value: str) -> None:
        super().__init__(f"{kind.value} {value!r} is not banned")


class Banning:
    """Keeps clients out, by their identifiers, users or addresses, in all virtual hosts."""

    def __init__(
        self, client: ShardClient, access: Access, clock: Clock, connections: Connections, events: Events
    ) -> None:
        self._client = client
        self._bans = access.bans
        self._flapping = access.flapping
        self._clock = clock
        self._connections = connections
        self._events = events

    def restore(self) -> None:
        """Have those hold that were kept before the start."""
        for key, stored in self._client.bans.kept():
            self._bans.put(_ban(key, stored))

    def follow(self, key: BanKey, kept: StoredBan | None) -> None:
        """Have a ban of another worker of this broker hold, or (None) no more."""
        if kept is None:
            ended = self._bans.find(_KINDS[key.kind], key.value)
            if ended is not None:
                self._bans.remove(ended)
            return
        ban = _ban(key, kept)
        self._bans.put(ban)
        self._connections.spawn(self._send_away(ban))

    def all(self) -> list[Ban]:
        """Return the bans that hold."""
        return self._bans.all()

    async def add(
        self, kind: BanKind, value: str, *, reason: str, for_ms: int | None, by: str, by_host: str
    ) -> Ban:
        """Ban, or change a ban, and send away whom it is of; durable when the call returns. `for_ms` None:
        for good.

        Raises InvalidArgument, LimitReached, and PreconditionFailed if it were of who asks (`by`, `by_host`).
        """
        value = _checked(kind, value, reason)
        ban = self._made(kind, value, reason, for_ms, by)
        if ban.covers(client_id="", user=by, host=by_host):
            raise PreconditionFailed(f"{value!r} is who asks for it, who could not take it back")
        self._put(ban)
        await self._client.commits.durable()
        await self._send_away(ban)
        return ban

    async def remove(self, kind: BanKind, value: str, by: str) -> None:
        """End a ban. Raises BanNotFound, InvalidArgument."""
        value = _checked(kind, value, "")
        ban = self._bans.find(kind, value)
        if ban is None:
            raise BanNotFound(kind, value)
        self._forget(ban)
        await self._client.commits.durable()
        _log.info("ban.removed", kind=kind.value, value=value, by=by)
        if self._events.is_wanted:
            self._events.note("ban.deleted", {"kind": kind.value, "value": value}, by)

    def check_connect(self, vhost: str, client_id: str) -> None:
        """Raise Banned for a client identifier that is, or is from now on since it connects too often."""
        self._bans.check_client(client_id)
        flapping = self._flapping
        if not flapping.connected(vhost, client_id, self._clock.now_ms()):
            return
        settings = flapping.settings
        reason = f"more than {settings.connects} connections in {settings.window_ms // 1000} s"
        ban = self._made(BanKind.CLIENT_ID, client_id, reason, settings.ban_ms, "")
        try:
            self._put(ban)
        except LimitReached as error:
            _log.error("ban.not_made", value=client_id, reason=error.reason)
        raise Banned(ban)

    def _made(self, kind: BanKind, value: str, reason: str, for_ms: int | None, by: str) -> Ban:
        now_ms = self._clock.now_ms()
        until_ms = None if for_ms is None else now_ms + for_ms
        return Ban(kind=kind, value=value, reason=reason, until_ms=until_ms, made_at_ms=now_ms, by=by)

    def _put(self, ban: Ban) -> None:
        if len(self._bans) >= limits.BANS_MAX and self._bans.find(ban.kind, ban.value) is None:
            for ended in self._bans.ended():
                self._forget(ended)
            if len(self._bans) >= limits.BANS_MAX:
                raise LimitReached(f"{limits.BANS_MAX} bans exist already")
        self._bans.put(ban)
        self._client.bans.keep(_key(ban), StoredBan(ban.until_ms or 0, ban.made_at_ms, ban.reason, ban.by))
        told: dict[str, Any] = {"kind": ban.kind.value, "value": ban.value, "reason": ban.reason}
        told["until_ms"] = ban.until_ms or 0
        _log.warning("ban.made", **told, by=ban.by)
        if self._events.is_wanted:
            self._events.note("ban.created", told, ban.by or None)

    def _forget(self, ban: Ban) -> None:
        self._bans.remove(ban)
        self._client.bans.forget(_key(ban))

    async def _send_away(self, ban: Ban) -> None:
        async for peer in self._connections.peers():
            view = peer.describe()
            told = view.description
            if ban.covers(client_id=told.client_id, user=told.user, host=host_of(view.peer)):
                peer.send_away(Goodbye.DISMISSED, TOLD)


def _key(ban: Ban) -> BanKey:
    return BanKey(_NUMBERS[ban.kind], ban.value)


def _ban(key: BanKey, stored: StoredBan) -> Ban:
    return Ban(
        kind=_KINDS[key.kind],
        value=key.value,
        reason=stored.reason,
        until_ms=stored.until_ms or None,
        made_at_ms=stored.made_at_ms,
        by=stored.by,
    )


def _checked(kind: BanKind, value: str, reason: str) -> str:
    """Return the value as bans have it; raises InvalidArgument."""
    if len(reason) > limits.BAN_REASON_CHARACTERS_MAX:
        raise InvalidArgument(f"a reason has at most {limits.BAN_REASON_CHARACTERS_MAX} characters")
    if not 1 <= len(value.encode(errors="replace")) <= limits.BAN_VALUE_BYTES_MAX or not value.isprintable():
        most = limits.BAN_VALUE_BYTES_MAX
        raise InvalidArgument(f"what is banned has 1 to {most} bytes, and no control characters")
    if kind is not BanKind.ADDRESS:
        return value
    try:
        return canonical_address(value)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
