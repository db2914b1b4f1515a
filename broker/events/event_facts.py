"""What the broker tells of itself: noted for `amq.rabbitmq.event`, and told to followers of connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from broker.access.credentials import host_of
from broker.connections.connection_views import NODE, ConnectionView
from broker.engine.client import ShardClient

Follower: TypeAlias = Callable[[ConnectionView, str | None], None]
"""Called with a connection that came, or that went and (the text) why."""


class Events:
    """Tells of a broker what happens in all its virtual hosts.

    What others note at the engine is published with what is noted here; the facts about connections are made
    here, for the exchange and for those who follow a virtual host.
    """

    def __init__(self, client: ShardClient) -> None:
        self._noted = client.events
        self._followers: dict[str, list[Follower]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether an event would be heard."""
        return self._noted.is_wanted

    def note(self, key: str, headers: dict[str, Any], user: str | None = None) -> None:
        """Have an event published; to be called where it `is_wanted`."""
        self._noted.note(key, headers, user)

    def follow(self, vhost: str, follower: Follower) -> None:
        """Have the connections that come to a virtual host and go told to a follower."""
        self._followers.setdefault(vhost, []).append(follower)

    def connected(self, describe: Callable[[], ConnectionView]) -> ConnectionView | None:
        """Tell that a client was let in. Returns what to tell of it when it goes, None: nobody hears."""
        if not (self.is_wanted or self._followers):
            return None
        view = describe()
        if self.is_wanted:
            headers = _of_connection(view) | {"connected_at": view.connected_at_ms, "type": "network"}
            self.note("connection.created", headers, view.description.user)
        self._tell(view, None)
        return view

    def disconnected(
        self, describe: Callable[[], ConnectionView], view: ConnectionView | None, reason: str
    ) -> None:
        """Tell that a client that was let in is gone; `view` is what `connected` gave."""
        if not (self.is_wanted or self._followers):
            return
        view = view or describe()
        if self.is_wanted:
            self.note("connection.closed", _of_connection(view) | {"reason": reason}, view.description.user)
        self._tell(view, reason)

    def tell_trouble(self, reason: str) -> None:
        """Tell that the store does not work, or ("") works again."""
        if self.is_wanted:
            headers: dict[str, Any] = {"resource": "storage", "node": NODE}
            if reason:
                self.note("alarm.set", {**headers, "reason": reason})
            else:
                self.note("alarm.cleared", headers)

    def _tell(self, view: ConnectionView, reason: str | None) -> None:
        for follower in self._followers.get(view.description.vhost, ()):
            follower(view, reason)


def _of_connection(view: ConnectionView) -> dict[str, Any]:
    told = view.description
    client: Mapping[str, str] = told.client
    peer_port, port = view.peer.rpartition(":")[2], view.local.rpartition(":")[2]
    return {
        "name": view.name,
        "node": NODE,
        "pid": view.pid,
        "vhost": told.vhost,
        "user": told.user,
        "protocol": told.protocol,
        "peer_host": host_of(view.peer),
        "peer_port": int(peer_port) if peer_port.isdigit() else 0,
        "host": host_of(view.local),
        "port": int(port) if port.isdigit() else 0,
        "client_properties": {**client, "client_id": told.client_id} if told.client_id else dict(client),
    }
