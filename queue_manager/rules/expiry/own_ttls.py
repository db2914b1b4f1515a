"""Messages of one log that expire by themselves, in the order they do so.

A durable queue keeps a record of each; memory holds the next of them, up to a horizon beyond which there may
be more to read. What was added beyond the horizon is remembered until its commit is durable, so that reading
on never misses it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

from config import limits
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.shard.loads import ScanLoad
from queue_manager.shard.timers import Timed
from storage.encoding import prefix_end
from storage.envelope import EnvelopeTemplate, TemplateCache, expires_at_ms, read_head
from storage.records import UNKNOWN_BYTES, expiry

Key = tuple[int, int]  # expiry in ms, offset
EVERYTHING: Final[Key] = (1 << 63, 0)


class Expiring:
    """One message to come; its body, of `body_bytes` (`UNKNOWN_BYTES`: to be read), is mostly None.

    `is_gone`: there is no payload.
    """

    __slots__ = ("body_bytes", "is_gone", "message")

    def __init__(self, message: Message, body_bytes: int) -> None:
        self.message = message
        self.body_bytes = body_bytes
        self.is_gone = False

    def read(self, body: bytes | None) -> None:
        """Take the payload that was read; None: there is none."""
        self.message.read(body)
        self.is_gone = body is None

    def measure(self) -> None:
        """Learn the size from the payload."""
        if self.body_bytes == UNKNOWN_BYTES:
            self.body_bytes = len(self.message.body or b"")


class OwnTtls:
    """The keys up to `horizon`, as a heap."""

    __slots__ = (
        "_beyond",
        "_committed",
        "_heap",
        "_is_scanning",
        "_next_token",
        "_rows",
        "_templates",
        "_tokens",
        "_log",
        "_owner",
        "horizon",
    )

    def __init__(self, log: QueueLog, owner: Timed) -> None:
        self._log = log
        self._owner = owner
        self.horizon = EVERYTHING
        self._heap: list[Key] = []
        self._rows: dict[Key, Expiring] = {}
        self._beyond: dict[Key, Expiring] = {}  # later than the horizon, perhaps not on the store yet
        self._committed: list[Key] = []  # of them, those that are on the store
        self._tokens: dict[int, list[Key]] = {}
        self._next_token = 0
        self._is_scanning = False
        self._templates = TemplateCache()

    def __len__(self) -> int:
        return len(self._heap)

    def add(
        self, template: EnvelopeTemplate, first_id: int, first_offset: int, bodies: list[bytes], now_ms: int
    ) -> None:
        """Note messages appended at `first_offset` and following; for a durable queue in the open commit."""
        log = self._log
        end_ms = expires_at_ms(template, now_ms)
        beyond: list[Key] = []
        for index, body in enumerate(bodies):
            message = Message(first_id + index, first_offset + index, None, template, now_ms)
            key = (end_ms, message.offset)
            row = Expiring(message, len(body))
            if log.durable:
                value = expiry.encode(message.message_id, len(body), message.envelope())
                log.context.commit.puts[expiry.key(log.name, *key)] = value
            if key <= self.horizon:
                self.put(key, row)
            else:
                self._beyond[key] = row
                beyond.append(key)
        self._shrink(beyond)
        if beyond:
            self._next_token += 1
            self._tokens[self._next_token] = beyond
            log.context.commit.wait(self, self._next_token)
        self._arm()

    def add_again(self, message: Message) -> None:
        """Have a message expire once more whose record is gone."""
        log = self._log
        body = message.body
        size = UNKNOWN_BYTES if body is None else len(body)
        key = (expires_at_ms(message.template, message.received_at_ms), message.offset)
        if log.durable:
            value = expiry.encode(message.message_id, size, message.envelope())
            log.context.commit.put(expiry.key(log.name, *key), value)
        self.put(key, Expiring(message, size))
        self._arm()

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`: the store has these now."""
        for token in tokens:
            self._committed += self._tokens.pop(token)
        if not self._is_scanning:
            self._forget_committed()

    def _forget_committed(self) -> None:
        for key in self._committed:
            self._beyond.pop(key, None)
        self._committed = []

    def put(self, key: Key, row: Expiring) -> None:
        """Have a message be due; also one that could not be given up."""
        if key not in self._rows:
            heappush(self._heap, key)
        self._rows[key] = row

    def _shrink(self, beyond: list[Key]) -> None:
        """Keep only the next ones in memory; the others are read back in their time."""
        if not self._log.durable or len(self._heap) <= 2 * limits.EXPIRY_WINDOW_MESSAGES:
            return
        kept = nsmallest(limits.EXPIRY_WINDOW_MESSAGES, self._heap)
        self.horizon = kept[-1]
        durable_offset = self._log.durable_offset
        for key in self._heap:
            if key > self.horizon:
                row = self._rows.pop(key)
                if key[1] >= durable_offset:
                    self._beyond[key] = row
                    beyond.append(key)
        self._heap = kept
        heapify(self._heap)

    def _arm(self) -> None:
        if self._heap:
            self._log.context.timers.set(self._owner, self._heap[0][0])

    def has_due(self, now_ms: int) -> bool:
        """Return whether some have expired and were not taken yet, as far as the store was read."""
        return self.horizon[0] <= now_ms or bool(self._heap and self._heap[0][0] <= now_ms)

    def take_due(self, now_ms: int, count: int) -> list[tuple[Key, Expiring]]:
        """Take up to `count` messages that have expired; their records stay."""
        found: list[tuple[Key, Expiring]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < count:
            key = heappop(self._heap)
            found.append((key, self._rows.pop(key)))
        if len(self._heap) < limits.EXPIRY_WINDOW_MESSAGES // 2:
            self._read_on()
        self._arm()
        return found

    def begin(self) -> None:
        """Read what is next, after a start."""
        self.horizon = (0, 0)
        self._read_on()

    def _read_on(self) -> None:
        if self._is_scanning or self.horizon == EVERYTHING or self._log.deleted:
            return
        self._is_scanning = True
        name = self._log.name
        start = expiry.key(name, *self.horizon) + b"\x00"
        load = ScanLoad(
            start, prefix_end(expiry.prefix(name)), limits.EXPIRY_WINDOW_MESSAGES, self._rows_read
        )
        self._log.context.loads.append(load)

    def _rows_read(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        self._is_scanning = False
        if self._log.deleted:
            return
        horizon = EVERYTHING
        for raw, value in rows:
            _, end_ms, offset = expiry.parse_key(raw)
            message_id, body_bytes, envelope = expiry.decode(value)
            _, _, received_at_ms = read_head(envelope)
            template = self._templates.find(envelope)
            message = Message(message_id, offset, None, template, received_at_ms)
            self.put((end_ms, offset), Expiring(message, body_bytes))
        if len(rows) == limits.EXPIRY_WINDOW_MESSAGES:
            horizon = (end_ms, offset)
        for key in [key for key in self._beyond if key <= horizon]:
            self.put(key, self._beyond.pop(key))
        self._forget_committed()
        self.horizon = horizon
        self._owner.on_timer(now_ms)
