"""How staged rows go where they are to go: a step at a time, each in a commit of its own."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from config import limits
from queue_manager.loads import ScanLoad
from queue_manager.staging.attempt import Attempt
from queue_manager.staging.sweep import NOT_COMMITTED, Sweep
from queue_manager.staging.tags import StageTag
from storage.envelope import EnvelopeTemplate, TemplateCache
from storage.records import epoch as epoch_record
from storage.records import payload, staged_rows
from storage.records.committed_epoch import CommittedEpoch

if TYPE_CHECKING:
    from queue_manager.queue import Queue


class Sweeping:
    """The staged rows of a durable queue, and what is to become of them.

    `byte_count` is the payload staged and not yet moved or dropped. `unmoved_count` and
    `unmoved_bytes`: committed rows that are not in the log yet, and their payload. `sweeps` are
    worked off in order, one step at a time.
    """

    __slots__ = (
        "_check_ms",
        "_is_stepping",
        "_step_records",
        "_templates",
        "attempts",
        "byte_count",
        "next_number",
        "producers",
        "queue",
        "sweeps",
        "unmoved_bytes",
        "unmoved_count",
    )

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.attempts: dict[StageTag, Attempt] = {}
        self.producers: dict[str, CommittedEpoch] = {}
        self.byte_count = 0
        self.unmoved_count = 0
        self.unmoved_bytes = 0
        self.sweeps: deque[Sweep] = deque()
        self.next_number = 0
        self._check_ms = 0
        self._is_stepping = False
        self._step_records = 1  # how large they are is not known yet
        self._templates = TemplateCache()

    def arm(self, now_ms: int) -> None:
        """Ask to be called when there is something to do."""
        timers = self.queue.manager.timers
        if self.sweeps and not self._is_stepping:
            timers.set(self, now_ms)
        if self.attempts or self.producers:
            timers.set(self, now_ms + limits.STAGE_CHECK_INTERVAL_MS)

    def on_timer(self, now_ms: int) -> None:
        """Take the next step, if there is one to take."""
        if self.queue.deleted:
            return
        if now_ms >= self._check_ms:
            self._check_ms = now_ms + limits.STAGE_CHECK_INTERVAL_MS
            self.expire(now_ms)
        self._begin_step()
        self.arm(now_ms)

    def expire(self, now_ms: int) -> None:
        """Give up what has had its time."""

    def _begin_step(self) -> None:
        """Take the next step once everything done so far is durable."""
        if self.sweeps and not self._is_stepping:
            self._is_stepping = True
            # what the sweep is to find may be in a commit that is being written
            self.queue.manager.journal.wait(_Step(self), 0)

    def purge(self) -> int:
        """Drop the committed rows that are not in the log yet; give how many it were."""
        count = self.unmoved_count
        for sweep in self.sweeps:
            if sweep.number != NOT_COMMITTED:
                self.queue.manager.journal.delete(epoch_record.key(self.queue.name, sweep.number))
                sweep.number = NOT_COMMITTED
                sweep.attempts = frozenset()
                sweep.left = sweep.left_bytes = 0
        self.unmoved_count = self.unmoved_bytes = 0
        return count

    def load(self) -> None:
        """Everything done so far is durable: read the next staged records."""
        if self.queue.deleted or not self.sweeps:
            self._is_stepping = False
            return
        sweep = self.sweeps[0]
        load = ScanLoad(sweep.position, sweep.end, self._step_records, self._rows_read)
        self.queue.manager.loads.append(load)

    def _rows_read(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        self._is_stepping = False
        if self.queue.deleted:
            return
        sweep = self.sweeps[0]
        journal = self.queue.manager.journal
        for raw, value in rows:
            if self._is_wanted(sweep, raw):
                self._append(sweep, value, now_ms)
            else:
                for run in staged_rows.decode(value):
                    journal.delete_run(payload.key_run(run.first_id, len(run.bodies)))
            journal.delete(raw)
        if len(rows) < self._step_records:
            self._finish(sweep)
        else:
            sweep.position = rows[-1][0] + b"\x00"
        if rows:
            large = len(rows[-1][1]) > 2 * limits.STAGED_RECORD_BYTES_MAX
            self._step_records = 1 if large else limits.STAGE_STEP_RECORDS
        self.arm(now_ms)

    def _is_wanted(self, sweep: Sweep, raw: bytes) -> bool:
        if not sweep.attempts:
            return False
        key = staged_rows.parse_key(raw)
        return (key.part, key.attempt) in sweep.attempts

    def _append(self, sweep: Sweep, value: bytes, now_ms: int) -> None:
        queue = self.queue
        alone = _Alone(queue)
        for envelope, _, first_id, bodies in staged_rows.decode(value):
            body_bytes = sum(map(len, bodies))
            sweep.left -= len(bodies)
            sweep.left_bytes -= body_bytes
            self.unmoved_count -= len(bodies)
            self.unmoved_bytes -= body_bytes
            template = self._templates.find(envelope)
            if len(bodies) == 1 and not template.expires_at_ms:
                alone.add(template, first_id, bodies[0], now_ms)
                continue
            alone.append(now_ms)
            queue.append_stored(template, first_id, bodies, now_ms)
        alone.append(now_ms)

    def _finish(self, sweep: Sweep) -> None:
        self.sweeps.popleft()
        for tag in sweep.tags:
            self.byte_count -= self.attempts.pop(tag).byte_count
        self.unmoved_count -= sweep.left
        self.unmoved_bytes -= sweep.left_bytes
        if sweep.number != NOT_COMMITTED:
            self.queue.manager.journal.delete(epoch_record.key(self.queue.name, sweep.number))


class _Alone:
    """Rows in a row with properties of their own, appended together."""

    __slots__ = ("_bodies", "_first_id", "_queue", "_templates")

    def __init__(self, queue: Queue) -> None:
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
        if self._templates:
            bodies = self._bodies
            self._queue.mixes_payloads = True  # their payloads are stored already
            self._queue.append_varied(self._templates, self._first_id, bodies, sum(map(len, bodies)), now_ms)
            self._templates = []
            self._bodies = []


class _Step:
    """Waits until everything before a step is durable."""

    __slots__ = ("_stage",)

    def __init__(self, stage: Sweeping) -> None:
        self._stage = stage

    def committed(self, tokens: list[int]) -> None:
        """As `queue_manager.journal.Waiter`."""
        self._stage.load()
