"""The work of a task with its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from spark_bridge import epochs
from spark_bridge.client import Connection
from spark_bridge.columns import Layout
from spark_bridge.epochs import Epoch, StagedPart, TaskIdentity
from spark_bridge.errors import Refused
from spark_bridge.publisher import Publisher
from spark_bridge.rows import RowEncoder
from spark_bridge.settings import WriteSettings

CHECK_TIMEOUT_S: Final = 1.0


def check_target(settings: WriteSettings) -> None:
    """Check that the broker lets us in and has the queue, before anything is computed; raises SluiceError."""
    with Connection(settings.connection) as connection:
        if settings.queue:
            try:
                connection.count(settings.queue)
            except Refused as error:
                raise Refused(f"{error} (option queue)") from None


def in_short(settings: WriteSettings) -> WriteSettings:
    """Return the same for a check that is not to hold anything up."""
    connection = settings.connection
    connect_timeout_s = min(connection.connect_timeout_s, CHECK_TIMEOUT_S)
    return replace(settings, connection=replace(connection, connect_timeout_s=connect_timeout_s))


def write_rows(
    settings: WriteSettings,
    layout: Layout,
    identity: TaskIdentity,
    epoch: Epoch | None,
    batches: Iterator[Any],
) -> StagedPart | None:
    """Publish Arrow batches; with an epoch they are staged, and what is to be committed is given back.

    Returns when the broker has confirmed every row. Raises SluiceError.
    """
    if epoch is None:
        _publish(settings, layout, batches)
        return None
    part = StagedPart(epoch, identity.partition, epochs.new_attempt(identity), 0, 0)
    writer: _StagedWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                if writer is None:
                    writer = _StagedWriter(settings, layout, part)
                writer.write(batch)
        if writer is not None:
            part = writer.finish()
    except BaseException:
        if writer is not None:
            writer.give_up()
        raise
    return part


def _publish(settings: WriteSettings, layout: Layout, batches: Iterator[Any]) -> None:
    publisher: Publisher | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if publisher is None:
                publisher = Publisher(settings.connection, settings.confirm_window)
                encoder = RowEncoder(settings, layout, publisher.connection.body_bytes_max, {})
            publisher.send(encoder.encode(batch, encoder.payloads(batch)))
        if publisher is not None:
            publisher.finish()
    except BaseException:
        if publisher is not None:
            publisher.close()
        raise


class _StagedWriter:
    """Stages one attempt; of an epoch that is committed already it only counts the rows."""

    def __init__(self, settings: WriteSettings, layout: Layout, part: StagedPart) -> None:
        self._settings = settings
        self._part = part
        self._row_count = 0
        self._checksum = 0
        self._publisher = Publisher(settings.connection, settings.confirm_window, self._resume)
        try:
            connection = self._publisher.connection
            self._is_committed = epochs.is_committed(connection, settings, part.epoch)
            connection.wait_confirmed()
            self._publisher.begin()
        except BaseException:
            self._publisher.close()
            raise
        self._encoder = RowEncoder(settings, layout, connection.body_bytes_max, epochs.stage_headers(part))

    def _resume(self, connection: Connection) -> int:
        return epochs.staged_count(connection, self._settings, self._part)

    def write(self, batch: Any) -> None:
        bodies = self._encoder.payloads(batch)
        self._row_count += len(bodies)
        self._checksum += epochs.checksum_of(bodies)
        if not self._is_committed:
            self._publisher.send(self._encoder.encode(batch, bodies))

    def finish(self) -> StagedPart:
        self._publisher.finish()
        return replace(self._part, row_count=self._row_count, checksum=self._checksum)

    def give_up(self) -> None:
        """Give up a failed attempt: it is never committed, and what it staged would only wait for its time to
        run out.
        """
        self._publisher.close()
