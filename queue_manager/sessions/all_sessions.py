"""The sessions of all virtual hosts."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.address import local_name, vhost_of
from queue_manager.sessions.common import Common
from queue_manager.sessions.session import Session
from queue_manager.sessions.vhost_sessions import Sessions
from queue_manager.shard.context import Context
from storage.records import SessionValue, WillValue
from storage.records.special_codecs import Sent


class VhostSessions:
    """Sessions by virtual host: nothing of one sees what is of another."""

    def __init__(self, context: Context) -> None:
        self._common = Common(context)
        self._by_vhost: dict[str, Sessions] = {}

    def of(self, vhost: str) -> Sessions:
        """Return those of a virtual host."""
        sessions = self._by_vhost.get(vhost)
        if sessions is None:
            sessions = self._by_vhost[vhost] = Sessions(self._common, vhost)
        return sessions

    def drop(self, vhost: str) -> None:
        """Forget a virtual host that is deleted; none of its sessions may be left."""
        self._by_vhost.pop(vhost, None)

    # after a start

    def restore(
        self,
        name: str,
        value: SessionValue,
        progress: tuple[int, Sequence[Sent]] | None,
        received: Sequence[int],
        now_ms: int,
    ) -> tuple[Sessions, Session]:
        """Restore a session that was stored under that name, and where it belongs."""
        sessions = self.of(vhost_of(name))
        return sessions, sessions.restore(local_name(name), value, progress, received, now_ms)

    def restore_will(self, number: int, will: WillValue) -> None:
        """Restore a will that was stored for the session of that number."""
        wills = self.of(vhost_of(will.client_id)).wills
        wills.restore(number, will._replace(client_id=local_name(will.client_id)))

    def restored(self, now_ms: int) -> None:
        """Have those sessions end whose time is over: all are there."""
        for sessions in self._by_vhost.values():
            sessions.restored(now_ms)
