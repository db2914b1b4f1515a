"""The messages of a work queue that a streaming query has claimed and not settled yet.

A batch is the list of its messages' offsets, which Spark keeps in the checkpoint. What is claimed again after
a failure is known by offset and time: it belongs to the batch that is repeated, is settled when its batch was
done already, or is new.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from spark_bridge import wire
from spark_bridge.address import queue_address
from spark_bridge.client import Connection, Message
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.link import CHANNEL
from spark_bridge.listed import ListLink
from spark_bridge.listing import PAGE_ROWS, ask_page, take_page
from spark_bridge.runs import Run
from spark_bridge.settings import ClaimSettings, ListSettings

OFFSET: Final = "x-offset"
TIMESTAMP: Final = "x-timestamp"
OFFSET_ARGUMENT: Final = "x-tell-offset"
# what the broker adds; a batch that is repeated is to have the same rows
TOLD: Final = (OFFSET, TIMESTAMP, "x-group-id", "x-delivery-count", "x-acquired-count")
PREFETCH_MAX: Final = 65_535  # u16
QUIET_S: Final = 0.05
FIRST_WAIT_S: Final = 0.3
MISSING_CHECK_S: Final = 2.0
STATES: Final = ("in_flight", "ready", "delayed")


class Taken(NamedTuple):
    """A batch: the offsets of its messages, and when the last of them was published. A queue that was made
    anew has the same offsets again, but later.
    """

    offsets: frozenset[int] = frozenset()
    until_ms: int = 0

    def has(self, offset: int, time_ms: int) -> bool:
        """Return whether a message is of the batch."""
        return time_ms <= self.until_ms and offset in self.offsets


class Held(NamedTuple):
    """A claimed message."""

    message: Message
    time_ms: int


def ranges_of(offsets: Iterable[int]) -> list[list[int]]:
    """Return offsets as ranges `[first, end)`, in order."""
    found: list[list[int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1][1] += 1
        else:
            found.append([offset, offset + 1])
    return found


def offset_of(queue: str, count: int, taken: Taken) -> dict[str, Any]:
    """Return what stands in the checkpoint of a batch, whose end is behind `count` messages of the query."""
    return {"queue": queue, "taken": count, "until": taken.until_ms, "offsets": ranges_of(taken.offsets)}


def taken_of(offset: Mapping[str, Any]) -> Taken:
    """Read the batch that stands in a checkpoint."""
    offsets = frozenset(number for first, end in offset["offsets"] for number in range(first, end))
    return Taken(offsets, offset["until"])


class Claims:
    """Claims over one connection, which is made again when it was lost; then everything comes again."""

    def __init__(self, settings: ClaimSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._held: dict[int, Held] = {}
        self._held_bytes = 0
        self._done: list[Taken] = []
        self._repeated_count = 0  # messages of a batch that is repeated

    def close(self) -> None:
        """Give back everything that is claimed."""
        self._forget()

    def settle(self, taken: Taken) -> None:
        """Acknowledge a batch that is done; what of it comes again is acknowledged, too."""
        if not taken.offsets:
            return
        if taken not in self._done:
            self._done = [*self._done[-1:], taken]
        try:
            connection = self._connected()
            tags = []
            for offset in taken.offsets:
                held = self._held.get(offset)
                if held is not None and taken.has(offset, held.time_ms):
                    tags.append(held.message.delivery_tag)
                    self._drop(offset)
            connection.send([_ack(tag) for tag in sorted(tags)], 0)
            connection.flush()
        except BrokerUnreachable:
            self._forget()  # what was not acknowledged comes again

    def take(self, count_max: int, patience_s: float) -> Taken:
        """Return what is claimed and not done, in order, at most so much; wait a moment for the first."""
        limit = min(count_max, self._settings.messages_per_trigger)
        bytes_max = self._settings.bytes_per_trigger
        wait_s = FIRST_WAIT_S if self._connection is None else QUIET_S
        wait_s = max(wait_s, patience_s)
        try:
            while len(self._held) < limit and self._held_bytes < bytes_max and self._poll(wait_s):
                wait_s = QUIET_S
        except BrokerUnreachable:
            return Taken()  # a broker that is away has no news
        offsets: list[int] = []
        body_bytes = until_ms = 0
        for offset, held in self._held.items():
            body_bytes += len(held.message.body)
            if len(offsets) >= limit or (offsets and body_bytes > bytes_max):
                break
            offsets.append(offset)
            until_ms = max(until_ms, held.time_ms)
        return Taken(frozenset(offsets), until_ms)

    def find(self, taken: Taken) -> list[int]:
        """Return the offsets of a batch that are claimed, in order: waits until they have come again after a
        failure. What others have taken since is told in the log.
        """
        self._repeated_count = len(taken.offsets)
        deadline = time.monotonic() + self._settings.connection.confirm_timeout_s
        check_at = time.monotonic() + MISSING_CHECK_S
        while missing := self._missing(taken):
            try:
                if self._poll(QUIET_S):
                    continue
            except BrokerUnreachable:
                if time.monotonic() >= deadline:
                    raise
                continue
            now = time.monotonic()
            if now >= check_at:
                waiting = self._elsewhere(missing)
                if not waiting or now >= deadline:
                    self._tell_lost(taken, missing, waiting)
                    break
                check_at = now + MISSING_CHECK_S
        self._repeated_count = 0
        return sorted(taken.offsets - self._missing(taken))

    def begin(self) -> None:
        """Begin to claim; raises SluiceError where that cannot be."""
        self._connected()

    def ready_count(self) -> int:
        """Return how many messages of the queue can be claimed, beside those that are held here."""
        with Connection(self._settings.connection) as connection:
            try:
                return connection.count(self._settings.queue)
            except Refused as error:
                raise Refused(f"{error} (option queue)") from None

    # what comes

    def _poll(self, timeout_s: float) -> bool:
        """Take in deliveries; whether any came within the time."""
        try:
            connection = self._connected()
            deadline = time.monotonic() + timeout_s
            while not connection.deliveries:
                if connection.cancelled:
                    queue = self._settings.queue
                    raise Refused(f"queue {queue!r} was deleted, or a lease ended (options queue, lease)")
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not connection.poll(left_s):
                    return False
            self._keep(connection)
        except BrokerUnreachable:
            self._forget()
            raise
        return True

    def _keep(self, connection: Connection) -> None:
        tags = []
        while connection.deliveries:
            message = connection.deliveries.popleft()
            headers = message.properties["headers"]
            offset, time_ms = headers[OFFSET], headers[TIMESTAMP]
            if any(taken.has(offset, time_ms) for taken in self._done):
                tags.append(message.delivery_tag)
                continue
            self._drop(offset)  # the lease of an earlier delivery of it ended
            self._held[offset] = Held(message, time_ms)
            self._held_bytes += len(message.body)
        if tags:
            connection.send([_ack(tag) for tag in tags], 0)
            connection.flush()

    def _drop(self, offset: int) -> None:
        held = self._held.pop(offset, None)
        if held is not None:
            self._held_bytes -= len(held.message.body)

    def _connected(self) -> Connection:
        if self._connection is None:
            settings = self._settings
            connection = Connection(settings.connection)
            try:
                self._check_queue(connection)
                arguments: dict[str, Any] = {OFFSET_ARGUMENT: True}
                if settings.group:
                    arguments["x-consumer-group"] = settings.group
                if settings.lease_ms:
                    arguments["x-consumer-timeout"] = settings.lease_ms
                if settings.selector:
                    arguments["x-jms-selector"] = settings.selector
                prefetch = min(PREFETCH_MAX, settings.messages_per_trigger + self._repeated_count)
                connection.consume(settings.queue, no_ack=False, arguments=arguments, prefetch=prefetch)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _check_queue(self, connection: Connection) -> None:
        """Raise Refused for a stream, which is read otherwise, or where there is no queue."""
        queue = self._settings.queue
        answer = connection.ask(f"{queue_address(queue)}/$stream-status", {})
        if answer["status"] != "refused":
            raise Refused(f"queue {queue!r} is a stream: leave option claim out")
        if answer["error"] == "QueueNotFound":
            raise Refused(f"{answer['reason']} (option queue)")

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        self._held.clear()
        self._held_bytes = 0
        if connection is not None:
            connection.close()

    # what does not come

    def _missing(self, taken: Taken) -> set[int]:
        held = self._held
        return {
            offset
            for offset in taken.offsets
            if (found := held.get(offset)) is None or not taken.has(offset, found.time_ms)
        }

    def _elsewhere(self, missing: set[int]) -> set[int]:
        """Return which of these are in the queue still, and may come."""
        settings = self._settings
        first, last = min(missing), max(missing)
        found: set[int] = set()
        with ListLink(settings.connection) as link:
            reply_to = link.take_replies()
            for state in STATES:
                listed = ListSettings(settings.connection, (settings.queue,), state, settings.group or None)
                after = str(first - 1) if first else None
                while True:
                    rows, after = take_page(
                        link,
                        settings.queue,
                        ask_page(link, reply_to, listed, settings.queue, after, PAGE_ROWS),
                    )
                    found |= missing.intersection(row.offset for row in rows)
                    if after is None or not rows or rows[-1].offset >= last:
                        break
        return found

    def _tell_lost(self, taken: Taken, missing: set[int], waiting: set[int]) -> None:
        reason = "other consumers have them" if waiting else "they were settled, dropped or have expired"
        print(
            f"sluice: {len(missing)} of the {len(taken.offsets)} messages of a batch that is repeated are not"
            f" in it: {reason}",
            file=sys.stderr,
        )

    def runs(self, offsets: Iterable[int]) -> list[Run]:
        """Return claimed messages, those alike together."""
        runs: list[Run] = []
        for offset in offsets:
            message, time_ms = self._held[offset]
            properties = dict(message.properties)
            message_id = properties.pop("message_id", None)
            properties["headers"] = {
                name: value for name, value in properties["headers"].items() if name not in TOLD
            }
            last = runs[-1] if runs else None
            if (
                last is None
                or last.properties != properties
                or (last.exchange, last.routing_key) != (message.exchange, message.routing_key)
            ):
                last = Run(message.exchange, message.routing_key, properties, [], [], [], [], 0)
                runs.append(last)
            last.offsets.append(offset)
            last.times_ms.append(time_ms)
            last.message_ids.append(message_id)
            last.bodies.append(message.body)
        return runs


def _ack(tag: int) -> bytes:
    return wire.method(CHANNEL, 60, 80, tag.to_bytes(8, "big") + b"\0")
