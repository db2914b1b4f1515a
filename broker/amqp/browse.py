"""`$queue/<queue>/$browse`: look at a queue's messages in any state, a page at a time, and disturb nothing.

Headers, all optional: `x-state` (`ready`, `in_flight`, `delayed`, `scheduled`, `failed`, `done`),
`x-group-id`, `x-after` (the `next` of the page before), `x-limit`. The messages come to `reply_to`, with
their own properties and what is said of them in headers `x-browse-…`; then the end of the page, as JSON with
the `correlation_id`.
"""

from __future__ import annotations

from typing import Any, Final, cast

import structlog

from broker.amqp.replying import publish_json, publish_reply
from broker.hub import Hub
from broker.properties.amqp import routing_key, stamp
from broker.properties.model import Header
from broker.properties.templates import as_amqp, template_of
from config import limits
from queue_manager import stage_tags as tags
from queue_manager.api import STATES, BrowsedMessage, BrowseRequest, State
from queue_manager.errors import InvalidArgument, LimitReached, QueueManagerError
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.amqp")

STATE: Final = "x-state"
GROUP: Final = "x-group-id"
AFTER: Final = "x-after"
LIMIT: Final = "x-limit"
LIMIT_DEFAULT: Final = 100


class BrowseSlots:
    """How many pages are being read for all clients: `limits.BROWSES_AT_ONCE_MAX` at most."""

    __slots__ = ("_taken_count",)

    def __init__(self) -> None:
        self._taken_count = 0

    def check(self) -> None:
        """Raise LimitReached if there is none left."""
        if self._taken_count >= limits.BROWSES_AT_ONCE_MAX:
            raise LimitReached(f"{limits.BROWSES_AT_ONCE_MAX} pages are being read already: ask again later")

    def take(self) -> None:
        """A page is begun."""
        self._taken_count += 1

    def give_back(self) -> None:
        """A page has ended."""
        self._taken_count -= 1


class Browse:
    """One page of a listing, on its way to who asked for it."""

    __slots__ = ("_caller", "_correlation_id", "_hub", "_queue", "_reply_to", "_request", "_slots")

    def __init__(
        self,
        hub: Hub,
        slots: BrowseSlots,
        queue: str,
        caller: str,
        headers: dict[str, Any],
        reply_to: str,
        correlation_id: str,
    ) -> None:
        """Raises QueueManagerError when it cannot be answered."""
        if not reply_to:
            raise InvalidArgument("$browse needs a reply_to: the queue where the messages are to go")
        slots.check()
        self._hub = hub
        self._slots = slots
        self._queue = queue
        self._caller = caller
        self._reply_to = reply_to
        self._correlation_id = correlation_id
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
            sent = 0
            for found in page.messages:
                if found.body is None:
                    continue
                if not publish_reply(hub, self._reply_to, self._properties(found), found.body):
                    break
                sent += 1
            else:
                self._end({"status": "ok", "messages": sent, "next": page.next})
                return
            self._end({"status": "refused", "reason": f"queue {self._reply_to!r} does not take the messages"})
        except QueueManagerError as error:
            hub.counters.refuse_control()
            self._end({"status": "refused", "reason": error.reason, "error": type(error).__name__})
        except StorageError as error:
            _log.warning("browse.failed", queue=self._queue, reason=error.reason)
        finally:
            self._slots.give_back()
            hub.settle_turn()

    def _properties(self, found: BrowsedMessage) -> bytes:
        published = found.published
        told: list[Header] = [
            ("x-browse-state", self._request.state),
            ("x-browse-id", f"{self._queue}:{found.name}"),
            ("x-browse-offset", found.offset),
            ("x-browse-routing-key", routing_key(published.topic)),
            ("x-browse-attempts", found.attempts),
            ("x-browse-timestamp", found.received_at_ms),
        ]
        if published.exchange:
            told.append(("x-browse-exchange", published.exchange))
        if found.time_ms:
            told.append(("x-browse-time", found.time_ms))
        if found.consumer:
            told.append(("x-browse-consumer", found.consumer))
        return stamp(as_amqp(template_of(published)), told)

    def _end(self, answer: dict[str, object]) -> None:
        publish_json(self._hub, self._reply_to, self._correlation_id, answer)
