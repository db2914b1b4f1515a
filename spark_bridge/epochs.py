"""Exactly once: executors stage what they write, one commit makes one attempt of each part of it visible.

The unit is the epoch of a producer. Nothing depends on rows having the same place in a second run: an epoch
is either all in the queue or not at all, and the broker knows which one was the last.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from zlib import crc32

from spark_bridge.address import queue_address
from spark_bridge.client import Connection
from spark_bridge.errors import BrokerUnreachable, CheckpointTooOld, Refused, SluiceError
from spark_bridge.settings import WriteSettings

TRIES_MAX: Final = 5
TRY_DELAY_S: Final = 0.5
VISIBLE_POLL_S: Final = 0.1
CHECKSUM_MASK: Final = (1 << 64) - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Where a task stands, as Spark tells it. `query` and `batch` are None outside a streaming query."""

    query: str | None
    batch: int | None
    partition: int
    task: int


def task_identity() -> TaskIdentity:
    """Return the identity of the task this runs in."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise SluiceError("this runs outside a Spark task")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return TaskIdentity(
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch is None else int(batch),
        context.partitionId(),
        context.taskAttemptId(),
    )


@dataclass(frozen=True, slots=True)
class Epoch:
    """The unit of commit."""

    producer: str
    number: int


def epoch_of_stream(settings: WriteSettings, identity: TaskIdentity) -> Epoch:
    """Return the epoch a task of a streaming query writes; raises SluiceError when it cannot be known."""
    if identity.batch is None or (identity.query is None and not settings.producer_id):
        raise SluiceError(
            "this Spark does not tell its tasks the query and batch they belong to; set option producerId"
            " and write batches of your own with foreachBatch and option epoch"
        )
    producer = settings.producer_id or str(identity.query)
    number = identity.batch if settings.epoch is None else settings.epoch
    return Epoch(_sink(producer, settings), number)


def epoch_of_batch(settings: WriteSettings, identity: TaskIdentity, job: str) -> Epoch:
    """Return the epoch a batch job writes: one of its own, unless `producerId` and `epoch` make it
    repeatable.
    """
    if identity.query is not None and not settings.producer_id:
        raise SluiceError(
            "inside foreachBatch a repeated batch could not be told from a new one: set options producerId"
            " and epoch (the batch id), or delivery at-least-once"
        )
    return Epoch(_sink(settings.producer_id or f"job-{job}", settings), settings.epoch or 0)


def _sink(producer: str, settings: WriteSettings) -> str:
    return f"{producer}/{settings.sink_name or settings.queue}"[:255]


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The report of a task to the driver: its attempt at one part. The checksum ignores the order of rows."""

    epoch: Epoch
    part: int
    attempt: str
    row_count: int
    checksum: int


def new_attempt(identity: TaskIdentity) -> str:
    """Make a name nothing else has: partition and attempt numbers come again after a stage retry."""
    return f"{identity.task}-{uuid.uuid4().hex[:12]}"


def checksum_of(bodies: Iterable[bytes]) -> int:
    """Return the checksum of some rows, whatever their order; add them up."""
    return sum(map(crc32, bodies))


def stage_headers(part: StagedPart) -> dict[str, Any]:
    """Return the headers that mark a publish as staged."""
    return {
        "x-stage-producer": part.epoch.producer,
        "x-stage-epoch": part.epoch.number,
        "x-stage-part": part.part,
        "x-stage-attempt": part.attempt,
    }


def control_address(queue: str, verb: str) -> str:
    """Return where calls about epochs are published to."""
    return f"{queue_address(queue)}/$stage-{verb}"


def is_committed(connection: Connection, settings: WriteSettings, epoch: Epoch) -> bool:
    """Return whether the epoch is in the queue already; raises CheckpointTooOld if a later one is."""
    address = control_address(settings.queue, "status")
    answer = _checked(connection.ask(address, {"x-stage-producer": epoch.producer}), epoch)
    last = answer["epoch"]
    if last is not None and epoch.number < last:
        raise CheckpointTooOld(_too_old(epoch, f"its last one is {last}"))
    return bool(last == epoch.number)


def staged_count(connection: Connection, settings: WriteSettings, part: StagedPart) -> int:
    """Return how many rows of an attempt the broker has."""
    address = control_address(settings.queue, "status")
    return int(_checked(connection.ask(address, stage_headers(part)), part.epoch)["staged"])


def commit(settings: WriteSettings, parts: Sequence[StagedPart]) -> None:
    """Make exactly these attempts visible; may be called again. Raises SluiceError."""
    epoch = _only_epoch(parts)
    row_count = sum(part.row_count for part in parts)
    checksum = f"{sum(part.checksum for part in parts) & CHECKSUM_MASK:016x}"
    headers = {
        "x-stage-producer": epoch.producer,
        "x-stage-epoch": epoch.number,
        "x-stage-checksum": checksum,
    }
    body = json.dumps({"parts": [[p.part, p.attempt, p.row_count] for p in parts if p.row_count]}).encode()
    address = control_address(settings.queue, "commit")
    answer = _persistently(settings, lambda connection: connection.ask(address, headers, body))
    _checked(answer, epoch)
    if answer["status"] == "already" and (answer["rows"], answer["checksum"]) != (row_count, checksum):
        print(
            f"sluice: epoch {epoch.number} of {epoch.producer} was written again with other rows"
            f" ({answer['rows']} before, {row_count} now): the query is not deterministic; the first stay",
            file=sys.stderr,
        )
    if settings.waits_visible:
        wait_visible(settings, epoch)


def wait_visible(settings: WriteSettings, epoch: Epoch) -> None:
    """Return once all rows the producer committed can be consumed. Raises SluiceError."""
    address = control_address(settings.queue, "status")
    headers = {"x-stage-producer": epoch.producer}

    def is_moving(connection: Connection) -> bool:
        return bool(_checked(connection.ask(address, headers), epoch)["moving"])

    while _persistently(settings, is_moving):
        time.sleep(VISIBLE_POLL_S)


def abort(settings: WriteSettings, parts: Sequence[StagedPart]) -> None:
    """Drop these attempts, unless their epoch is committed: a commit whose answer was lost stays."""
    if not parts:
        return
    epoch = _only_epoch(parts)
    headers = {"x-stage-producer": epoch.producer, "x-stage-epoch": epoch.number}
    body = json.dumps({"parts": [[part.part, part.attempt, part.row_count] for part in parts]}).encode()
    address = control_address(settings.queue, "abort")
    with Connection(settings.connection) as connection:
        connection.ask(address, headers, body)


def _persistently(settings: WriteSettings, call: Callable[[Connection], T]) -> T:
    for left in reversed(range(TRIES_MAX)):
        try:
            with Connection(settings.connection) as connection:
                return call(connection)
        except BrokerUnreachable:
            if not left:
                raise
            time.sleep(TRY_DELAY_S)
    raise AssertionError


def _only_epoch(parts: Sequence[StagedPart]) -> Epoch:
    epochs = {part.epoch for part in parts}
    if len(epochs) != 1:
        raise SluiceError(f"tasks of one job wrote different epochs: {sorted(map(str, epochs))}")
    return epochs.pop()


def _checked(answer: dict[str, Any], epoch: Epoch) -> dict[str, Any]:
    if answer["status"] != "refused":
        return answer
    reason = answer["reason"]
    if "older than the last committed" in reason:
        raise CheckpointTooOld(_too_old(epoch, reason))
    raise Refused(f"epoch {epoch.number} of {epoch.producer}: {reason} (option queue)")


def _too_old(epoch: Epoch, why: str) -> str:
    return (
        f"epoch {epoch.number} of {epoch.producer} is older than what the queue has: {why}. The checkpoint"
        " was restored or copied, or two queries share it; go on with a new checkpoint or producerId"
    )
