"""MQTT sessions as they were left: the sessions, their subscriptions, and the logs these read."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from broker.engine.log_steps import scan_records
from broker.engine.recovery.log_ends import read_log_ends
from queue_manager.address import DEFAULT_VHOST
from queue_manager.manager import QueueManager
from queue_manager.sessions.filter_log import FilterLog
from queue_manager.sessions.session import Session
from queue_manager.sessions.vhost_sessions import Sessions
from storage.errors import CorruptRecord
from storage.records import (
    NO_LOG,
    filter_log,
    session,
    session_progress,
    session_received,
    session_subscription,
    session_will,
)
from storage.records.filter_log_entries import EntryHead
from storage.store import Store


async def restore_sessions(store: Store, manager: QueueManager, now_ms: int) -> None:
    """Restore every session that was stored, and the wills of those that there were."""
    logs = _StoredLogs(await _read_logs(store))
    sessions = await _restore_sessions(store, manager, now_ms)
    async for (number, topic_filter), value in scan_records(store, session_subscription):
        found = sessions.get(number)
        if found is None:
            raise CorruptRecord(session_subscription.name, "session", f"there is none of number {number}")
        of_vhost, owner = found
        log = None if value.log == NO_LOG else logs.restored(value.log, of_vhost)
        of_vhost.restore_subscription(owner, topic_filter, value, log)
    logs.remove_rest(manager.sessions.of(DEFAULT_VHOST))
    manager.sessions.restored(now_ms)
    async for number, will in scan_records(store, session_will):
        manager.sessions.restore_will(number, will)


class _StoredLog(NamedTuple):
    """A log as it is stored: its filter, and what it ever got."""

    filter: str
    end_count: int
    end_bytes: int


class _StoredLogs:
    """The logs that are stored, each restored where the first of its readers is: they tell its virtual
    host.
    """

    def __init__(self, stored: dict[int, _StoredLog]) -> None:
        self._stored = stored
        self._restored: dict[int, FilterLog] = {}

    def restored(self, number: int, of_vhost: Sessions) -> FilterLog:
        """Return the log of that number, for a subscription there."""
        log = self._restored.get(number)
        if log is None:
            stored = self._stored.pop(number, None)
            if stored is None:
                raise CorruptRecord(session_subscription.name, "log", f"there is none of number {number}")
            log = self._restored[number] = of_vhost.logs.restore(number, *stored)
        return log

    def remove_rest(self, sessions: Sessions) -> None:
        """Remove those without readers."""
        for number, stored in self._stored.items():
            sessions.logs.remove_unread(number, *stored)


async def _read_logs(store: Store) -> dict[int, _StoredLog]:
    ends = await read_log_ends(store)
    return {
        number: _StoredLog(topic_filter, *_extent(ends.get(number)))
        async for number, topic_filter in scan_records(store, filter_log)
    }


def _extent(newest: EntryHead | None) -> tuple[int, int]:
    """Return how many messages, and bytes of body, a log ever got, by its last entry; 0 if it has none."""
    if newest is None:
        return 0, 0
    return newest.first_count + newest.message_count, newest.first_bytes + newest.body_bytes


async def _restore_sessions(
    store: Store, manager: QueueManager, now_ms: int
) -> dict[int, tuple[Sessions, Session]]:
    progress = {number: sent async for number, sent in scan_records(store, session_progress)}
    received = defaultdict(list)
    async for (number, packet_id), _ in scan_records(store, session_received):
        received[number].append(packet_id)
    sessions = {}
    async for client_id, value in scan_records(store, session):
        sessions[value.number] = manager.sessions.restore(
            client_id, value, progress.get(value.number), received[value.number], now_ms
        )
    return sessions
