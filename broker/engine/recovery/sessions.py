"""MQTT sessions as they were left: the sessions, their subscriptions, and the logs these read."""

from __future__ import annotations

from collections import defaultdict

from broker.engine.recovery.log_ends import read_log_ends
from broker.engine.scan import scan_prefix
from queue_manager.manager import QueueManager
from queue_manager.sessions.filter_log import FilterLog
from queue_manager.sessions.session import Session
from storage.errors import CorruptRecord
from storage.records import (
    filter_log,
    session,
    session_progress,
    session_received,
    session_subscription,
    session_will,
)
from storage.records.filter_log_entry import EntryHead
from storage.records.session_subscription import NO_LOG
from storage.store import Store


async def restore_sessions(store: Store, manager: QueueManager, now_ms: int) -> None:
    """Restore every session that was stored, and the wills of those that there were."""
    logs = await _restore_logs(store, manager)
    sessions = await _restore_sessions(store, manager, now_ms)
    async for key, raw in scan_prefix(store, session_subscription.PREFIX):
        number, topic_filter = session_subscription.parse_key(key)
        value = session_subscription.decode(raw)
        owner = sessions.get(number)
        if owner is None:
            raise CorruptRecord(session_subscription.NAME, "session", f"there is none of number {number}")
        log = None if value.log == NO_LOG else logs.get(value.log)
        if log is None and value.log != NO_LOG:
            raise CorruptRecord(session_subscription.NAME, "log", f"there is none of number {value.log}")
        manager.sessions.restore_subscription(owner, topic_filter, value, log)
    manager.sessions.restored(now_ms)
    async for key, raw in scan_prefix(store, session_will.PREFIX):
        manager.wills.restore(session_will.parse_key(key), session_will.decode(raw))


async def _restore_logs(store: Store, manager: QueueManager) -> dict[int, FilterLog]:
    ends = await read_log_ends(store)
    logs = {}
    async for key, raw in scan_prefix(store, filter_log.PREFIX):
        number = filter_log.parse_key(key)
        logs[number] = manager.sessions.restore_log(
            number, filter_log.decode(raw), *_extent(ends.get(number))
        )
    return logs


def _extent(newest: EntryHead | None) -> tuple[int, int]:
    """How many messages, and bytes of body, a log ever got, by its last entry; 0 if it has none."""
    if newest is None:
        return 0, 0
    return newest.first_count + newest.message_count, newest.first_bytes + newest.body_bytes


async def _restore_sessions(store: Store, manager: QueueManager, now_ms: int) -> dict[int, Session]:
    progress = {}
    async for key, raw in scan_prefix(store, session_progress.PREFIX):
        progress[session_progress.parse_key(key)] = session_progress.decode(raw)
    received = defaultdict(list)
    async for key, _ in scan_prefix(store, session_received.PREFIX):
        number, packet_id = session_received.parse_key(key)
        received[number].append(packet_id)
    sessions = {}
    async for key, raw in scan_prefix(store, session.PREFIX):
        value = session.decode(raw)
        sessions[value.number] = manager.sessions.restore(
            session.parse_key(key), value, progress.get(value.number), received[value.number], now_ms
        )
    return sessions
