"""Which offsets a stream has, where a query begins, and how ranges of offsets are cut into partitions.

Offsets are half open, `{stream: next offset to read}`. Partitions depend on offsets only, never on cores.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from spark_bridge.address import queue_address
from spark_bridge.client import Connection
from spark_bridge.errors import BrokerUnreachable, DataLost, Refused, SluiceError
from spark_bridge.settings import ConnectionSettings, ReadSettings

Offsets = dict[str, int]

TIMESTAMP_MS_MIN: Final = 10**12  # what is less means seconds to the broker; no stream is from before 2001


class StreamEnds(NamedTuple):
    """The oldest offset there is, and the one the next message will have."""

    first: int
    next: int


class Range(NamedTuple):
    """Offsets `[start, end)` of one stream."""

    queue: str
    start: int
    end: int


class OffsetReader:
    """Asks the broker, over one connection that is made again when it was lost."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None

    def ends(self, queue: str) -> StreamEnds:
        """Return the ends of one stream; raises Refused when it is none."""
        answer = self._ask(queue, {})
        return StreamEnds(answer["first"], answer["next"])

    def at(self, queue: str, time_ms: int) -> int:
        """Return the first offset of what was published at a time or later; the end when there is nothing
        yet.
        """
        if time_ms < TIMESTAMP_MS_MIN:
            return self.ends(queue).first
        place = {"x-stream-offset": f"timestamp={time_ms}"}
        answer = self._ask(queue, place)
        if answer["offset"] >= answer["next"]:
            return answer["next"]
        # the broker knows the stretch, a reader gets the message itself
        with Connection(self._settings) as connection:
            connection.consume(queue, no_ack=False, arguments=place, prefetch=1)
            if not connection.poll_delivery():
                raise BrokerUnreachable(
                    f"nothing came of stream {queue!r} from time {time_ms} on (option confirmTimeout)"
                )
            return int(connection.deliveries[0].properties["headers"]["x-stream-offset"])

    def anchor(self, queue: str, group: str, start: str | int) -> int:
        """Return where a group is; a new one is made at `start`, so that each later call gives the same."""
        return self._ask(queue, {"x-group-id": group, "x-stream-offset": start})["committed"]

    def report(self, group: str, offsets: Mapping[str, int]) -> None:
        """Say how far the query is; a group is never moved back."""
        for queue, offset in offsets.items():
            if offset > self._ask(queue, {"x-group-id": group, "x-stream-offset": 0})["committed"]:
                connection = self._connected()
                connection.confirm_select()
                connection.commit_offset(queue, group, offset - 1)
                connection.wait_confirmed()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, queue: str, headers: Mapping[str, object]) -> dict[str, int]:
        for is_last in (False, True):
            try:
                answer = self._connected().ask(f"{queue_address(queue)}/$stream-status", headers)
                break
            except BrokerUnreachable:
                self._connection = None
                if is_last:
                    raise
        if answer["status"] == "refused":
            raise Refused(f"{answer['reason']} (option queue)")
        return answer

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._settings)
        return self._connection


def starting_offsets(settings: ReadSettings, reader: OffsetReader) -> Offsets:
    """Return where a query begins that has no checkpoint yet. With a group the answer stays the same."""
    given = dict(settings.starting_offsets)
    offsets = {}
    for queue in settings.queues:
        if settings.starting_ms >= 0:
            given[queue] = reader.at(queue, settings.starting_ms)
        if settings.group:
            start = given.get(queue, "first" if settings.starting == "earliest" else "next")
            offsets[queue] = reader.anchor(queue, settings.group, start)
        else:
            first, end = reader.ends(queue)
            offsets[queue] = min(given.get(queue, first), end)
    return offsets


def limited(start: Offsets, end: Offsets, row_count_max: int) -> Offsets:
    """Return `end`, or nearer so that about so many rows lie in between; streams share in proportion."""
    backlog = {queue: max(0, end[queue] - start.get(queue, 0)) for queue in end}
    total = sum(backlog.values())
    if total <= row_count_max:
        return end
    return {
        queue: start.get(queue, 0) + -(-count * row_count_max // total) if count else end[queue]
        for queue, count in backlog.items()
    }


def ranges(start: Offsets, end: Offsets, offsets_per_partition: int) -> list[Range]:
    """Return the partitions of a batch; raises SluiceError when it would run backwards."""
    found = []
    for queue in sorted(end):
        low, high = start.get(queue, 0), end[queue]
        if low > high:
            raise SluiceError(
                f"stream {queue!r} ends at {high}, but the query is at {low}: the stream was made anew."
                " Start with a new checkpoint"
            )
        while low < high:
            # cut at multiples, so that the same offsets lie together whatever the batch
            cut = min(high, (low // offsets_per_partition + 1) * offsets_per_partition)
            found.append(Range(queue, low, cut))
            low = cut
    return found


def kept(wanted: Range, ends: StreamEnds, *, fail_on_data_loss: bool) -> Range | None:
    """Return what is still there of a range, None for nothing; raises DataLost if some is gone and that
    matters.
    """
    if wanted.end > ends.next:
        raise SluiceError(
            f"stream {wanted.queue!r} ends at {ends.next}, before {wanted.end}: it was made anew."
            " Start with a new checkpoint"
        )
    if wanted.start >= ends.first:
        return wanted
    lost(wanted.queue, wanted.start, min(ends.first, wanted.end), fail_on_data_loss=fail_on_data_loss)
    return None if ends.first >= wanted.end else wanted._replace(start=ends.first)


def lost(queue: str, start: int, end: int, *, fail_on_data_loss: bool) -> None:
    """Tell that offsets `[start, end)` are gone: an error, or a line in the log."""
    text = f"retention took offsets {start} to {end - 1} of stream {queue!r} before they were read"
    if fail_on_data_loss:
        raise DataLost(f"{text} (option failOnDataLoss)")
    print(f"sluice: {text}", file=sys.stderr)
