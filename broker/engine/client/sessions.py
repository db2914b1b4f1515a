"""MQTT sessions of a shard in this process, and the logs of what they are subscribed to.

As with `traffic`, what `broker.engine.session_traffic` states is here what the core works with itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

from broker.engine import session_traffic as traffic
from broker.engine.session_traffic import Bounds, Losses, SubscriptionOptions, Totals
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST
from queue_manager.audience import SessionsAhead
from queue_manager.sessions.filter_log import FilterLog
from queue_manager.sessions.session import Session
from queue_manager.sessions.vhost_sessions import KeptWills
from storage.envelope import EnvelopeTemplate


class SessionClient:
    """MQTT sessions of a virtual host that outlive their connection, and the logs of what they are subscribed
    to; see `broker.engine.session_traffic`.
    """

    def __init__(self, shard: Shard, vhost: str = DEFAULT_VHOST) -> None:
        self._shard = shard
        self._sessions = shard.manager.sessions.of(vhost)
        self._clock = shard.clock

    def within(self, vhost: str) -> SessionClient:
        """Return the same for another virtual host."""
        return SessionClient(self._shard, vhost)

    @property
    def wills(self) -> KeptWills:
        """Their wills."""
        return self._sessions.wills

    @property
    def logs(self) -> Sequence[traffic.Log]:
        """The logs that are there."""
        return cast("Sequence[traffic.Log]", list(self._sessions.logs))

    def on_log(self, call: traffic.LogCall) -> None:
        """Have `call` called with each log that begins and, with False, that ends."""
        self._sessions.logs.tell(cast(Any, call))

    def limit(self, bounds: Bounds) -> None:
        """Let so much wait for each session, of whatever virtual host."""
        self._sessions.limit(bounds)

    def find(self, client_id: str) -> traffic.Session | None:
        """Return the session of a client."""
        return cast("traffic.Session | None", self._sessions.find(client_id, self._clock.now_ms()))

    def totals(self) -> Totals:
        """Return all sessions together."""
        return self._sessions.totals()

    @property
    def losses(self) -> Losses:
        """The messages that sessions never got, in all virtual hosts."""
        return self._sessions.losses

    def all(self) -> list[traffic.Session]:
        """Return all sessions."""
        return cast("list[traffic.Session]", list(self._sessions))

    def of_user(self, user: str) -> list[traffic.Session]:
        """Return the sessions of a user."""
        return cast("list[traffic.Session]", self._sessions.of_user(user))

    def begin(self, client_id: str, user: str, expiry_s: int) -> traffic.Session:
        """Begin a new session of a client that has none; raises LimitReached."""
        return cast("traffic.Session", self._sessions.begin(client_id, user, expiry_s))

    def leave(self, session: traffic.Session) -> None:
        """Note that the connection of a session is gone."""
        self._sessions.leave(cast(Session, session), self._clock.now_ms())

    def end(self, session: traffic.Session) -> None:
        """End a session."""
        self._sessions.end(cast(Session, session), self._clock.now_ms())

    def subscribe(
        self, session: traffic.Session, topic_filter: str, options: SubscriptionOptions, *, is_logged: bool
    ) -> bool:
        """Subscribe a session to a filter; whether it was not. `is_logged`: messages are kept for it."""
        return self._sessions.subscribe(cast(Session, session), topic_filter, options, is_logged=is_logged)

    def unsubscribe(
        self, session: traffic.Session, topic_filter: str, *, keeps_waiting: bool = False
    ) -> bool:
        """Subscribe a session to a filter no more; whether it was. `keeps_waiting`: it gets what waits."""
        taken = cast(Session, session)
        known = taken.subscriptions.get(topic_filter)
        if known is not None:
            taken.remove(known, is_replaced=keeps_waiting)
        return known is not None

    def send_own(
        self,
        session: traffic.Session,
        topic_filter: str,
        messages: Sequence[tuple[EnvelopeTemplate, int, int, bytes]],
        *,
        retain: bool = True,
    ) -> bool:
        """Send a session messages of QoS 1 or 2 that are for it alone, as its subscription to a filter wants
        them; they stay in flight over connections. Each is given with QoS, time and body; `retain`: they were
        retained. Returns whether it has room for them.
        """
        return self._sessions.send_own(cast(Session, session), topic_filter, messages, retain=retain)

    def has_room(
        self, logs: Sequence[traffic.Log], count: int, body_bytes: int, ahead: SessionsAhead
    ) -> bool:
        """Return whether no session that reads these logs is full, where publishers are to be told that."""
        return self._sessions.logs.has_room(cast("Sequence[FilterLog]", logs), count, body_bytes, ahead)

    def count_ahead(
        self, logs: Sequence[traffic.Log], count: int, body_bytes: int, ahead: dict[Hashable, tuple[int, int]]
    ) -> None:
        """Add to `ahead` what the sessions that read these logs will have taken."""
        self._sessions.logs.count_ahead(cast("Sequence[FilterLog]", logs), count, body_bytes, ahead)

    @property
    def full_session(self) -> str:
        """The client identifier of the session that `has_room` found full last."""
        return self._sessions.logs.full_session

    def publish(
        self,
        logs: Sequence[traffic.Log],
        template: EnvelopeTemplate,
        qos: int,
        retain: bool,
        publisher: traffic.Session | None,
        bodies: list[bytes],
    ) -> None:
        """Add messages of QoS 1 or 2 to logs, which have room; they are durable once the open commit is."""
        kept_in, by = cast("Sequence[FilterLog]", logs), cast("Session | None", publisher)
        self._sessions.logs.publish(kept_in, template, qos, retain, by, bodies, self._clock.now_ms())
