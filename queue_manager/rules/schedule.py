"""Messages of one queue that are not due yet.

A durable queue's wait on the store, in records ordered by due time and message ID. Memory holds the next of
them: everything up to a horizon, beyond which there may be more to read. What was scheduled beyond the
horizon is remembered until its commit is durable, so that reading on never misses it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from functools import partial
from typing import Final

from config import limits
from queue_manager.rules.host import Host
from queue_manager.shard.loads import BodiesLoad, ScanLoad
from queue_manager.shard.record_types import HeldPayloads, RecordType, Row
from storage.encoding import prefix_end
from storage.envelope import SHARED, EnvelopeTemplate, TemplateCache, read_head
from storage.records import scheduled

Key = tuple[int, int]  # due time in ms, message ID
EVERYTHING: Final[Key] = (1 << 63, 0)


class Planned:
    """One message to come; `body` is None while only the store holds it."""

    __slots__ = ("body", "body_bytes", "template")

    def __init__(self, template: EnvelopeTemplate, body: bytes | None) -> None:
        self.template = template
        self.body = body
        self.body_bytes = len(body or b"")

    def read(self, body: bytes) -> None:
        """Take the payload that was read."""
        self.body = body
        self.body_bytes = len(body)


class Schedule:
    """What a queue has scheduled.

    `order` are the keys up to `horizon`, sorted; `planned` what they stand for. `count` is how many there are
    in all, as far as they were counted.
    """

    __slots__ = (
        "_beyond",
        "_bodies",
        "_counted",
        "_counted_to",
        "_first_own_id",
        "_is_loading",
        "_is_scanning",
        "_removed",
        "_templates",
        "_tokens",
        "count",
        "horizon",
        "memory_bytes",
        "order",
        "planned",
        "queue",
    )

    def __init__(self, queue: Host, horizon: Key = EVERYTHING) -> None:
        self.queue = queue
        self.horizon = horizon
        self.order: list[Key] = []
        self.planned: dict[Key, Planned] = {}
        self.count = 0
        self.memory_bytes = 0
        self._beyond: dict[Key, EnvelopeTemplate] = {}  # later than the horizon, perhaps not on the store yet
        self._bodies: dict[int, bytes] = {}  # by message ID, until they are on the store
        self._tokens: list[Key] = []
        self._removed: set[Key] = set()  # cancelled; the store may still show them
        self._counted_to = EVERYTHING  # of what was on the store at the start
        self._first_own_id = 0  # messages from here on were scheduled since the start
        self._counted: set[Key] = set()  # scheduled since, with older IDs; cleared when all is counted
        self._is_scanning = False
        self._is_loading = False
        self._templates = TemplateCache()

    # scheduling

    def add(
        self, template: EnvelopeTemplate, first_id: int, bodies: list[bytes], due_ms: int, now_ms: int
    ) -> None:
        """Schedule messages with IDs from `first_id` on; for a durable queue in the open commit."""
        queue = self.queue
        commit = queue.context.commit
        envelope = _envelope(template, now_ms)
        is_counting = self._counted_to != EVERYTHING
        for message_id, body in enumerate(bodies, first_id):
            key = (due_ms, message_id)
            self.count += 1
            if is_counting and message_id < self._first_own_id:  # it was staged before the start
                self._counted.add(key)
            if not queue.durable:
                self._plan(key, Planned(template, body))
                continue
            commit.puts[scheduled.key(queue.name, due_ms, message_id)] = envelope
            commit.wait(self, len(self._tokens))
            self._tokens.append(key)
            self._bodies[message_id] = body
            if key <= self.horizon:
                near = due_ms - now_ms <= limits.SCHEDULE_NEAR_MS
                self._plan(key, Planned(template, body if near else None))
            else:
                self._beyond[key] = template
        self._shrink()
        self._arm(now_ms)

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`: the store has these now."""
        keys = [self._tokens[token] for token in tokens]
        for _, message_id in keys:
            self._bodies.pop(message_id, None)
        if not self._is_scanning:
            for key in keys:
                self._beyond.pop(key, None)
        if not self._bodies:
            self._tokens = []

    def _plan(self, key: Key, planned: Planned) -> None:
        if self.order and key < self.order[-1]:
            insort(self.order, key)
        else:
            self.order.append(key)
        self.planned[key] = planned
        self.memory_bytes += planned.body_bytes

    def _shrink(self) -> None:
        """Keep only the next ones in memory; the others are read back in their time."""
        if not self.queue.durable or len(self.order) <= 2 * limits.SCHEDULE_WINDOW_MESSAGES:
            return
        kept = limits.SCHEDULE_WINDOW_MESSAGES
        for key in self.order[kept:]:
            planned = self.planned.pop(key)
            self.memory_bytes -= planned.body_bytes
            if key[1] in self._bodies:
                self._beyond[key] = planned.template
        del self.order[kept:]
        self.horizon = self.order[-1]

    def begin(self) -> None:
        """Read what is next, after a start, and count what the store holds."""
        self._counted_to = (0, 0)
        self._first_own_id = self.queue.context.message_ids.next_value
        self._read_on()
        self._count_on()

    def _count_on(self) -> None:
        start = scheduled.key(self.queue.name, *self._counted_to) + b"\x00"
        load = ScanLoad(start, self._end(), limits.SCHEDULE_WINDOW_MESSAGES, self._rows_counted)
        self.queue.context.loads.append(load)

    def _rows_counted(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        if self.queue.deleted:
            return
        for raw, _ in rows:
            _, due_ms, message_id = scheduled.parse_key(raw)
            key = (due_ms, message_id)
            if key > self._counted_to and self._is_to_count(key):
                self.count += 1
        if len(rows) < limits.SCHEDULE_WINDOW_MESSAGES:
            self._counted_to = EVERYTHING
            self._counted.clear()
            return
        self._counted_to = max(self._counted_to, key)
        self._count_on()

    def _is_to_count(self, key: Key) -> bool:
        return key[1] < self._first_own_id and key not in self._removed and key not in self._counted

    def _discount(self, key: Key) -> None:
        """Count a message as scheduled no more; one not counted yet never will be."""
        if key <= self._counted_to or key[1] >= self._first_own_id or key in self._counted:
            self.count -= 1
        elif key not in self._removed:
            self._counted_to = key

    def _end(self) -> bytes | None:
        return prefix_end(scheduled.prefix(self.queue.name))

    # coming due

    def _arm(self, now_ms: int) -> None:
        """Ask to be called when something is due, or its payload should be read."""
        timers = self.queue.context.timers
        if not self.order:
            if self.horizon != EVERYTHING:
                self._read_on()
            return
        key = self.order[0]
        due_ms = key[0]
        if self.planned[key].body is None and key[1] not in self._bodies:
            if self._is_loading:
                return
            due_ms = max(due_ms - limits.SCHEDULE_NEAR_MS, 0)
        timers.set(self, due_ms)

    def on_timer(self, now_ms: int) -> None:
        """Append what is due, in order; read what is due soon."""
        queue = self.queue
        if queue.deleted:
            return
        for key in self._take_due(now_ms):
            planned = self.planned.pop(key)
            body = planned.body if planned.body is not None else self._bodies[key[1]]
            self.memory_bytes -= planned.body_bytes
            self._discount(key)
            queue.append_stored(planned.template, key[1], [body], now_ms)
            if queue.durable:
                queue.context.commit.delete(scheduled.key(queue.name, *key))
        if len(self.order) < limits.SCHEDULE_WINDOW_MESSAGES // 2 and self.horizon != EVERYTHING:
            self._read_on()
        self._read_bodies(now_ms)
        if self.order and self.order[0][0] <= now_ms:
            if not self._is_loading:
                queue.context.timers.set(self, now_ms)  # the rest after others had their turn
        else:
            self._arm(now_ms)

    def _take_due(self, now_ms: int) -> list[Key]:
        """Cut off what is due and in memory, as much as one step may append."""
        count = 0
        for due_ms, message_id in self.order[: limits.SCHEDULE_STEP_MESSAGES]:
            if due_ms > now_ms:
                break
            if self.planned[due_ms, message_id].body is None and message_id not in self._bodies:
                break
            count += 1
        taken = self.order[:count]
        del self.order[:count]
        return taken

    def _read_bodies(self, now_ms: int) -> None:
        if self._is_loading or not self.order:
            return
        soon = bisect_right(self.order, (now_ms + limits.SCHEDULE_NEAR_MS, 1 << 64))
        missing = [
            key
            for key in self.order[: min(soon, limits.LOAD_MESSAGES_MAX)]
            if self.planned[key].body is None and key[1] not in self._bodies
        ]
        if missing:
            self._is_loading = True
            load = BodiesLoad([message_id for _, message_id in missing], partial(self._bodies_read, missing))
            self.queue.context.loads.append(load)

    def _bodies_read(self, keys: list[Key], bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
        self._is_loading = False
        for key in keys[:read_count]:
            planned = self.planned.get(key)
            if planned is None:
                continue
            body = bodies.get(key[1])
            if body is None:
                # gone, though its row was there: a removal was interrupted
                self.order.remove(key)
                del self.planned[key]
                self._discount(key)
                self.queue.context.commit.delete(scheduled.key(self.queue.name, *key))
                continue
            planned.read(body)
            self.memory_bytes += len(body)
        self.on_timer(now_ms)

    # reading on

    def _read_on(self) -> None:
        if self._is_scanning or self.queue.deleted:
            return
        self._is_scanning = True
        start = scheduled.key(self.queue.name, *self.horizon) + b"\x00"
        load = ScanLoad(start, self._end(), limits.SCHEDULE_WINDOW_MESSAGES, self._rows_read)
        self.queue.context.loads.append(load)

    def _rows_read(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        self._is_scanning = False
        found: dict[Key, EnvelopeTemplate] = {}
        for raw, value in rows:
            _, due_ms, message_id = scheduled.parse_key(raw)
            found[due_ms, message_id] = self._templates.find(value)
        horizon = EVERYTHING
        if len(rows) == limits.SCHEDULE_WINDOW_MESSAGES:
            horizon = next(reversed(found))
        for key in [key for key in self._beyond if key <= horizon]:
            found.setdefault(key, self._beyond.pop(key))
        # the rest was on the store when the scan ended, or will be when the next begins
        for key in [key for key in self._beyond if key[1] not in self._bodies]:
            del self._beyond[key]
        for key in sorted(found):
            if key not in self._removed:
                self._plan(key, Planned(found[key], None))
        self.horizon = horizon
        self._shrink()
        self.on_timer(now_ms)

    # cancelling, ending

    def cancel(self, key: Key) -> None:
        """Forget a message whose row is being deleted."""
        self._beyond.pop(key, None)
        planned = self.planned.pop(key, None)
        if planned is not None:
            self.order.remove(key)
            self.memory_bytes -= planned.body_bytes
        self._removed.add(key)
        self._discount(key)

    def cancelled(self, key: Key) -> None:
        """Note that the delete of its row is durable."""
        if not self._is_scanning and self._counted_to == EVERYTHING:
            self._removed.discard(key)

    def row(self, key: Key) -> Planned | None:
        """Return what is scheduled under that key, as far as it is in memory."""
        return self.planned.get(key)

    def rows_after(self, key: Key, limit: int) -> list[tuple[Key, Planned]]:
        """Return at most `limit` scheduled messages of a queue in memory, behind that key, in order."""
        keys = [known for known in self.order if known > key][:limit]
        return [(known, self.planned[known]) for known in keys]

    def take_all(self) -> list[tuple[Key, Planned]]:
        """Empty the schedule of a queue in memory; give what was in it, in order."""
        everything = [(key, self.planned[key]) for key in self.order]
        self.order = []
        self.planned = {}
        self.count = self.memory_bytes = 0
        return everything


def _envelope(template: EnvelopeTemplate, now_ms: int) -> bytes:
    return (
        template.head
        + (0).to_bytes(8, "little")
        + now_ms.to_bytes(8, "little", signed=True)
        + template.suffix
    )


def _held(row: Row) -> list[HeldPayloads]:
    flags, _, _ = read_head(row[1])
    return [HeldPayloads(scheduled.parse_key(row[0]).message_id, 1, bool(flags & SHARED), None)]


SCHEDULE_TYPES: Final = (RecordType(record=scheduled, held=_held, run_fields=1),)
