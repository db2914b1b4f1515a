"""The logs of the topic filters that the sessions of a virtual host are subscribed to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import cast

from queue_manager.audience import NOTHING_AHEAD, SessionsAhead
from queue_manager.sessions.common import NEWEST, OLDEST, REJECT, Common, widest
from queue_manager.sessions.filter_log import OWN, FilterLog, LogReader
from queue_manager.sessions.session import Session
from queue_manager.sessions.session_subscription import SessionSubscription
from storage.envelope import EnvelopeTemplate
from storage.records import filter_log
from storage.records.filter_log_entries import NO_PUBLISHER, RETAIN, Kept

LogCall = Callable[[FilterLog, bool], None]


class FilterLogs:
    """Logs by filter, each there while somebody reads it; publishes are added to those that match.

    Those of one session alone (`FilterLog.is_own`) are nothing for publishes, and not given. `full_session`:
    the client identifier of the session that `has_room` found full last.
    """

    __slots__ = ("_by_filter", "_common", "_context", "_told", "full_session")

    def __init__(self, common: Common) -> None:
        self._common = common
        self._context = common.context
        self._by_filter: dict[str, FilterLog] = {}
        self._told: LogCall = lambda log, begins: None
        self.full_session = ""

    def __len__(self) -> int:
        return len(self._by_filter)

    def __iter__(self) -> Iterator[FilterLog]:
        return iter([log for log in self._by_filter.values() if not log.is_own])

    def tell(self, call: LogCall) -> None:
        """Call this with each log that begins and, with False, that ends: who routes publishes is to know."""
        self._told = call

    def waiting(self) -> tuple[int, int]:
        """Return the messages, and bytes of body, that the slowest reader of each log has yet to read."""
        count = body_bytes = 0
        for log in self._by_filter.values():
            if log.is_closed:
                continue
            readers = [cast(SessionSubscription, reader) for reader in log.readers]
            count += log.end_count - max(log.head_count, min(r.read_count for r in readers))
            body_bytes += log.end_bytes - max(log.head_bytes, min(r.read_bytes for r in readers))
        return count, body_bytes

    def of(self, topic_filter: str) -> FilterLog:
        """Return the log of a filter, made if it is not there."""
        log = self._by_filter.get(topic_filter)
        if log is None:
            number = self._context.new_number()
            log = self._begin(number, topic_filter)
            self._context.commit.put(filter_log.key(number), filter_log.encode(topic_filter))
        return log

    def _begin(self, number: int, topic_filter: str, end_count: int = 0, end_bytes: int = 0) -> FilterLog:
        log = self._log(number, topic_filter, end_count, end_bytes)
        self._by_filter[topic_filter] = log
        if not log.is_own:
            self._told(log, True)
        return log

    def _log(self, number: int, topic_filter: str, end_count: int, end_bytes: int) -> FilterLog:
        return FilterLog(
            self._context,
            self._common.blocks,
            number,
            topic_filter,
            self._context.message_ids.next_value,
            self._unused,
            end_count,
            end_bytes,
        )

    def _unused(self, log: FilterLog) -> None:
        """Let a log without readers go, at once or once nothing of it is in flight."""
        del self._by_filter[log.filter]
        if not log.is_own:
            self._told(log, False)
        if not log.holders:
            log.remove()
            return
        log.close(f"{OWN}{log.number}")
        self._by_filter[log.filter] = log
        self._context.commit.put(filter_log.key(log.number), filter_log.encode(log.filter))

    def publish(
        self,
        logs: Sequence[FilterLog],
        template: EnvelopeTemplate,
        qos: int,
        retain: bool,
        publisher: Session | None,
        bodies: list[bytes],
        now_ms: int,
    ) -> None:
        """Add messages of QoS 1 or 2 to logs; they are durable once the open commit is. `publisher`: the
        session they came from, if there is one. Where publishers are to be told that a session is full they
        have asked `has_room` before.
        """
        context = self._context
        if self._common.bounds.drop == NEWEST:
            logs = self._with_room(logs, len(bodies))
            if not logs:
                return
        first_id, put = context.message_ids.allocate(len(bodies))
        if put is not None:
            context.commit.put(*put)
        flags = qos | retain * RETAIN
        number = NO_PUBLISHER if publisher is None else publisher.number
        messages = [
            Kept(message_id, flags, number, template, now_ms, body)
            for message_id, body in enumerate(bodies, first_id)
        ]
        body_bytes = sum(map(len, bodies))
        context.commit.hold(len(logs) * body_bytes)
        for log in logs:
            log.append(messages, body_bytes)
            self._trim(log)

    def has_room(
        self, logs: Sequence[FilterLog], count: int, body_bytes: int, ahead: SessionsAhead = NOTHING_AHEAD
    ) -> bool:
        """Return whether all sessions that read these logs take so many messages of so many bytes in all, if
        publishers are to be told. They count for each of the logs that a session reads, as in `queued`.
        """
        for session, times in self._refusing_readers(logs).items():
            queued_count, queued_bytes = session.queued
            ahead_count, ahead_bytes = ahead.get(session, (0, 0))
            queued_count += ahead_count + times * count
            if session.bounds.excess(queued_count, queued_bytes + ahead_bytes + times * body_bytes):
                self.full_session = session.client_id
                return False
        return True

    def count_ahead(
        self, logs: Sequence[FilterLog], count: int, body_bytes: int, ahead: dict[Hashable, tuple[int, int]]
    ) -> None:
        """Add to `ahead` what these messages take of the room that `has_room` asks for."""
        for session, times in self._refusing_readers(logs).items():
            ahead_count, ahead_bytes = ahead.get(session, (0, 0))
            ahead[session] = ahead_count + times * count, ahead_bytes + times * body_bytes

    def _refusing_readers(self, logs: Sequence[FilterLog]) -> Counter[Session]:
        """Return the sessions whose bounds publishers are told, each with how many of the logs it reads."""
        if self._common.bounds.drop != REJECT:
            return Counter()
        return Counter(_session_of(reader) for log in logs for reader in log.readers)

    def send(
        self,
        log: FilterLog,
        messages: Sequence[tuple[EnvelopeTemplate, int, int, bytes]],
        *,
        retain: bool,
    ) -> None:
        """Add messages to the log of one session, each given with QoS, time and body."""
        context = self._context
        first_id, put = context.message_ids.allocate(len(messages))
        if put is not None:
            context.commit.put(*put)
        kept = [
            Kept(message_id, qos | retain * RETAIN, NO_PUBLISHER, template, received_at_ms, body)
            for message_id, (template, qos, received_at_ms, body) in enumerate(messages, first_id)
        ]
        body_bytes = sum([len(each.body) for each in kept])
        context.commit.hold(body_bytes)
        log.append(kept, body_bytes)
        self._trim(log)

    def _trim(self, log: FilterLog) -> None:
        """Have the oldest deleted that no session would get, now and then."""
        bounds = self._common.bounds
        if bounds.drop != OLDEST:
            return
        if self._common.has_policies and log.readers:
            bounds = widest(_session_of(reader).bounds for reader in log.readers)
        if bounds.is_far_beyond(log.end_count - log.head_count, log.end_bytes - log.head_bytes):
            log.drop_oldest(bounds)

    def _with_room(self, logs: Sequence[FilterLog], count: int) -> Sequence[FilterLog]:
        """Return the logs that a session has room in; the others have dropped so many messages."""
        taking = []
        for log in logs:
            sessions = [_session_of(reader) for reader in log.readers]
            full = [session for session in sessions if session.bounds.is_full(*session.queued)]
            if len(full) < len(sessions):
                taking.append(log)
            else:
                for session in full:
                    session.note_dropped(count)
        return taking

    # after a start

    def restore(self, number: int, topic_filter: str, end_count: int, end_bytes: int) -> FilterLog:
        """Restore a log that was stored, with what it ever got."""
        return self._begin(number, topic_filter, end_count, end_bytes)

    def remove_unread(self, number: int, topic_filter: str, end_count: int, end_bytes: int) -> None:
        """Remove a log that was stored and has no readers: a crash came while it was being removed. Another
        one may have begun for the same filter before.
        """
        self._log(number, topic_filter, end_count, end_bytes).remove()

    def restored(self) -> None:
        """Remove what a crash left behind: all readers are there."""
        for log in list(self._by_filter.values()):
            if not log.readers:
                self._unused(log)
                continue
            readers = [cast(SessionSubscription, reader) for reader in log.readers]
            log.begin_head(min(r.read_count for r in readers), min(r.read_bytes for r in readers))
            if len(readers) > 1:  # what a single one does not need he finds and lets go of by himself
                log.trim()


def _session_of(reader: LogReader) -> Session:
    return cast(Session, cast(SessionSubscription, reader).session)
