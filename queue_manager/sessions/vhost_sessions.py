"""The sessions of each virtual host that outlive their connections, the logs of what they are subscribed to,
and wills that are due a while after their client has gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from queue_manager.address import local_name, qualified_name, vhost_of
from queue_manager.effective_policy import Policies
from queue_manager.quota_accounts import SESSIONS, SUBSCRIPTIONS, counted_user
from queue_manager.sessions.common import OLDEST, Bounds, Common, Losses
from queue_manager.sessions.filter_log import OWN, FilterLog
from queue_manager.sessions.filter_logs import FilterLogs
from queue_manager.sessions.session import Session
from queue_manager.sessions.session_subscription import SessionSubscription, SubscriptionOptions, options_of
from queue_manager.shard.context import Context
from storage.envelope import EnvelopeTemplate
from storage.records import CONNECTED, SessionValue, SubscriptionValue, WillValue, session_will
from storage.records import session as session_record
from storage.records.special_codecs import Sent


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


_ENDS_PER_TURN_MAX: Final = 1_000


class Totals(NamedTuple):
    """All sessions of a virtual host; messages and bytes of body are what the slowest reader of each filter
    has yet to read.
    """

    session_count: int
    away: int
    expired: int
    filters: int
    messages: int
    body_bytes: int


class Sessions:
    """Sessions by client identifier; `logs` are those of the filters that they are subscribed to."""

    def __init__(self, common: Common, vhost: str) -> None:
        self._common = common
        self._context = common.context
        self._vhost = vhost
        self.wills = KeptWills(common.context, vhost)
        self._by_client: dict[str, Session] = {}
        self.logs = FilterLogs(common)
        self._ends: list[tuple[int, int, Session]] = []
        self.expired_count = 0

    def __len__(self) -> int:
        return len(self._by_client)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_client.values())

    @property
    def losses(self) -> Losses:
        """The counts of messages that sessions never got, in all virtual hosts."""
        return self._common.losses

    def find(self, client_id: str, now_ms: int) -> Session | None:
        """Return the session of a client; one that has expired is none."""
        session = self._by_client.get(client_id)
        if session is None:
            return None
        due_ms = session.expires_at_ms
        if due_ms is not None and due_ms <= now_ms:
            self.end(session, now_ms)
            return None
        return session

    def totals(self) -> Totals:
        """Return what there is."""
        count, body_bytes = self.logs.waiting()
        away = sum(session.link is None for session in self._by_client.values())
        return Totals(len(self._by_client), away, self.expired_count, len(self.logs), count, body_bytes)

    def of_user(self, user: str) -> list[Session]:
        """Return the sessions of a user."""
        return [session for session in self._by_client.values() if session.user == user]

    def begin(self, client_id: str, user: str, expiry_s: int) -> Session:
        """Begin a new session of a client that has none and is about to be attached; raises LimitReached."""
        self._common.check_room()
        self._context.quotas.check(SESSIONS, self._vhost, counted_user(user))
        value = SessionValue(self._context.new_number(), expiry_s, CONNECTED, user)
        session = self._enter(client_id, value, self._next_id)
        session.write_record()
        return session

    def _enter(self, client_id: str, value: SessionValue, read_to: int, sent: Sequence[Sent] = ()) -> Session:
        key = session_record.key(qualified_name(self._vhost, client_id))
        session = Session(self._common, client_id, key, value, read_to, sent)
        session.vhost = self._vhost
        self._by_client[client_id] = session
        self._common.begun()
        self._context.quotas.add(SESSIONS, self._vhost, session.counted_for)
        return session

    def leave(self, session: Session, now_ms: int) -> None:
        """Note that the connection of a session is gone."""
        session.detach(now_ms)
        self._watch(session, now_ms)

    def end(self, session: Session, now_ms: int) -> None:
        """End a session."""
        if self._by_client.get(session.client_id) is session:
            del self._by_client[session.client_id]
            self._common.ended()
            self._context.quotas.remove(SESSIONS, self._vhost, session.counted_for)
        session.end(now_ms)

    def on_timer(self, now_ms: int) -> None:
        """See `queue_manager.shard.timers.Timed`: end the sessions whose time is over."""
        ends = self._ends
        for _ in range(_ENDS_PER_TURN_MAX):
            if not ends or ends[0][0] > now_ms:
                break
            session = heappop(ends)[2]
            due_ms = session.expires_at_ms
            if due_ms is None or session.is_over:
                continue
            if due_ms <= now_ms:
                self.expired_count += 1
                self.end(session, now_ms)
            else:
                self._watch(session, now_ms)
        if ends:
            self._context.timers.set(self, max(ends[0][0], now_ms))

    def _watch(self, session: Session, now_ms: int) -> None:
        """Have a session end when its time is over."""
        due_ms = session.expires_at_ms
        if due_ms is None:
            return
        if due_ms <= now_ms:
            self.end(session, now_ms)
            return
        heappush(self._ends, (due_ms, session.number, session))
        self._context.timers.set(self, due_ms)

    # subscriptions

    def subscribe(
        self, session: Session, topic_filter: str, options: SubscriptionOptions, *, is_logged: bool
    ) -> bool:
        """Subscribe a session to a filter, anew if it is; whether it was not. `is_logged`: what the filter
        matches is kept for it. Raises LimitReached.
        """
        known = session.subscriptions.get(topic_filter)
        if known is not None and (known.log is not None) == is_logged and known.goes_on_as(options):
            known.change(options)
            session.add(known)
            return False
        if known is not None:
            session.remove(known, is_replaced=True)
        else:
            self._context.quotas.check(SUBSCRIPTIONS, self._vhost, session.counted_for)
        log = self.logs.of(topic_filter) if is_logged else None
        subscription = SessionSubscription(session, topic_filter, options, log, self._next_id)
        if log is not None:
            subscription.begin_at(log.end_count, log.end_bytes)
        session.add(subscription)
        return known is None

    def send_own(
        self,
        session: Session,
        topic_filter: str,
        messages: Sequence[tuple[EnvelopeTemplate, int, int, bytes]],
        *,
        retain: bool,
    ) -> bool:
        """Have a session sent messages of its own, as its subscription to a filter wants them and whatever
        becomes of its connection meanwhile. Each is given with QoS, time and body; `retain`: they were
        retained. Returns whether it takes them: a full one, unless it drops its oldest, does not, nor one
        that is over or not subscribed to the filter any more.
        """
        if session.is_over or topic_filter not in session.subscriptions:
            return False
        bounds = session.bounds
        if bounds.drop != OLDEST and bounds.is_full(*session.queued):
            if retain:
                session.note_dropped(len(messages))
            return False
        self.logs.send(self._own_log(session, topic_filter), messages, retain=retain)
        return True

    def _own_log(self, session: Session, topic_filter: str) -> FilterLog:
        options = session.subscriptions[topic_filter].options
        wanted = options._replace(no_local=False, retain_as_published=True)
        name = OWN + topic_filter
        known = session.subscriptions.get(name)
        if known is not None and known.log is not None:
            known.change(wanted)
            session.add(known)
            return known.log
        log = self.logs.of(f"{OWN}{session.number}{name}")
        subscription = SessionSubscription(session, name, wanted, log, self._next_id)
        subscription.begin_at(log.end_count, log.end_bytes)
        session.add(subscription)
        return log

    def limit(self, bounds: Bounds) -> None:
        """Let so much wait for each session, of whatever virtual host."""
        self._common.limit(bounds)

    @property
    def _next_id(self) -> int:
        return self._context.message_ids.next_value

    # after a start

    def restore(
        self,
        client_id: str,
        value: SessionValue,
        progress: tuple[int, Sequence[Sent]] | None,
        received: Sequence[int],
        now_ms: int,
    ) -> Session:
        """Restore a session that was stored; one that had a connection counts from now on."""
        # numbers and message IDs are of one sequence: without progress it has everything since it began
        read_to, sent = (value.number, ()) if progress is None else progress
        was_connected = value.ended_at_ms == CONNECTED
        if was_connected:
            value = value._replace(ended_at_ms=now_ms)
        session = self._enter(client_id, value, read_to, sent)
        if was_connected:
            session.write_record()  # or the time would begin anew with each crash
        if received:
            session.received.note(received)
        return session

    def restore_subscription(
        self, session: Session, topic_filter: str, value: SubscriptionValue, log: FilterLog | None
    ) -> None:
        """Restore a subscription that was stored."""
        subscription = SessionSubscription(session, topic_filter, options_of(value), log, value.from_id)
        if log is not None:  # of a log without entries nobody knows what it ever got
            subscription.begin_at(min(value.read_count, log.end_count), min(value.read_bytes, log.end_bytes))
        session.restore(subscription)

    def restored(self, now_ms: int) -> None:
        """Remove what a crash left behind, and have sessions end whose time is over: all are there."""
        self.logs.restored()
        for session in list(self._by_client.values()):
            self._watch(session, now_ms)


class VhostSessions:
    """Sessions by virtual host: nothing of one sees what is of another."""

    def __init__(self, context: Context, policies: Policies) -> None:
        self._common = Common(context, policies)
        self.follow_policies = self._common.follow_policies
        self._by_vhost: dict[str, Sessions] = {}

    def of(self, vhost: str) -> Sessions:
        """Return those of a virtual host."""
        sessions = self._by_vhost.get(vhost)
        if sessions is None:
            sessions = self._by_vhost[vhost] = Sessions(self._common, vhost)
        return sessions

    def by_vhost(self) -> dict[str, Sessions]:
        """Return those of all virtual hosts that have some, or had."""
        return dict(self._by_vhost)

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
