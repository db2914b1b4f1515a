"""Reading a stretch of a stream back: whole log entries and one scan of payloads, where they lie together."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from broker.engine.log_reader import LogReader
from broker.engine.log_steps import Steps, walk_log
from config import limits
from queue_manager.model import Message
from queue_manager.shard.loads import StreamLoad
from storage.envelope import EnvelopeTemplate, TemplateCache, read_head
from storage.metadata_log import MetadataLog
from storage.records import metadata, payload
from storage.store import Store

FIRST_ENTRIES: Final = 12
_ELEMENT_HEAD_BYTES: Final = 30  # message ID, length, and what of the envelope differs by message
_FIRST_LENGTH: Final = struct.Struct("<I").unpack_from


class _Found:
    """The messages of a stretch without their payloads, column by column."""

    __slots__ = ("ids", "offsets", "templates", "times")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.templates: list[EnvelopeTemplate] = []

    def add(
        self,
        ids: Iterable[int],
        offsets: Iterable[int],
        times: Iterable[int],
        templates: Iterable[EnvelopeTemplate],
    ) -> None:
        """Add more messages."""
        self.ids += ids
        self.offsets += offsets
        self.times += times
        self.templates += templates


class StreamBlockReader:
    """Performs the loads of streams; whatever is not laid out plainly goes through the log reader."""

    def __init__(self, store: Store, log: MetadataLog, reader: LogReader) -> None:
        self._store = store
        self._log = log
        self._reader = reader
        self._templates = TemplateCache()

    async def read(self, load: StreamLoad) -> tuple[list[Message], int, int]:
        """Read messages from `load.offset` to `load.end`, where it really ended, the log entry to go on
        at.
        """
        found, sequence = await self._entries(load)
        ids = found.ids
        if not ids:
            return [], max(load.end, load.target.log_end()), sequence
        end = found.offsets[-1] + 1
        count = len(ids)
        if ids[-1] - ids[0] == count - 1 and ids == list(range(ids[0], ids[0] + count)):
            rows = await self._store.scan(payload.key(ids[0]), payload.key(ids[-1] + 1), limit=count)
            if len(rows) == count:
                bodies = [body for _, body in rows]
                return (
                    list(map(Message, ids, found.offsets, bodies, found.templates, found.times)),
                    end,
                    sequence,
                )
        return await self._one_by_one(found), end, sequence

    async def _one_by_one(self, found: _Found) -> list[Message]:
        bodies: dict[int, bytes] = {}
        start = 0
        while start < len(found.ids):
            part, read_count = await self._reader.read_payloads(found.ids[start:])
            bodies.update(part)
            start += read_count
        return [
            Message(message_id, offset, bodies[message_id], template, at_ms)
            for message_id, offset, template, at_ms in zip(
                found.ids, found.offsets, found.templates, found.times, strict=True
            )
            if message_id in bodies
        ]

    async def _entries(self, load: StreamLoad) -> tuple[_Found, int]:
        """Return what the log entries from `load.sequence` on say, and the sequence behind the last of
        them.
        """
        found = _Found()
        sequence = load.sequence
        steps = Steps(FIRST_ENTRIES)
        entry_count = 0
        ranges = self._log.scan_bounds(load.target.log_id, load.sequence)
        async for scan, rows in walk_log(self._store, ranges, steps):
            for key, value in rows:
                self._add(found, value, load.offset)
                sequence = scan.sequence(key) + 1
                entry_count += 1
                if found.offsets and found.offsets[-1] + 1 >= load.end:
                    return found, sequence
            # entries of few messages in large steps
            missing = load.end - load.offset - len(found.ids)
            fitting = missing * entry_count // max(1, len(found.ids)) + 1
            steps.go_on_by(min(limits.STORE_SCAN_ROWS_MAX, fitting))
        return found, sequence

    def _add(self, found: _Found, value: bytes, from_offset: int) -> None:
        count = value[0] | value[1] << 8
        if count > 1 and self._add_alike(found, value, count, from_offset):
            return
        part = _Found()
        for message_id, envelope in metadata.decode(value):
            _, offset, at_ms = read_head(envelope)
            if offset >= from_offset:
                part.ids.append(message_id)
                part.offsets.append(offset)
                part.times.append(at_ms)
                part.templates.append(self._templates.find(envelope))
        found.add(part.ids, part.offsets, part.times, part.templates)

    def _add_alike(self, found: _Found, value: bytes, count: int, from_offset: int) -> bool:
        """Take an entry whose messages were published alike; False: it is not one."""
        length: int = _FIRST_LENGTH(value, 10)[0]
        suffix_bytes = length + 12 - _ELEMENT_HEAD_BYTES
        if suffix_bytes < 0 or len(value) != 2 + count * (length + 12):
            return False
        table = struct.iter_unpack(f"<QI2sQq{suffix_bytes}s", memoryview(value)[2:])
        ids, lengths, heads, offsets, times, suffixes = zip(*table, strict=True)
        if (
            offsets[0] < from_offset
            or lengths.count(length) != count
            or heads.count(heads[0]) != count
            or suffixes.count(suffixes[0]) != count
        ):
            return False
        found.add(ids, offsets, times, repeat(self._templates.find(value[14 : 14 + length]), count))
        return True
