"""Enhanced authentication by SCRAM-SHA-256, with the users of access control."""

from __future__ import annotations

from broker.access.access import Access
from broker.access.credentials import Peer
from broker.access.scram import METHOD, ScramExchange
from broker.mqtt.connection.authentication import Challenge, Exchange, Proven, Proving


class ScramMethods:
    """A `Methods`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def begin(self, method: str, peer: Peer, /) -> Exchange | None:
        exchange = self._access.begin_scram() if method == METHOD else None
        return None if exchange is None else _Scram(self._access, exchange, peer)


class _Scram:
    """One run of it. Implements `Exchange`."""

    __slots__ = ("_access", "_exchange", "_peer")

    def __init__(self, access: Access, exchange: ScramExchange, peer: Peer) -> None:
        self._access = access
        self._exchange = exchange
        self._peer = peer

    def step(self, data: bytes, /) -> Challenge | Proving:
        if self._exchange.is_challenged:
            return self._finish(data)
        return Challenge(self._exchange.step(data))

    async def _finish(self, proof: bytes) -> Proven:
        return Proven(*await self._access.finish_scram(self._exchange, proof, self._peer))
