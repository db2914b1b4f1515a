"""Reading messages back from the store: log entries with their payloads, in key order."""

from __future__ import annotations

from bisect import bisect_left

from broker.engine.log_steps import Steps, walk_log
from config import limits
from queue_manager.model import Message
from queue_manager.shard.loads import LogLoad
from storage.envelope import TemplateCache, read_head
from storage.metadata_log import MetadataLog
from storage.records import metadata, payload
from storage.store import Store


class LogReader:
    """Performs the queue manager's loads on a store."""

    def __init__(self, store: Store, log: MetadataLog) -> None:
        self._store = store
        self._log = log
        self._templates = TemplateCache()
        self._payload_bytes = 0.0  # the mean size of payloads read lately

    async def read_log(self, load: LogLoad) -> tuple[list[Message], int, int]:
        """Read messages from `load.offset`, the offset after the last one seen, the sequence to go on at.

        Messages whose payload is gone are left out. The first of the three may so be empty although there
        is more to read.
        """
        messages: list[Message] = []
        next_offset = load.offset
        sequence = load.sequence
        # everything before the tail has been durable, so what the log does not have of it is gone
        log_end = load.target.log_end()
        wanted: list[tuple[int, bytes, int]] = []
        ranges = self._log.scan_bounds(load.target.log_id, load.sequence)
        async for scan, rows in walk_log(self._store, ranges, Steps(limits.LOAD_ENTRIES_PER_SCAN)):
            for key, value in rows:
                sequence = scan.sequence(key)
                for message_id, envelope in metadata.decode(value):
                    if read_head(envelope)[1] >= load.offset:
                        wanted.append((message_id, envelope, sequence))
                if len(wanted) >= limits.LOAD_MESSAGES_MAX:
                    break
            if len(wanted) >= limits.LOAD_MESSAGES_MAX:
                break
        if not wanted:
            return [], max(load.offset, log_end), sequence
        bodies, read_count = await self.read_payloads([message_id for message_id, _, _ in wanted])
        # the entry of the first one not read is read again; offsets below next_offset are passed over then
        for message_id, envelope, entry_sequence in wanted[:read_count]:
            sequence = entry_sequence
            _, offset, received_at_ms = read_head(envelope)
            body = bodies.get(message_id)
            if body is not None:
                template = self._templates.find(envelope)
                messages.append(Message(message_id, offset, body, template, received_at_ms))
            next_offset = offset + 1
        return messages, next_offset, sequence

    async def read_payloads(self, message_ids: list[int]) -> tuple[dict[int, bytes], int]:
        """Read payloads by message ID, and tell how many of `message_ids`, from the first on, were looked for
        (those of them that are missing are gone).

        Looks for at least one and stops at about `limits.LOAD_BYTES_MAX`. IDs that rise and lie close
        together are read by one scan; IDs need not rise with offsets (a delayed message keeps its own).
        """
        bodies: dict[int, bytes] = {}
        ids = message_ids
        is_small = self._payload_bytes <= limits.LOAD_SMALL_BYTES
        sparse_ratio = limits.LOAD_SPARSE_RATIO_SMALL if is_small else limits.LOAD_SPARSE_RATIO
        index = 0
        body_bytes = 0
        while index < len(ids) and body_bytes < limits.LOAD_BYTES_MAX:
            end = index
            while (
                end + 1 < len(ids)
                and ids[end] < ids[end + 1]
                and ids[end + 1] - ids[index] < (end + 2 - index) * sparse_ratio
                and end + 1 - index < limits.LOAD_MESSAGES_MAX
            ):
                end += 1
            if end == index:
                body = await self._store.get(payload.key(ids[index]))
                if body is not None:
                    bodies[ids[index]] = body
                    body_bytes += len(body)
                    self._payload_bytes += (len(body) - self._payload_bytes) / 64
            else:
                read_bytes, end_id = await self._scan_payloads(ids[index : end + 1], bodies, body_bytes)
                body_bytes += read_bytes
                if end_id <= ids[end]:
                    return bodies, index + bisect_left(ids[index : end + 1], end_id)
            index = end + 1
        return bodies, index

    async def _scan_payloads(
        self, ids: list[int], bodies: dict[int, bytes], held_bytes: int
    ) -> tuple[int, int]:
        wanted = set(ids)
        start: bytes = payload.key(ids[0])
        end = payload.key(ids[-1] + 1)
        read_bytes = row_count = 0
        limit = max(
            1, min(4, int(limits.LOAD_BYTES_MAX // (self._payload_bytes + 1)))
        )  # sizes are not known yet
        while True:
            rows = await self._store.scan(start, end, limit=limit)
            for key, value in rows:
                message_id = int.from_bytes(key[2:], "big")
                if message_id in wanted:
                    bodies[message_id] = value
                read_bytes += len(value)
            if rows:
                self._payload_bytes = read_bytes / (row_count := row_count + len(rows))
            if len(rows) < limit:
                return read_bytes, ids[-1] + 1
            if held_bytes + read_bytes >= limits.LOAD_BYTES_MAX:
                return read_bytes, message_id + 1
            start = rows[-1][0] + b"\x00"
            # large payloads in small steps, small ones in large
            limit = max(1, min(2_048, (limits.LOAD_BYTES_MAX - read_bytes) // (read_bytes // limit + 1)))
