"""Records of one queue that are ordered by time, of which memory holds the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from queue_manager.log.queue_log import QueueLog
from queue_manager.model import MessageBatch
from queue_manager.policy import QueuePolicy
from queue_manager.shard.context import Context
from queue_manager.shard.loads import ScanLoad
from storage.encoding import prefix_end
from storage.envelope import TemplateCache
from storage.records.fields import Record


class Host(Protocol):
    """A queue."""

    name: str
    durable: bool
    deleted: bool
    policy: QueuePolicy
    context: Context

    def has_room(self, count: int, body_bytes: int) -> bool:
        """Return whether it takes so many messages of so many bytes in all."""

    def store(self, bodies: list[bytes], body_bytes: int) -> int:
        """Store payloads of messages to come; give the first of their IDs."""

    def append_stored(self, batch: MessageBatch) -> None:
        """Append messages whose payloads were stored before."""


Key = tuple[int, int]  # a time in ms, and what tells the records of that time apart
EVERYTHING: Final[Key] = (1 << 63, 0)
T = TypeVar("T")


@dataclass(eq=False, repr=False, slots=True)
class Window(ABC, Generic[T]):
    """The `rows` up to `horizon`, beyond which there may be more to read.

    What came in beyond it is remembered until its commit is durable, so that reading on never misses it.
    `awaits_all`: a kind is told of all that becomes durable, not only of that.
    """

    record: ClassVar[Record[..., Any, ..., Any]]
    awaits_all: ClassVar[bool] = False

    queue: Host | QueueLog
    horizon: Key = field(default=EVERYTHING, init=False)
    rows: dict[Key, T] = field(default_factory=dict, init=False)
    _heap: list[Key] = field(default_factory=list, init=False)  # those whose row is gone are passed over
    _beyond: dict[Key, T] = field(default_factory=dict, init=False)  # perhaps not on the store yet
    _committed: list[Key] = field(default_factory=list, init=False)  # on the store, and perhaps not scanned
    _tokens: dict[int, list[Key]] = field(default_factory=dict, init=False)
    _next_token: int = field(default=0, init=False)
    _is_scanning: bool = field(default=False, init=False)
    _templates: TemplateCache = field(default_factory=TemplateCache, init=False)
    _context: Context = field(init=False)

    def __post_init__(self) -> None:
        self._context = self.queue.context

    # kinds of it say

    @abstractmethod
    def window_rows(self) -> int:
        """Return how many rows are read at a time; twice as many are held at most."""

    @abstractmethod
    def decode(self, raw: bytes, value: bytes) -> tuple[Key, T]:
        """Read a record."""

    @abstractmethod
    def is_durable(self, key: Key) -> bool:
        """Return whether the store has the record of a row."""

    @abstractmethod
    def read(self, now_ms: int) -> None:
        """Go on: there are more rows, or it is known that there are none."""

    # rows

    def put(self, key: Key, row: T) -> None:
        """Hold a row; also one that was taken and could not be dealt with."""
        if key not in self.rows:
            heappush(self._heap, key)
        self.rows[key] = row

    def forget_row(self, row: T) -> None:
        """Note that a row is held no more: there are too many, and it is read again in its time."""

    def add(self, rows: Iterable[tuple[Key, T]]) -> None:
        """Take rows whose records are in the open commit, or of a queue in memory."""
        awaited: list[Key] = []
        for key, row in rows:
            is_near = key <= self.horizon
            if is_near:
                self.put(key, row)
            else:
                self._beyond[key] = row
            if self.awaits_all or not is_near:
                awaited.append(key)
        self._shrink(awaited)

    def _shrink(self, awaited: list[Key]) -> None:
        """Keep only the next ones in memory; wait for these to be durable, and for what lies beyond then."""
        queue = self.queue
        if queue.durable and not self._is_scanning and len(self.rows) > 2 * self.window_rows():
            self._heap = nsmallest(self.window_rows(), self.rows)
            self.horizon = self._heap[-1]
            for key in [key for key in self.rows if key > self.horizon]:
                row = self.rows.pop(key)
                self.forget_row(row)
                if not self.is_durable(key):
                    self._beyond[key] = row
                    awaited.append(key)
        if queue.durable and awaited:
            self._next_token += 1
            self._tokens[self._next_token] = awaited
            self._context.commit.wait(self, self._next_token)

    def committed(self, tokens: list[int]) -> None:
        """Note that the store has these now."""
        for token in tokens:
            self._committed += self._tokens.pop(token)
        if not self._is_scanning:
            self._forget_committed()

    def _forget_committed(self) -> None:
        for key in self._committed:
            self._beyond.pop(key, None)
        self._committed = []

    def first(self) -> Key | None:
        """Return the key of the next row, as far as the store was read."""
        heap = self._heap
        while heap and heap[0] not in self.rows:
            heappop(heap)
        return heap[0] if heap else None

    def pop(self) -> tuple[Key, T]:
        """Take the row out whose key `first` just gave."""
        key = heappop(self._heap)
        return key, self.rows.pop(key)

    # reading on

    def begin(self) -> None:
        """Read what is next, after a start."""
        self.horizon = (0, 0)
        self.read_on()

    def read_on(self) -> None:
        """Read more rows, if there may be any."""
        queue = self.queue
        if self._is_scanning or self.horizon == EVERYTHING or queue.deleted:
            return
        self._is_scanning = True
        self.scan(self.horizon, self._rows_read)

    def scan(self, after: Key, then: Any) -> None:
        """Have the next records behind a key read, and `then` called with them."""
        queue = self.queue
        start = self.record.key(queue.name, *after) + b"\x00"
        end = prefix_end(self.record.prefix(queue.name))
        self._context.loads.append(ScanLoad(start, end, self.window_rows(), then))

    def _rows_read(self, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        self._is_scanning = False
        if self.queue.deleted:
            return
        horizon = EVERYTHING
        for raw, value in rows:
            key, row = self.decode(raw, value)
            self.put(key, row)
        if len(rows) == self.window_rows():
            horizon = key
        for key in [key for key in self._beyond if key <= horizon]:
            self.put(key, self._beyond.pop(key))
        self._forget_committed()
        self.horizon = horizon
        self._shrink([])
        self.read(now_ms)
