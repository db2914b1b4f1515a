"""The messages that a cursor has read back from the store: of the log, and payloads of waiting ones."""

from __future__ import annotations

from functools import partial
from heapq import nsmallest
from typing import Generic

from config import limits
from queue_manager.claims.ledger import Claims
from queue_manager.cursor.owning_cursor import H
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.queue_log import LogTarget
from queue_manager.log.reader import Reader
from queue_manager.log.retention import Retention
from queue_manager.model import Message
from queue_manager.shard.loads import BodiesLoad, LogRows


class ReadBack(LogTarget, Generic[H]):
    """Asks for what is missing, one load at a time, and takes in what comes (see `LoadTarget`)."""

    __slots__ = ("_claims", "_cursor", "_retention", "_stored", "reader")

    def __init__(
        self, cursor: H, retention: Retention[H], claims: Claims, stored: StoredState, sequence: int
    ) -> None:
        super().__init__(retention.log)
        self._cursor = cursor
        self._retention = retention
        self._claims = claims
        self._stored = stored
        self.reader = Reader(self.log, cursor.progress, self, sequence)

    def is_over(self) -> bool:
        return self._cursor.is_over()

    def abandon(self, now_ms: int) -> None:
        self._cursor.loaded(now_ms)

    def request_returned(self) -> None:
        """Have the payloads read of what came back and is next."""
        claims = [claim for _, claim in nsmallest(limits.LOAD_MESSAGES_MAX, self._claims.returned.heap)]
        self.request([c.message for c in claims if c.message.body is None])

    def request(self, messages: list[Message]) -> None:
        """Have the payloads of messages read, unless something is being read already."""
        if not self.reader.is_loading:
            self.reader.hold_up()
            ids = [message.message_id for message in messages]
            self._context.loads.append(BodiesLoad(ids, partial(self.payloads_loaded, messages)))

    def log_loaded(self, found: LogRows, now_ms: int) -> None:
        self.reader.load_ended()
        self._cursor.want_dispatch()
        if not self._cursor.rows_loaded(found) and self.reader.loaded(found, self.release_gone):
            self._stored.mark_dirty()
        self._cursor.loaded(now_ms)

    def release_gone(self, start: int, end: int) -> None:
        """Note that the offsets `start` to `end` have no payload any more."""
        if not self._cursor.is_removed:
            self._retention.payloads.release_gone(self._cursor, start, end)

    def payloads_loaded(
        self, messages: list[Message], bodies: dict[int, bytes], read_count: int, now_ms: int
    ) -> None:
        """Take the payloads that were read of the first `read_count` messages; what is missing is gone."""
        if self.is_over():
            self.abandon(now_ms)
            return
        self.reader.load_ended()
        self.log.note_sizes(bodies.values())
        gone: set[int] = set()
        for message in messages[:read_count]:
            body = bodies.get(message.message_id)
            message.read(body)
            if body is None:
                gone.add(message.message_id)
        if gone:
            came_back = [claim for _, claim in self._claims.returned.heap]
            self._claims.drop_gone([*came_back, *self._cursor.drop_held(gone)], gone)
        self._cursor.want_dispatch()
        self._cursor.loaded(now_ms)
