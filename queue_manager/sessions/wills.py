"""Wills that are due a while after their client has gone: kept, so that they outlive the broker, too."""

from __future__ import annotations

from queue_manager.address import qualified_name
from queue_manager.shard.context import Context
from storage.records import WillValue, session_will


class KeptWills:
    """Wills of a virtual host, by the number of their session; who publishes one lets go of it in the same
    commit.
    """

    def __init__(self, context: Context, vhost: str) -> None:
        self._context = context
        self._vhost = vhost
        self._by_session: dict[int, WillValue] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    @property
    def all(self) -> dict[int, WillValue]:
        """The wills that are kept."""
        return dict(self._by_session)

    def keep(self, session: int, will: WillValue) -> None:
        """Have a session's will; durable with the open commit, for which nobody has to wait."""
        if self._by_session.get(session) != will:
            self._by_session[session] = will
            stored = will._replace(client_id=qualified_name(self._vhost, will.client_id))
            self._context.commit.put(session_will.key(session), session_will.encode(*stored))

    def let_go(self, session: int) -> None:
        """Note that the session has none any more."""
        if self._by_session.pop(session, None) is not None:
            self._context.commit.delete(session_will.key(session))

    def restore(self, session: int, will: WillValue) -> None:
        """Restore a will that was stored."""
        self._by_session[session] = will
