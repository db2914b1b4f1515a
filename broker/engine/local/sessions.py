"""MQTT sessions that outlive their connection, and the logs of what they are subscribed to.

As with `traffic`, objects of the core are given out here: sessions, their subscriptions, logs. Front-ends
have their types from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.engine.shard import Shard
from queue_manager.sessions.bounds import Bounds
from queue_manager.sessions.directory import Totals
from queue_manager.sessions.filter_log import FilterLog
from queue_manager.sessions.session import Delivery, Link, Session
from queue_manager.sessions.subscription import SessionSubscription, SubscriptionOptions
from queue_manager.sessions.wills import KeptWills
from storage.envelope import EnvelopeTemplate
from storage.records.session import NEVER_S
from storage.records.session_will import CONNECTED, WillValue

__all__ = [
    "CONNECTED",
    "NEVER_S",
    "Bounds",
    "Delivery",
    "FilterLog",
    "Link",
    "LocalSessions",
    "Session",
    "SessionSubscription",
    "SubscriptionOptions",
    "WillValue",
]


class LocalSessions:
    """The sessions of a shard in this process."""

    def __init__(self, shard: Shard) -> None:
        self._sessions = shard.manager.sessions
        self._wills = shard.manager.wills
        self._clock = shard.clock

    @property
    def wills(self) -> KeptWills:
        """See `SessionClient.wills`."""
        return self._wills

    @property
    def logs(self) -> Sequence[FilterLog]:
        """The logs that are there."""
        return self._sessions.logs

    def on_log(self, call: Callable[[FilterLog, bool], None]) -> None:
        """Have `call` called with each log that begins and, with False, that ends."""
        self._sessions.on_log = call

    def limit(self, bounds: Bounds) -> None:
        """Let so much wait for each session."""
        self._sessions.limit(bounds)

    def find(self, client_id: str) -> Session | None:
        """The session of a client."""
        return self._sessions.find(client_id, self._clock.now_ms())

    def totals(self) -> Totals:
        """All sessions together."""
        return self._sessions.totals()

    def all(self) -> list[Session]:
        """All sessions."""
        return list(self._sessions)

    def of_user(self, user: str) -> list[Session]:
        """The sessions of a user."""
        return self._sessions.of_user(user)

    def begin(self, client_id: str, user: str, expiry_s: int) -> Session:
        """A new session of a client that has none; raises LimitReached."""
        return self._sessions.begin(client_id, user, expiry_s)

    def leave(self, session: Session) -> None:
        """The connection of a session is gone."""
        self._sessions.leave(session, self._clock.now_ms())

    def end(self, session: Session) -> None:
        """A session is over."""
        self._sessions.end(session, self._clock.now_ms())

    def subscribe(
        self, session: Session, topic_filter: str, options: SubscriptionOptions, *, is_logged: bool
    ) -> bool:
        """Subscribe a session to a filter; whether it was not. `is_logged`: messages are kept for it."""
        return self._sessions.subscribe(session, topic_filter, options, is_logged=is_logged)

    def publish(
        self,
        logs: Sequence[FilterLog],
        template: EnvelopeTemplate,
        qos: int,
        retain: bool,
        publisher: Session | None,
        bodies: list[bytes],
    ) -> bool:
        """Add messages of QoS 1 or 2 to logs; they are durable once the open commit is. False: a session has
        no room, and publishers are to be told.
        """
        now_ms = self._clock.now_ms()
        return self._sessions.publish(logs, template, qos, retain, publisher, bodies, now_ms)
