"""Messages of one log that expire by themselves, in the order they do so; a durable queue keeps a record of
each.
"""

from __future__ import annotations

from dataclasses import dataclass

from config import limits
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message, MessageBatch
from queue_manager.rules.stored_window import Key, Window
from queue_manager.shard.timers import Timed
from storage.envelope import expires_at_ms, read_head
from storage.records import UNKNOWN_BYTES, expiry


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


@dataclass(eq=False, repr=False, slots=True)
class OwnTtls(Window[Expiring]):
    """The messages by expiry and offset; `_owner` is called when some may have expired."""

    record = expiry

    queue: QueueLog
    _owner: Timed

    def window_rows(self) -> int:
        return limits.EXPIRY_WINDOW_MESSAGES

    def decode(self, raw: bytes, value: bytes) -> tuple[Key, Expiring]:
        _, end_ms, offset = expiry.parse_key(raw)
        message_id, body_bytes, envelope = expiry.decode(value)
        _, _, received_at_ms = read_head(envelope)
        message = Message(message_id, offset, None, self._templates.find(envelope), received_at_ms)
        return (end_ms, offset), Expiring(message, body_bytes)

    def is_durable(self, key: Key) -> bool:
        return key[1] < self.queue.durable_offset

    def read(self, now_ms: int) -> None:
        self._owner.on_timer(now_ms)

    def append(self, batch: MessageBatch, first_offset: int) -> None:
        """Note messages appended at `first_offset` and following; for a durable queue in the open commit."""
        log = self.queue
        end_ms = expires_at_ms(batch.template, batch.now_ms)
        rows: list[tuple[Key, Expiring]] = []
        for message in batch.messages(first_offset):
            size = len(message.body or b"")
            message.read(None)
            key = (end_ms, message.offset)
            if log.durable:
                value = expiry.encode(message.message_id, size, message.envelope())
                self._context.commit.puts[expiry.key(log.name, *key)] = value
            rows.append((key, Expiring(message, size)))
        self.add(rows)
        self._arm()

    def add_again(self, message: Message) -> None:
        """Have a message expire once more whose record is gone."""
        log = self.queue
        body = message.body
        size = UNKNOWN_BYTES if body is None else len(body)
        key = (expires_at_ms(message.template, message.received_at_ms), message.offset)
        if log.durable:
            value = expiry.encode(message.message_id, size, message.envelope())
            self._context.commit.put(expiry.key(log.name, *key), value)
        self.put(key, Expiring(message, size))
        self._arm()

    def _arm(self) -> None:
        key = self.first()
        if key is not None:
            self._context.timers.set(self._owner, key[0])

    def has_due(self, now_ms: int) -> bool:
        """Return whether some have expired and were not taken yet, as far as the store was read."""
        key = self.first()
        return self.horizon[0] <= now_ms or (key is not None and key[0] <= now_ms)

    def take_due(self, now_ms: int, count: int) -> list[tuple[Key, Expiring]]:
        """Take up to `count` messages that have expired; their records stay."""
        found: list[tuple[Key, Expiring]] = []
        while len(found) < count and (key := self.first()) is not None and key[0] <= now_ms:
            found.append(self.pop())
        if len(self.rows) < limits.EXPIRY_WINDOW_MESSAGES // 2:
            self.read_on()
        self._arm()
        return found
