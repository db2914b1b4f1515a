"""The `sluice` format for PySpark's data source API.

Spark makes these objects in short-lived Python workers and pickles them: they hold plain data only, and
connections are opened where they are used.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    WriterCommitMessage,
)

from spark_bridge import epochs, listing
from spark_bridge.columns import Layout, layout_of
from spark_bridge.epochs import Epoch, StagedPart, TaskIdentity
from spark_bridge.errors import BrokerUnreachable, OptionError, SluiceError, said_plainly
from spark_bridge.options import (
    claim_settings,
    columns_of,
    is_claim,
    is_list,
    list_settings,
    read_settings,
    write_settings,
)
from spark_bridge.pushdown import is_asked_for_filters
from spark_bridge.reading import SCHEMAS, check_schema
from spark_bridge.settings import EXACTLY_ONCE, WriteSettings
from spark_bridge.sources import (
    BatchReader,
    FilteredReader,
    ListReader,
    RefusedReader,
    StreamReader,
    WorkQueueReader,
    check_admission,
)
from spark_bridge.writing import check_target, in_short, write_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


@dataclass
class Written(WriterCommitMessage):
    """The report of a task to the driver; `part` None: there is nothing to commit."""

    part: StagedPart | None


class SluiceDataSource(DataSource):
    """`spark.write.format("sluice")`, see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "sluice"

    @said_plainly
    def schema(self) -> str:
        """Return the columns that are read."""
        return listing.SCHEMA if is_list(self.options) else SCHEMAS[columns_of(self.options)]

    @said_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        if is_list(self.options):
            listed = list_settings(self.options)
            check_schema(schema, listing.SCHEMA)
            return ListReader(listed)
        settings = read_settings(self.options, streaming=False)
        check_schema(schema, SCHEMAS[settings.columns])
        return FilteredReader(settings) if is_asked_for_filters() else BatchReader(settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            if is_claim(self.options):
                claims = claim_settings(self.options)
                check_schema(schema, SCHEMAS[claims.columns])
                check_admission("claim")
                return WorkQueueReader(claims)
            settings = read_settings(self.options, streaming=True)
            check_schema(schema, SCHEMAS[settings.columns])
            if settings.offsets_per_trigger:
                check_admission("maxOffsetsPerTrigger")
        except SluiceError as error:
            return RefusedReader(error)
        return StreamReader(settings)

    @said_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        settings = write_settings(self.options)
        if overwrite:
            raise OptionError('a queue cannot be overwritten: use .mode("append")')
        layout = layout_of(schema, settings)
        check_target(settings)
        return BatchWriter(settings, layout)

    @said_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        settings = write_settings(self.options)
        if overwrite:
            raise OptionError('output mode complete would send everything again: use "append"')
        layout = layout_of(schema, settings)
        try:
            check_target(in_short(settings))
        except BrokerUnreachable:
            pass  # tasks and commits try for longer
        return StreamWriter(settings, layout)


class _Writer:
    """The base of both kinds of writers. Spark counts the batches of a stream, and says so at their end."""

    def __init__(self, settings: WriteSettings, layout: Layout) -> None:
        self._settings = settings
        self._layout = layout

    def _epoch(self, identity: TaskIdentity) -> Epoch:
        raise NotImplementedError

    @said_plainly
    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write in a task."""
        settings = self._settings
        identity = epochs.task_identity()
        epoch = self._epoch(identity) if settings.delivery == EXACTLY_ONCE else None
        return Written(write_rows(settings, self._layout, identity, epoch, iterator))

    @said_plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        parts = _parts(messages)
        if parts:
            epochs.commit(self._settings, parts)

    @said_plainly
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        try:
            epochs.abort(self._settings, _parts(messages))
        except SluiceError as error:
            # what stays staged is unseen and goes by itself
            print(f"sluice: could not drop what was staged: {error}", file=sys.stderr)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """One job. Its identity is made once, before it is pickled, so that all tasks and the commit share it."""

    def __init__(self, settings: WriteSettings, layout: Layout) -> None:
        super().__init__(settings, layout)
        self._job = uuid.uuid4().hex

    def _epoch(self, identity: TaskIdentity) -> Epoch:
        return epochs.epoch_of_batch(self._settings, identity, self._job)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """One epoch of a streaming query; another object commits it."""

    def _epoch(self, identity: TaskIdentity) -> Epoch:
        return epochs.epoch_of_stream(self._settings, identity)


def _parts(messages: Sequence[Any]) -> list[StagedPart]:
    return [message.part for message in messages if message is not None and message.part is not None]
