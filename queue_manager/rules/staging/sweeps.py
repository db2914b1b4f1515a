"""How staged rows go where they are to go: a step at a time, each in a commit of its own."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from config import limits
from queue_manager.model import MessageBatch
from queue_manager.rules.schedule import Schedule
from queue_manager.rules.stored_window import Host
from queue_manager.shard.commit import OnceDurable
from queue_manager.shard.context import Context
from queue_manager.shard.loads import ScanLoad
from queue_manager.stage_tags import StageTag
from storage.encoding import prefix_end
from storage.envelope import EnvelopeTemplate, TemplateCache
from storage.records import epoch as epoch_record
from storage.records import payload_keys, staged_rows

NOT_COMMITTED: Final = -1


@dataclass(eq=False, slots=True)
class Sweep:
    """Rows below a prefix: those of `attempts` (part, attempt) go into the log, others are deleted.

    `number` is that of the epoch's record, NOT_COMMITTED if there is none to delete at the end. `left`: how
    many rows of `producer` are still to go into the log, `left_bytes` their payload. `tags`
    are the attempts that are gone in the end. `has_begun`: it is known to find all there is of it.
    """

    position: bytes  # the prefix at first
    tags: list[StageTag]
    producer: str = ""
    attempts: frozenset[tuple[int, str]] = frozenset()
    number: int = NOT_COMMITTED
    left: int = 0
    left_bytes: int = 0
    end: bytes | None = field(init=False)
    has_begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.end = prefix_end(self.position)

    @classmethod
    def of_attempt(cls, queue_id: str, tag: StageTag) -> Sweep:
        """Delete the rows of one attempt."""
        return cls(staged_rows.prefix(queue_id, *tag), [tag])

    @property
    def lane(self) -> str:
        """The producer whose sweeps are worked off in order."""
        return self.producer or self.tags[0].producer

    def begin(self) -> None:
        """Begin, now that all rows that are to be found are durable."""
        self.has_begun = True

    def passed(self, raw: bytes) -> None:
        """Note that a row was worked off."""
        self.position = raw + b"\x00"

    def moved(self, count: int, body_bytes: int) -> None:
        """Count rows that went into the log."""
        self.left -= count
        self.left_bytes -= body_bytes

    def only_delete(self) -> None:
        """Delete what is left: nothing more goes into the log."""
        self.number = NOT_COMMITTED
        self.attempts = frozenset()
        self.left = self.left_bytes = 0


@dataclass(eq=False, repr=False, slots=True)
class Sweeps:
    """Works off sweeps, those of one producer in order, one step at a time.

    Producers take turns, so that a small epoch does not wait for a large one of another. Records are read
    ahead, `limits.STAGE_READ_RECORDS` at a time; `limits.STAGE_STEP_RECORDS` of them are worked off in one
    turn of the loop (`queue_manager.shard.steps`).

    `unmoved_count` and `unmoved_bytes`: committed rows that are not in the log yet, and their payload.
    `_schedule` gives where rows go that are not due yet. `_on_step` is called after each step, `_on_gone`
    with the tags of attempts of which nothing is left.
    Implements `queue_manager.shard.steps.Work`.
    """

    _queue: Host
    _schedule: Callable[[], Schedule]
    _on_step: Callable[[int], None]
    _on_gone: Callable[[list[StageTag]], None]
    _lanes: OrderedDict[str, deque[Sweep]] = field(default_factory=OrderedDict, init=False)
    unmoved_count: int = field(default=0, init=False)
    unmoved_bytes: int = field(default=0, init=False)
    _is_stepping: bool = field(default=False, init=False)
    _rows: deque[tuple[bytes, bytes]] = field(default_factory=deque, init=False)  # read, and not worked off
    _reads_on: bool = field(default=False, init=False)  # there may be more of the sweep than `_rows`
    _read_records: int = field(default=1, init=False)  # how large they are is not known yet
    _templates: TemplateCache = field(default_factory=TemplateCache, init=False)
    _context: Context = field(init=False)

    def __post_init__(self) -> None:
        self._context = self._queue.context

    def add(self, sweep: Sweep) -> None:
        """Have one more done."""
        self._lanes.setdefault(sweep.lane, deque()).append(sweep)
        self.unmoved_count += sweep.left
        self.unmoved_bytes += sweep.left_bytes

    def pending(self) -> Iterator[Sweep]:
        """Yield what is not done yet."""
        for lane in self._lanes.values():
            yield from lane

    def wants_step(self) -> bool:
        """Return whether the next step can be begun."""
        return bool(self._lanes) and not self._is_stepping

    def _first(self) -> Sweep:
        return next(iter(self._lanes.values()))[0]

    def moves(self, producer: str) -> bool:
        """Return whether rows of the producer are still on their way."""
        return any(sweep.producer for sweep in self._lanes.get(producer, ()))

    def begin_step(self) -> None:
        """Take the next step, if there is one, once everything done so far is durable."""
        if self.wants_step():
            self._is_stepping = True
            context = self._context
            if self._first().has_begun and context.uncommitted_bytes() <= limits.UNCOMMITTED_BYTES_MAX:
                self.load()
            else:  # what the sweep is to find may be in a commit that is being written
                context.commit.wait(OnceDurable(lambda _: self.load()), 0)

    def purge(self) -> int:
        """Drop the committed rows that are not in the log yet; give how many it were."""
        count = self.unmoved_count
        for sweep in self.pending():
            if sweep.number != NOT_COMMITTED:
                self._context.commit.delete(epoch_record.key(self._queue.name, sweep.number))
                sweep.only_delete()
        self.unmoved_count = self.unmoved_bytes = 0
        return count

    def load(self) -> None:
        """Read the next staged records: everything done so far is durable."""
        if self._queue.deleted or not self._lanes:
            self._is_stepping = False
            return
        sweep = self._first()
        sweep.begin()
        load = ScanLoad(sweep.position, sweep.end, self._read_records, self._rows_read)
        self._context.loads.append(load)

    def _rows_read(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        self._rows.extend(rows)
        self._reads_on = len(rows) == self._read_records
        if rows:
            large = len(rows[-1][1]) > 2 * limits.STAGED_RECORD_BYTES_MAX
            self._read_records = 1 if large else limits.STAGE_READ_RECORDS
        if self.step(now_ms):
            self._context.steps.add(self)

    def step(self, now_ms: int) -> bool:
        rows = self._rows
        if self._queue.deleted:
            rows.clear()
            self._is_stepping = False
            return False
        sweep = self._first()
        commit = self._context.commit
        for _ in range(min(limits.STAGE_STEP_RECORDS, len(rows))):
            raw, value = rows.popleft()
            if self._is_wanted(sweep, raw):
                self._append(sweep, value, now_ms)
            else:
                for run in staged_rows.decode(value):
                    commit.delete_run(payload_keys(run.first_id, len(run.bodies)))
            commit.delete(raw)
            sweep.passed(raw)
        if rows:
            return True
        if not self._reads_on:
            self._finish(sweep)
        if sweep.lane in self._lanes:
            self._lanes.move_to_end(sweep.lane)
        self._is_stepping = False
        self._on_step(now_ms)
        return False

    def _is_wanted(self, sweep: Sweep, raw: bytes) -> bool:
        if not sweep.attempts:
            return False
        key = staged_rows.parse_key(raw)
        return (key.part, key.attempt) in sweep.attempts

    def _append(self, sweep: Sweep, value: bytes, now_ms: int) -> None:
        queue = self._queue
        alone = _Alone(queue)
        for envelope, due_ms, first_id, bodies in staged_rows.decode(value):
            body_bytes = sum(map(len, bodies))
            sweep.moved(len(bodies), body_bytes)
            self.unmoved_count -= len(bodies)
            self.unmoved_bytes -= body_bytes
            template = self._templates.find(envelope)
            if due_ms > now_ms:
                self._schedule().enter(template, first_id, bodies, due_ms, now_ms)
                continue
            if len(bodies) == 1 and not template.expires_at_ms:
                alone.add(template, first_id, bodies[0], now_ms)
                continue
            alone.append(now_ms)
            queue.append_stored(MessageBatch(template, first_id, bodies, body_bytes, now_ms))
        alone.append(now_ms)

    def _finish(self, sweep: Sweep) -> None:
        lane = self._lanes[sweep.lane]
        lane.popleft()
        if not lane:
            del self._lanes[sweep.lane]
        self._on_gone(sweep.tags)
        self.unmoved_count -= sweep.left
        self.unmoved_bytes -= sweep.left_bytes
        if sweep.number != NOT_COMMITTED:
            self._context.commit.delete(epoch_record.key(self._queue.name, sweep.number))


class _Alone:
    """Rows in a row with properties of their own, appended together."""

    __slots__ = ("_bodies", "_first_id", "_queue", "_templates")

    def __init__(self, queue: Host) -> None:
        self._queue = queue
        self._templates: list[EnvelopeTemplate] = []
        self._bodies: list[bytes] = []
        self._first_id = 0

    def add(self, template: EnvelopeTemplate, message_id: int, body: bytes, now_ms: int) -> None:
        """Take one more, behind those that are here if it follows on and may go with them."""
        templates = self._templates
        if templates and (
            message_id != self._first_id + len(templates) or template.priority != templates[0].priority
        ):
            self.append(now_ms)
            templates = self._templates
        if not templates:
            self._first_id = message_id
        templates.append(template)
        self._bodies.append(body)

    def append(self, now_ms: int) -> None:
        """Append what is here to the queue."""
        templates = self._templates
        if templates:
            body_bytes = sum(map(len, self._bodies))
            self._queue.append_stored(
                MessageBatch(templates[0], self._first_id, self._bodies, body_bytes, now_ms, templates)
            )
            self._templates = []
            self._bodies = []
