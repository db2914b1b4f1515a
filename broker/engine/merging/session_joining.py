"""The records of MQTT sessions of one shard as they are in another, with other numbers.

A topic filter has one log for all sessions of a shard. Where both shards have one, sessions that come end
with their own, as if they had subscribed anew: what waits there comes first, then what the other gets from
now on. The session of a share group that both have comes as what waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.engine.log_steps import scan_records
from broker.engine.merging.renumbering import Row
from broker.engine.recovery.log_ends import read_log_ends
from queue_manager.address import vhost_of
from queue_manager.sessions.filter_log import ENDED, OWN
from storage.envelope import TemplateCache
from storage.records import (
    NO_LOG,
    SessionValue,
    SubscriptionValue,
    filter_log,
    filter_log_entry,
    session,
    session_progress,
    session_received,
    session_subscription,
    session_will,
)
from storage.records.filter_log_entries import decode_entry, encode_entry, with_publishers
from storage.records.special_codecs import pack_sent
from storage.store import Store

SESSION_KINDS: Final = frozenset(
    kind.number
    for kind in (
        filter_log,
        filter_log_entry,
        session,
        session_progress,
        session_received,
        session_subscription,
        session_will,
    )
)


class Reader(NamedTuple):
    """A subscription that reads a log: its session, name and value."""

    session: int
    name: str
    value: SubscriptionValue


class StoredSessions(NamedTuple):
    """The sessions of a shard by the names they are stored under, and the subscriptions that read a log, by
    its number.
    """

    by_name: dict[str, SessionValue]
    readers: dict[int, list[Reader]]

    def logs(self) -> dict[tuple[str, str], int]:
        """Return the logs of topic filters, by virtual host and filter."""
        vhosts = {value.number: vhost_of(name) for name, value in self.by_name.items()}
        return {
            (vhosts[reader.session], reader.name): log
            for log, readers in self.readers.items()
            for reader in readers
            if not reader.name.startswith(OWN)
        }


class JoinedLog(NamedTuple):
    """A log that sessions read on, and what it ever got."""

    number: int
    end_count: int
    end_bytes: int


async def read_sessions(store: Store, below: int) -> StoredSessions:
    """Read those with numbers below `below`: others were brought here before. Raises StorageError."""
    by_name = {name: value async for name, value in scan_records(store, session) if value.number < below}
    readers: dict[int, list[Reader]] = {}
    async for (number, name), value in scan_records(store, session_subscription):
        if number < below and value.log != NO_LOG:
            readers.setdefault(value.log, []).append(Reader(number, name, value))
    return StoredSessions(by_name, readers)


async def join_sessions(source: Store, target: Store, ids: int, end: int) -> SessionJoining:
    """Return what tells the records of the source's sessions: `ids` is added to its numbers, and `end` is the
    first that is free then. Raises StorageError.
    """
    here, there = await read_sessions(source, end), await read_sessions(target, ids)
    moved = {
        value.number: there.by_name[name].number
        for name, value in here.by_name.items()
        if name in there.by_name
    }
    ends = await read_log_ends(target)
    known = there.logs()
    joined: dict[int, JoinedLog] = {}
    for place, log in here.logs().items():
        if place in known and not all(reader.session in moved for reader in here.readers[log]):
            head = ends.get(known[place])
            count, body_bytes = (
                (0, 0)
                if head is None
                else (head.first_count + head.message_count, head.first_bytes + head.body_bytes)
            )
            joined[log] = JoinedLog(known[place], count, body_bytes)
    undone = {}
    async for number, (read_to, sent) in scan_records(source, session_progress):
        if number in moved:
            undone[number] = Undone(read_to, frozenset(each.message_id for each in sent))
    return SessionJoining(ids, end, here.readers, moved, joined, undone)


class Undone(NamedTuple):
    """The messages that a session has not done with: from `read_to` on, and some below."""

    read_to: int
    sent: frozenset[int]

    def has(self, message_id: int) -> bool:
        """Return whether a message is one of them."""
        return message_id >= self.read_to or message_id in self.sent


class SessionJoining:
    """Gives the records of sessions as they are in the other shard; those of a filter log have to come in
    order.

    `moved`: sessions whose client has one there, which takes over what waits. `joined`: logs whose filter
    has one there.
    """

    def __init__(
        self,
        ids: int,
        end: int,
        readers: Mapping[int, list[Reader]],
        moved: Mapping[int, int],
        joined: Mapping[int, JoinedLog],
        undone: Mapping[int, Undone],
    ) -> None:
        self._ids = ids
        self._end = end
        self._moved = moved
        self._joined = joined
        self._undone = undone
        self._only_moved = {
            log: each[0].session
            for log, each in readers.items()
            if each[0].session in moved and all(reader.session == each[0].session for reader in each)
        }
        self._closed = {
            log
            for log, each in readers.items()
            if log in joined
            or all(reader.session in moved or reader.name.startswith(ENDED) for reader in each)
        }
        self._counts: dict[int, tuple[int, int]] = {}
        self._templates = TemplateCache()
        self._by_number = {
            filter_log.number: self._log,
            filter_log_entry.number: self._entry,
            session.number: self._session,
            session_progress.number: self._progress,
            session_received.number: self._received,
            session_subscription.number: self._subscription,
            session_will.number: self._will,
        }

    def rows(self, number: int, key: bytes, value: bytes) -> Iterable[Row]:
        """Return what a record of this number comes to. Raises CorruptRecord."""
        return self._by_number[number](key, value)

    def _session(self, key: bytes, value: bytes) -> list[Row]:
        found = session.decode(value)
        if found.number in self._moved:
            return []
        return [(key, session.encode(*found._replace(number=found.number + self._ids)))]

    def _progress(self, key: bytes, value: bytes) -> list[Row]:
        number = session_progress.parse_key(key)
        if number in self._moved:
            return []
        read_to, sent = session_progress.decode(value)
        shifted = [pack_sent(each._replace(message_id=each.message_id + self._ids)) for each in sent]
        return [
            (session_progress.key(number + self._ids), session_progress.encode(read_to + self._ids, shifted))
        ]

    def _received(self, key: bytes, value: bytes) -> list[Row]:
        number, packet_id = session_received.parse_key(key)
        return [] if number in self._moved else [(session_received.key(number + self._ids, packet_id), value)]

    def _will(self, key: bytes, value: bytes) -> list[Row]:
        number = session_will.parse_key(key)
        return [] if number in self._moved else [(session_will.key(number + self._ids), value)]

    # subscriptions

    def _subscription(self, key: bytes, value: bytes) -> list[Row]:
        number, name = session_subscription.parse_key(key)
        found = session_subscription.decode(value)
        is_moved = number in self._moved
        here = found._replace(from_id=found.from_id + self._ids)
        if found.log == NO_LOG:
            return [] if is_moved else [self._row(number, name, here)]
        here = here._replace(log=found.log + self._ids)
        if name.startswith(ENDED):
            end = int(name.rpartition(OWN)[2]) + self._ids
        else:
            end = self._end
        ended = f"{ENDED}{here.log}{OWN}{end}"
        if is_moved:
            return [self._row(number, ended, self._left_of(number, found, here))]
        if name.startswith(ENDED):
            return [self._row(number, ended, here)]
        joined = None if name.startswith(OWN) else self._joined.get(found.log)
        if joined is None:
            return [self._row(number, name, here)]
        on = found._replace(
            log=joined.number, from_id=self._end, read_count=joined.end_count, read_bytes=joined.end_bytes
        )
        return [self._row(number, name, on), self._row(number, ended, here)]

    def _left_of(self, number: int, found: SubscriptionValue, here: SubscriptionValue) -> SubscriptionValue:
        """Return the subscription to what waits for a session, for the one that takes it over."""
        if found.log in self._only_moved:  # its entries are those that wait
            return here._replace(read_count=0, read_bytes=0)
        undone = self._undone.get(number)
        if undone is None:
            return here
        position = min([undone.read_to, *undone.sent])
        return here._replace(from_id=max(here.from_id, position + self._ids))

    def _row(self, number: int, name: str, value: SubscriptionValue) -> Row:
        number = self._moved.get(number, number + self._ids)
        return session_subscription.key(number, name), session_subscription.encode(*value)

    # logs

    def _log(self, key: bytes, value: bytes) -> list[Row]:
        number, name = filter_log.parse_key(key), filter_log.decode(value)
        here = number + self._ids
        if number in self._closed or name == f"{OWN}{number}":
            name = f"{OWN}{here}"
        elif name.startswith(OWN):
            of_session, _, rest = name[1:].partition(OWN)
            name = f"{OWN}{int(of_session) + self._ids}{OWN}{rest}"
        return [(filter_log.key(here), filter_log.encode(name))]

    def _entry(self, key: bytes, value: bytes) -> list[Row]:
        number, first_id = filter_log_entry.parse_key(key)
        here = number + self._ids
        reader = self._only_moved.get(number)
        if reader is None:
            shifted = with_publishers(value, lambda publisher: publisher + self._ids)
            return [(filter_log_entry.key(here, first_id + self._ids), shifted)]
        undone = self._undone.get(reader)
        messages = [
            each._replace(message_id=each.message_id + self._ids)
            for each in decode_entry(first_id, value, self._templates)
            if undone is None or undone.has(each.message_id)
        ]
        if not messages:
            return []
        count, body_bytes = self._counts.get(number, (0, 0))
        added = sum(len(each.body) for each in messages)
        self._counts[number] = count + len(messages), body_bytes + added
        row = encode_entry(count, body_bytes, messages)
        return [(filter_log_entry.key(here, messages[0].message_id), row)]
