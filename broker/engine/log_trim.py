"""Going through a queue's log to delete: below its head, and stretches that a group was purged of."""

from __future__ import annotations

from broker.engine.commit_loop import CommitLoop
from broker.engine.payload_references import SHARED_FLAG
from config import limits
from queue_manager.group_removal import trim_limit
from queue_manager.manager import QueueManager
from queue_manager.queue import Queue
from queue_manager.removal import RangeRemoval
from storage.envelope import HAS_EXPIRES_AT, decode_envelope, read_head
from storage.metadata_log import ScanRange
from storage.records import expiry, metadata, payload
from storage.store import Store


class LogTrimmer:
    """Trims the logs of queues that are emptied."""

    def __init__(self, store: Store, manager: QueueManager, commits: CommitLoop) -> None:
        self._store = store
        self._manager = manager
        self._commits = commits

    async def release_range(self, removal: RangeRemoval) -> None:
        """Find the messages a group was purged of."""
        queue = removal.group.queue
        for scan in self._manager.log.scan_bounds(queue.log_id, removal.sequence):
            start = scan.start
            while not queue.deleted:
                rows = await self._store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
                if not rows:
                    break
                found = []
                offset = 0
                for _, value in rows:
                    for message_id, envelope in metadata.decode(value):
                        flags, offset, _ = read_head(envelope)
                        if removal.start <= offset < removal.end:
                            found.append((offset, message_id, bool(flags & SHARED_FLAG)))
                self._manager.release_range(removal, found)
                await self._commits.room_for_deletes()
                if offset + 1 >= removal.end:
                    return
                start = rows[-1][0] + b"\x00"

    async def trim(self, queue: Queue) -> None:
        """Delete the log entries wholly below the head, and write the head down with the same commit."""
        head = trim_limit(queue)
        for scan in self._manager.log.scan_bounds(queue.log_id, queue.head_sequence):
            start = scan.start
            while not queue.deleted:
                rows = await self._store.scan(start, scan.end, limit=limits.REMOVAL_ENTRIES_PER_STEP)
                if not rows:
                    break
                if self._trim_rows(queue, scan, rows, head):
                    if queue.keeper is not None:
                        queue.keeper.head_written(head)
                    return
                await self._commits.room_for_deletes()
                start = rows[-1][0] + b"\x00"
        if not queue.deleted:
            if queue.keeper is not None:
                queue.keeper.head_written(head)
            self._manager.head_trimmed(queue, head)

    def _trim_rows(self, queue: Queue, scan: ScanRange, rows: list[tuple[bytes, bytes]], head: int) -> bool:
        """Trim these entries; whether the head was reached."""
        journal = self._manager.journal
        for key, value in rows:
            messages = metadata.decode(value)
            last_offset = read_head(messages[-1][1])[1]
            queue.head_sequence = max(queue.head_sequence, scan.sequence(key))
            if last_offset >= head:
                self._manager.head_trimmed(queue, head)
                return True
            journal.delete(key)
            for _, envelope in messages:
                if envelope[1] & HAS_EXPIRES_AT:
                    found = decode_envelope(envelope)
                    journal.delete(expiry.key(queue.name, found.expiry_ms, found.offset))
            if last_offset < queue.recovered_end:
                # a crash between releasing and deleting may have left payloads behind
                for message_id, envelope in messages:
                    flags, offset, _ = read_head(envelope)
                    if not flags & SHARED_FLAG and not queue.has_failed(offset):
                        journal.delete(payload.key(message_id))
        self._manager.head_trimmed(queue, head)
        return False
