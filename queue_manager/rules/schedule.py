"""Messages of one queue that are not due yet.

A durable queue's wait on the store, in records ordered by due time and message ID.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from typing import Final

from config import limits
from queue_manager.model import Message, MessageBatch
from queue_manager.rules.stored_window import EVERYTHING, Host, Key, Window
from queue_manager.shard.loads import BodiesLoad
from queue_manager.shard.record_types import HeldPayloads, RecordType, Row
from storage.envelope import SHARED, EnvelopeTemplate, read_head
from storage.records import scheduled


class Planned:
    """One message to come; `body` is None while only the store holds it."""

    __slots__ = ("body", "body_bytes", "template")

    def __init__(self, template: EnvelopeTemplate, body: bytes | None) -> None:
        self.template = template
        self.body = body
        self.body_bytes = len(body or b"")

    def read(self, body: bytes | None) -> None:
        """Take the payload that was read; None: it is on the store only."""
        self.body = body
        self.body_bytes = len(body or b"")


@dataclass(eq=False, repr=False, slots=True)
class Schedule(Window[Planned]):
    """The scheduled messages of a queue, by due time and message ID.

    `count` is how many there are in all, as far as they were counted.
    """

    record = scheduled
    awaits_all = True

    queue: Host
    count: int = field(default=0, init=False)
    memory_bytes: int = field(default=0, init=False)
    _bodies: dict[int, bytes] = field(default_factory=dict, init=False)  # by ID, until they are on the store
    _removed: set[Key] = field(default_factory=set, init=False)  # cancelled; the store may still show them
    _counted_to: Key = field(default=EVERYTHING, init=False)  # of what was on the store at the start
    _first_own_id: int = field(default=0, init=False)  # from here on they were scheduled since the start
    _counted: set[Key] = field(default_factory=set, init=False)  # also, with older IDs, till all is counted
    _is_loading: bool = field(default=False, init=False)

    # the window

    def window_rows(self) -> int:
        return limits.SCHEDULE_WINDOW_MESSAGES

    def decode(self, raw: bytes, value: bytes) -> tuple[Key, Planned]:
        _, due_ms, message_id = scheduled.parse_key(raw)
        return (due_ms, message_id), Planned(self._templates.find(value), None)

    def is_durable(self, key: Key) -> bool:
        return key[1] not in self._bodies

    def put(self, key: Key, row: Planned) -> None:
        if key not in self._removed:
            Window.put(self, key, row)
            self.memory_bytes += row.body_bytes

    def forget_row(self, row: Planned) -> None:
        self.memory_bytes -= row.body_bytes
        row.read(None)

    def read(self, now_ms: int) -> None:
        self.on_timer(now_ms)

    def committed(self, tokens: list[int]) -> None:
        for token in tokens:
            for _, message_id in self._tokens[token]:
                self._bodies.pop(message_id, None)
        Window.committed(self, tokens)

    # scheduling

    def enter(
        self, template: EnvelopeTemplate, first_id: int, bodies: list[bytes], due_ms: int, now_ms: int
    ) -> None:
        """Schedule messages with IDs from `first_id` on; for a durable queue in the open commit."""
        queue = self.queue
        puts = self._context.commit.puts
        envelope = Message(0, 0, None, template, now_ms).envelope()  # the offset is not known yet
        is_counting = self._counted_to != EVERYTHING
        is_held = not queue.durable or (
            due_ms - now_ms <= limits.SCHEDULE_NEAR_MS and due_ms <= self.horizon[0]
        )
        rows: list[tuple[Key, Planned]] = []
        for message_id, body in enumerate(bodies, first_id):
            key = (due_ms, message_id)
            self.count += 1
            if is_counting and message_id < self._first_own_id:  # it was staged before the start
                self._counted.add(key)
            if queue.durable:
                puts[scheduled.key(queue.name, due_ms, message_id)] = envelope
                self._bodies[message_id] = body
            rows.append((key, Planned(template, body if is_held else None)))
        self.add(rows)
        self._arm(now_ms)

    def begin(self) -> None:
        """Read what is next, after a start, and count what the store holds."""
        self._counted_to = (0, 0)
        self._first_own_id = self._context.message_ids.next_value
        Window.begin(self)
        self._count_on()

    def _count_on(self) -> None:
        self.scan(self._counted_to, self._rows_counted)

    def _rows_counted(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        if self.queue.deleted:
            return
        for raw, _ in rows:
            _, due_ms, message_id = scheduled.parse_key(raw)
            key = (due_ms, message_id)
            is_known = key <= self._counted_to or key in self._removed or key in self._counted
            if not is_known and message_id < self._first_own_id:
                self.count += 1
        if len(rows) < limits.SCHEDULE_WINDOW_MESSAGES:
            self._counted_to = EVERYTHING
            self._counted.clear()
            return
        self._counted_to = max(self._counted_to, key)
        self._count_on()

    def _discount(self, key: Key) -> None:
        """Count a message as scheduled no more; one not counted yet never will be."""
        if key <= self._counted_to or key[1] >= self._first_own_id or key in self._counted:
            self.count -= 1
        elif key not in self._removed:
            self._counted_to = key

    # coming due

    def _arm(self, now_ms: int) -> None:
        """Ask to be called when something is due, or its payload should be read."""
        key = self.first()
        if key is None:
            self.read_on()
            return
        due_ms = key[0]
        if not self._is_at_hand(key):
            if self._is_loading:
                return
            due_ms = max(due_ms - limits.SCHEDULE_NEAR_MS, 0)
        self._context.timers.set(self, due_ms)

    def _is_at_hand(self, key: Key) -> bool:
        return self.rows[key].body is not None or key[1] in self._bodies

    def on_timer(self, now_ms: int) -> None:
        """Append what is due, in order; read what is due soon."""
        queue = self.queue
        if queue.deleted:
            return
        for key, planned in self._take_due(now_ms):
            body = planned.body if planned.body is not None else self._bodies[key[1]]
            self.memory_bytes -= planned.body_bytes
            self._discount(key)
            queue.append_stored(MessageBatch(planned.template, key[1], [body], len(body), now_ms))
            if queue.durable:
                self._context.commit.delete(scheduled.key(queue.name, *key))
        if len(self.rows) < limits.SCHEDULE_WINDOW_MESSAGES // 2:
            self.read_on()
        first = self.first()
        if first is not None and not self._is_at_hand(first):
            self._read_bodies(now_ms)
        if first is not None and first[0] <= now_ms:
            if not self._is_loading:
                self._context.timers.set(self, now_ms)  # the rest after others had their turn
        else:
            self._arm(now_ms)

    def _take_due(self, now_ms: int) -> list[tuple[Key, Planned]]:
        """Take out what is due and in memory, as much as one step may append."""
        taken: list[tuple[Key, Planned]] = []
        while len(taken) < limits.SCHEDULE_STEP_MESSAGES:
            key = self.first()
            if key is None or key[0] > now_ms or not self._is_at_hand(key):
                break
            taken.append(self.pop())
        return taken

    def _read_bodies(self, now_ms: int) -> None:
        """Read what is due soon, of the messages that are next."""
        soon_ms = now_ms + limits.SCHEDULE_NEAR_MS
        missing = [
            key
            for key in nsmallest(limits.LOAD_MESSAGES_MAX, self.rows)
            if key[0] <= soon_ms and not self._is_at_hand(key)
        ]
        if missing and not self._is_loading:
            self._is_loading = True
            load = BodiesLoad([message_id for _, message_id in missing], partial(self._bodies_read, missing))
            self._context.loads.append(load)

    def _bodies_read(self, keys: list[Key], bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
        self._is_loading = False
        for key in keys[:read_count]:
            planned = self.rows.get(key)
            if planned is None:
                continue
            body = bodies.get(key[1])
            if body is None:
                # gone, though its row was there: a removal was interrupted
                del self.rows[key]
                self._discount(key)
                self._context.commit.delete(scheduled.key(self.queue.name, *key))
                continue
            planned.read(body)
            self.memory_bytes += len(body)
        self.on_timer(now_ms)

    # cancelling, ending

    def cancel(self, key: Key) -> None:
        """Forget a message whose row is being deleted."""
        self._beyond.pop(key, None)
        planned = self.rows.pop(key, None)
        if planned is not None:
            self.memory_bytes -= planned.body_bytes
        self._removed.add(key)
        self._discount(key)

    def cancelled(self, key: Key) -> None:
        """Note that the delete of its row is durable."""
        if not self._is_scanning and self._counted_to == EVERYTHING:
            self._removed.discard(key)

    def rows_after(self, key: Key, limit: int) -> list[tuple[Key, Planned]]:
        """Return at most `limit` scheduled messages of a queue in memory, behind that key, in order."""
        keys = nsmallest(limit, [known for known in self.rows if known > key])
        return [(known, self.rows[known]) for known in keys]

    def take_all(self) -> list[tuple[Key, Planned]]:
        """Empty the schedule of a queue in memory; give what was in it, in order."""
        everything = sorted(self.rows.items())
        self.rows = {}
        self.count = self.memory_bytes = 0
        return everything


def _held(row: Row) -> list[HeldPayloads]:
    flags, _, _ = read_head(row[1])
    return [HeldPayloads(scheduled.parse_key(row[0]).message_id, 1, bool(flags & SHARED), None)]


SCHEDULE_TYPES: Final = (RecordType(record=scheduled, held=_held, run_fields=1),)
