"""The publishes of a client with QoS 2, as far as its session has to remember them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from queue_manager.shard.commit import Commit, Waiter
from queue_manager.shard.context import Context
from storage.records import session_received

_NOTHING: Final[frozenset[int]] = frozenset()


class Received:
    """The packet identifiers of publishes of QoS 2 that the client has not released."""

    __slots__ = ("_context", "_ids", "_session")

    def __init__(self, context: Context, session: int) -> None:
        """`session` is the number of the session."""
        self._context = context
        self._session = session
        self._ids: set[int] | frozenset[int] = _NOTHING  # most clients never publish so

    def packet_ids(self) -> Collection[int]:
        """Return all of them."""
        return self._ids

    def note(self, packet_ids: Iterable[int]) -> None:
        """Remember publishes that were taken and are kept nowhere, as long as the broker runs."""
        if isinstance(self._ids, frozenset):
            self._ids = set(packet_ids)
        else:
            self._ids.update(packet_ids)

    def take(self, packet_ids: Collection[int], now_ms: int) -> None:
        """Remember stored publishes with the open commit, as they are."""
        self.note(packet_ids)
        value = session_received.encode(now_ms)
        for packet_id in packet_ids:
            self._context.commit.put(session_received.key(self._session, packet_id), value)

    def complete(self, packet_ids: list[int], waiter: Waiter) -> bool:
        """Take PUBREL: `waiter` is told when it is durable that these are free; returns whether any was
        known.
        """
        known = self._ids.intersection(packet_ids)
        if not known:
            return False
        self._ids -= known
        commit = self._context.commit
        commit.delete_run([session_received.key(self._session, i) for i in known])
        commit.wait_for(waiter, packet_ids)
        return True

    def delete(self, commit: Commit) -> None:
        """Forget them with this commit: the session is over."""
        commit.delete_run([session_received.key(self._session, i) for i in self._ids])
