"""`$queue/<queue>/$browse`: look at a queue's messages in any state, a page at a time, and disturb nothing.

Headers, all optional: `x-state` (`ready`, `in_flight`, `delayed`, `scheduled`, `failed`, `done`),
`x-group-id`, `x-after` (the `next` of the page before), `x-limit`. The messages come to `reply_to`, with
their own properties and what is said of them in headers `x-browse-…`; then the end of the page, as JSON with
the `correlation_id`.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, cast

import structlog

from broker.amqp.connection.shared import Room
from broker.amqp.controls.call_answers import Answers
from broker.properties.amqp import bare, routing_key
from broker.properties.templates import as_amqp
from broker.vhosts.hub import Hub
from config import limits
from protocols.amqp091.content import append_encoded
from protocols.amqp091.tables import encode_entry, encode_name
from queue_manager import stage_tags as tags
from queue_manager.api import STATES, BrowsedMessage, BrowseRequest, State
from queue_manager.errors import InvalidArgument, QueueManagerError
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.amqp")

STATE: Final = "x-state"
GROUP: Final = "x-group-id"
AFTER: Final = "x-after"
LIMIT: Final = "x-limit"
LIMIT_DEFAULT: Final = 100

STATE_TOLD: Final = "x-browse-state"
KEY: Final = "x-browse-routing-key"
EXCHANGE: Final = "x-browse-exchange"
TIME: Final = "x-browse-time"
CONSUMER: Final = "x-browse-consumer"
TOLD: Final = (
    STATE_TOLD,
    KEY,
    EXCHANGE,
    *("x-browse-offset", "x-browse-attempts", "x-browse-timestamp", "x-browse-id"),
    TIME,
    CONSUMER,
)
"""Of each message, in this order; the second line is written, and may be read, in one piece."""

_INTEGER: Final = b"l"
_TEXT: Final = b"S"
_OFFSET: Final = encode_name("x-browse-offset") + _INTEGER
_ATTEMPTS: Final = encode_name("x-browse-attempts") + _INTEGER
_TIMESTAMP: Final = encode_name("x-browse-timestamp") + _INTEGER
_ID: Final = encode_name("x-browse-id") + _TEXT
_TOLD: Final = struct.Struct(f">{len(_OFFSET)}sq{len(_ATTEMPTS)}sq{len(_TIMESTAMP)}sq{len(_ID)}sI")


@dataclass(eq=False, repr=False, slots=True)
class Browse:
    """One page of a listing, on its way to who asked for it."""

    _hub: Hub
    _slots: Room
    _queue: str
    _caller: str
    headers: InitVar[dict[str, Any]]
    _answers: Answers
    _request: BrowseRequest = field(init=False)

    def __post_init__(self, headers: dict[str, Any]) -> None:
        """Begin a page. Raises QueueManagerError when it cannot be answered."""
        if not self._answers.reply_to:
            raise InvalidArgument("$browse needs a reply_to: the queue where the messages are to go")
        self._slots.check()
        state = headers.get(STATE, "ready")
        if state not in STATES:
            raise InvalidArgument(f"{STATE} is one of {', '.join(STATES)}, not {state!r}")
        limit = tags.number(headers, LIMIT) if LIMIT in headers else LIMIT_DEFAULT
        if not 1 <= limit <= limits.LISTED_MESSAGES_MAX:
            raise InvalidArgument(f"{LIMIT} is 1 to {limits.LISTED_MESSAGES_MAX}, not {limit}")
        group = headers.get(GROUP)
        self._request = BrowseRequest(
            state=cast("State", state),
            group=None if group is None else str(group),
            after=tags.text(headers, AFTER) if AFTER in headers else None,
            limit=limit,
        )

    def begin(self) -> None:
        """Read the page and send it, beside everything else."""
        self._slots.take()
        self._hub.spawn(self._answer())

    async def _answer(self) -> None:
        hub = self._hub
        try:
            page = await hub.client.messages.browse(self._queue, self._request, self._caller)
            kept = [found for found in page.messages if found.body is not None]
            if await self._send(kept):
                self._end({"status": "ok", "messages": len(kept), "next": page.next})
                return
            self._end(
                {
                    "status": "refused",
                    "reason": f"queue {self._answers.reply_to!r} does not take the messages",
                }
            )
        except QueueManagerError as error:
            hub.counters.refuse_control()
            self._end({"status": "refused", "reason": error.reason, "error": type(error).__name__})
        except StorageError as error:
            _log.warning("browse.failed", queue=self._queue, reason=error.reason)
        finally:
            self._slots.give_back()
            hub.settle_turn()

    async def _send(self, messages: list[BrowsedMessage]) -> bool:
        """Send the messages, a part in each turn of the loop; whether they were taken."""
        hub = self._hub
        shared: dict[int, bytes] = {}  # messages published alike, one object, have most of it in common
        places: dict[tuple[str, str], bytes] = {}
        count = limits.BROWSED_PER_TURN_MAX
        for start in range(0, len(messages), count):
            part = messages[start : start + count]
            properties = [self._properties(found, shared, places) for found in part]
            bodies = [found.body or b"" for found in part]
            if not self._answers.send(properties, bodies):
                return False
            hub.settle_turn()
            await asyncio.sleep(0)
        return True

    def _properties(
        self, found: BrowsedMessage, shared: dict[int, bytes], places: dict[tuple[str, str], bytes]
    ) -> bytes:
        template = found.template
        base = shared.get(id(template))
        if base is None:
            base = shared[id(template)] = bare(as_amqp(template), TOLD)
        place = (template.topic, template.exchange)
        told = places.get(place)
        if told is None:
            told = places[place] = self._told_of(*place)
        name = f"{self._queue}:{found.name}".encode()
        told += _TOLD.pack(
            _OFFSET, found.offset, _ATTEMPTS, found.attempts, _TIMESTAMP, found.received_at_ms, _ID, len(name)
        )
        told += name
        if found.time_ms:
            told += encode_entry(TIME, found.time_ms)
        if found.consumer:
            told += encode_entry(CONSUMER, found.consumer)
        return append_encoded(base, told)

    def _told_of(self, topic: str, exchange: str) -> bytes:
        told = encode_entry(STATE_TOLD, self._request.state) + encode_entry(KEY, routing_key(topic))
        return told + encode_entry(EXCHANGE, exchange) if exchange else told

    def _end(self, answer: dict[str, object]) -> None:
        self._answers.tell(answer)
