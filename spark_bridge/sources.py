"""Reading through PySpark's data source API: batch and Structured Streaming."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition

from spark_bridge.claims import Claims, Taken, offset_of, taken_of
from spark_bridge.errors import OptionError, SluiceError, rows_said_plainly, said_plainly
from spark_bridge.listing import check_lists, read_list
from spark_bridge.offsets import OffsetReader, Offsets, Range, limited, ranges, starting_offsets
from spark_bridge.pushdown import Bounds
from spark_bridge.reading import batch_of, read_range
from spark_bridge.settings import ClaimSettings, ListSettings, ReadSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from spark_bridge.runs import Run

try:
    from pyspark.sql.streaming import datasource as _limits
except ImportError:  # before Spark 4.2
    _limits = None
# for messages that are ready and do not come: others may take them, or a selector leave them
LAST_WAIT_S: Final = 5.0
_AvailableNow: Any = getattr(_limits, "SupportsTriggerAvailableNow", object)
_ReadAll: Any = getattr(_limits, "ReadAllAvailable", None)
_ReadMaxRows: Any = getattr(_limits, "ReadMaxRows", None)


@dataclass
class StreamRange(InputPartition):
    """Offsets `[start, end)` of one stream."""

    queue: str
    start: int
    end: int


def check_admission(option: str) -> None:
    """Raise OptionError for an option that needs a Spark that tells a query where it is."""
    if _ReadMaxRows is None:
        raise OptionError(f"option {option} needs Spark 4.2 or later")


def _read(settings: ReadSettings, partition: InputPartition | None) -> Iterator[RecordBatch]:
    if not isinstance(partition, StreamRange):
        return iter(())  # Spark reads nothing, too, when there are no partitions
    return read_range(settings, Range(partition.queue, partition.start, partition.end))


def _partitions(settings: ReadSettings, start: Offsets, end: Offsets) -> list[StreamRange]:
    return [StreamRange(*found) for found in ranges(start, end, settings.offsets_per_partition)]


class BatchReader(DataSourceReader):
    """Everything between two offsets, as it is when the job is planned."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._bounds = Bounds()

    @said_plainly
    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        given = dict(settings.starting_offsets)
        until = dict(settings.ending_offsets)
        bounds = self._bounds
        start, end = {}, {}
        reader = OffsetReader(settings.connection)
        try:
            for queue in settings.queues:
                first, upto = reader.ends(queue)
                if settings.starting_ms >= 0:
                    given[queue] = reader.at(queue, settings.starting_ms)
                if settings.ending_ms >= 0:
                    until[queue] = reader.at(queue, settings.ending_ms)
                if bounds.queues is not None and queue not in bounds.queues:
                    continue
                low, high = bounds.first, bounds.end
                if bounds.from_ms >= 0:
                    low = max(low, reader.at(queue, bounds.from_ms))
                if bounds.until_ms >= 0:
                    high = min(high, reader.at(queue, bounds.until_ms))
                end[queue] = min(until.get(queue, upto), upto, high)
                start[queue] = min(max(given.get(queue, first), low), end[queue])
        finally:
            reader.close()
        return _partitions(settings, start, end)

    @rows_said_plainly
    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(self._settings, partition)


class FilteredReader(BatchReader):
    """A read whose `where` Spark tells: only there it may, see `pushdown`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read less; gives all filters back, for Spark to apply them."""
        self._bounds.narrow(filters)
        return filters


@dataclass
class QueueList(InputPartition):
    """The messages of one queue that are in the state asked for."""

    queue: str


class ListReader(DataSourceReader):
    """The messages of queues that are in one state, as they are when they are read: a task for each queue."""

    def __init__(self, settings: ListSettings) -> None:
        self._settings = settings

    @said_plainly
    def partitions(self) -> Sequence[InputPartition]:
        check_lists(self._settings)
        return [QueueList(queue) for queue in self._settings.queues]

    @rows_said_plainly
    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        if not isinstance(partition, QueueList):
            return iter(())
        return read_list(self._settings, partition.queue)


@dataclass
class ClaimedRows(InputPartition):
    """Messages of a work queue that the driver has claimed."""

    runs: list[Run]


class WorkQueueReader(DataSourceStreamReader, _AvailableNow):
    """One query that takes the messages of a work queue. It claims them in one worker of the driver, and
    settles a batch once Spark asks for what comes behind it: by then it is in the checkpoint.
    """

    def __init__(self, settings: ClaimSettings) -> None:
        self._settings = settings
        self._claims = Claims(settings)
        self._left = -1  # how many messages a run of `availableNow` still takes; -1: no such run

    def __getstate__(self) -> ClaimSettings:
        return self._settings

    def __setstate__(self, settings: ClaimSettings) -> None:
        self.__init__(settings)  # type: ignore[misc]

    @said_plainly
    def initialOffset(self) -> dict[str, Any]:
        return offset_of(self._settings.queue, 0, Taken())

    def getDefaultReadLimit(self) -> Any:
        """See DataSourceStreamReader (4.2 and later)."""
        return _ReadMaxRows(self._settings.messages_per_trigger)

    @said_plainly
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """See DataSourceStreamReader (4.2 and later): what is before `start` is in the checkpoint."""
        self._claims.settle(taken_of(start))
        if not self._left:
            return dict(start)
        is_once = self._left > 0
        count_max = self._left if is_once else self._settings.messages_per_trigger
        taken = self._claims.take(count_max, 0)
        if is_once:
            if not taken.offsets and self._claims.ready_count():
                taken = self._claims.take(count_max, LAST_WAIT_S)
            self._left = max(0, self._left - len(taken.offsets)) if taken.offsets else 0
        if not taken.offsets:
            return dict(start)
        return offset_of(self._settings.queue, start["taken"] + len(taken.offsets), taken)

    @said_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """See SupportsTriggerAvailableNow: what comes later is for the next run."""
        self._left = self._claims.ready_count()
        self._claims.begin()

    @said_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        self._claims.settle(taken_of(start))
        offsets = self._claims.find(taken_of(end))
        size = self._settings.messages_per_partition
        return [
            ClaimedRows(self._claims.runs(offsets[first : first + size]))
            for first in range(0, len(offsets), size)
        ]

    @rows_said_plainly
    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        if not isinstance(partition, ClaimedRows):
            return
        settings = self._settings
        yield batch_of(
            settings.queue,
            partition.runs,
            columns=settings.columns,
            include_headers=settings.include_headers,
        )

    @said_plainly
    def commit(self, end: dict[str, Any]) -> None:
        """Settle a batch that is in the checkpoint."""
        self._claims.settle(taken_of(end))

    def stop(self) -> None:
        self._claims.close()


class RefusedReader(DataSourceStreamReader):
    """A query that cannot be. Spark loses an error of `streamReader` itself: it would show
    `UnboundLocalError` for it.
    """

    def __init__(self, error: SluiceError) -> None:
        self._error = error

    @said_plainly
    def initialOffset(self) -> dict[str, int]:
        raise self._error

    @said_plainly
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """See DataSourceStreamReader; before Spark 4.2 it is called first."""
        raise self._error

    def getDefaultReadLimit(self) -> Any:
        """See DataSourceStreamReader (4.2 and later)."""
        return _ReadAll()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return iter(())

    def stop(self) -> None:
        """See DataSourceStreamReader: there is nothing to let go of."""


class StreamReader(DataSourceStreamReader, _AvailableNow):
    """One query; it lives in one worker of the driver, other instances read."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._offsets: OffsetReader | None = None

    def __getstate__(self) -> ReadSettings:
        return self._settings

    def __setstate__(self, settings: ReadSettings) -> None:
        self.__init__(settings)  # type: ignore[misc]

    def _reader(self) -> OffsetReader:
        if self._offsets is None:
            self._offsets = OffsetReader(self._settings.connection)
        return self._offsets

    def _ends(self) -> Offsets:
        return {queue: self._reader().ends(queue).next for queue in self._settings.queues}

    @said_plainly
    def initialOffset(self) -> dict[str, int]:
        if self._initial is None:
            self._initial = starting_offsets(self._settings, self._reader())
        return self._initial

    def getDefaultReadLimit(self) -> Any:
        """See DataSourceStreamReader (4.2 and later)."""
        count = self._settings.offsets_per_trigger
        return _ReadMaxRows(count) if count else _ReadAll()

    @said_plainly
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """See DataSourceStreamReader; without arguments before Spark 4.2."""
        end = self._ends() if self._target is None else self._target
        row_count_max = getattr(limit, "max_rows", None)
        if row_count_max is None:
            return end
        return limited(self.initialOffset() if start is None else start, end, row_count_max)

    @said_plainly
    def reportLatestOffset(self) -> dict[str, int] | None:
        """See DataSourceStreamReader (4.2 and later): for the lag that Spark shows."""
        return self._ends()

    @said_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """See SupportsTriggerAvailableNow: what comes later is for the next run."""
        self._target = self._ends()

    @said_plainly
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _partitions(self._settings, start, end)

    @rows_said_plainly
    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return _read(self._settings, partition)

    @said_plainly
    def commit(self, end: dict[str, int]) -> None:
        """Tell the broker how far the query is; where it goes on is in the checkpoint."""
        if not self._settings.group:
            return
        try:
            self._reader().report(self._settings.group, end)
        except SluiceError as error:
            print(f"sluice: could not report progress: {error}", file=sys.stderr)

    def stop(self) -> None:
        if self._offsets is not None:
            self._offsets.close()
