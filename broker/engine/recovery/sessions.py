"""MQTT sessions as they were left: the sessions, their subscriptions, and the logs these read."""

from __future__ import annotations

from collections import defaultdict

from broker.engine.scan import scan_prefix
from queue_manager.manager import QueueManager
from queue_manager.sessions.filter_log import EMPTY, Extent, FilterLog
from queue_manager.sessions.session import Session
from storage.encoding import prefix_end
from storage.errors import CorruptRecord
from storage.records import (
    filter_log,
    filter_log_entry,
    session,
    session_progress,
    session_received,
    session_subscription,
)
from storage.records.session_subscription import NO_LOG
from storage.store import Store


async def restore_sessions(store: Store, manager: QueueManager, now_ms: int) -> None:
    """Restore every session that was stored."""
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


async def _restore_logs(store: Store, manager: QueueManager) -> dict[int, FilterLog]:
    logs = {}
    async for key, raw in scan_prefix(store, filter_log.PREFIX):
        number = filter_log.parse_key(key)
        logs[number] = manager.sessions.restore_log(
            number, filter_log.decode(raw), await _extent_of(store, number)
        )
    return logs


async def _extent_of(store: Store, log: int) -> Extent:
    """What a log got and has let go of, by its last and its first entry."""
    start = filter_log_entry.prefix(log)
    end = prefix_end(start)
    newest = await store.scan(start, end, limit=1, reverse=True)
    if not newest:
        return EMPTY
    last = filter_log_entry.decode_head(newest[0][1])
    first = filter_log_entry.decode_head((await store.scan(start, end, limit=1))[0][1])
    return Extent(
        last.first_count + last.message_count,
        last.first_bytes + last.body_bytes,
        first.first_count,
        first.first_bytes,
    )


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
