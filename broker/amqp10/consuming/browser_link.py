"""A link that looks at a queue: distribution mode `copy` (AMQP 1.0, 3.5.3), as JMS browsers ask for it."""

from __future__ import annotations

from typing import Final

import structlog

from broker.amqp.connection.shared import Room
from broker.amqp10.connection.amqp10_session import Session
from broker.properties.templates import as_amqp10
from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.link import Link
from queue_manager.api import BrowsedMessage, BrowsedPage, BrowseRequest
from queue_manager.errors import QueueManagerError
from queue_manager.filters.consumer_filter import ConsumerFilter
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.amqp")


class BrowserLink:
    """Shows the client what is ready for a group, once, settled; nothing is claimed.

    It goes on behind what it has shown whenever the client gives credit. `slots` bounds the pages that are
    read at a time for all clients.
    """

    def __init__(
        self, session: Session, link: Link, queue: str, group: str, wanted: ConsumerFilter | None, slots: Room
    ) -> None:
        self.link = link
        self._session = session
        self._queue = queue
        self._group = group or None
        self._wanted = wanted
        self._slots = slots
        self._after: str | None = None
        self._is_reading = False
        self._is_over = False

    def credit_changed(self) -> None:
        """Show as much as the client allows; raises LimitReached when too many look already."""
        if self.link.credit and not self._is_reading and not self._is_over:
            self._slots.take()
            self._is_reading = True
            self._session.hub.spawn(self._read())

    def resumed(self) -> None:
        """Go on when there is room in the session's window again."""
        self.credit_changed()

    def close(self) -> None:
        """Show nothing more."""
        self._is_over = True

    async def _read(self) -> None:
        session = self._session
        try:
            while self._may_go_on():
                page = await session.core.messages.browse(
                    self._queue,
                    BrowseRequest(
                        state="ready",
                        group=self._group,
                        after=self._after,
                        limit=min(self.link.credit, limits.BROWSED_PER_TURN_MAX),
                        wanted=self._wanted,
                    ),
                    session.client.caller,
                )
                if not self._may_go_on():
                    return
                if len(page.messages) > self.link.credit:
                    continue  # the client took credit back meanwhile, perhaps to drain the link: read fewer
                session.transport.guard(self._show, page)
                if page.next is None:
                    return
        except QueueManagerError as error:
            session.transport.guard(self._end, session.refused(error))
        except StorageError as error:
            _log.warning("browse.failed", queue=self._queue, reason=error.reason)
        finally:
            self._is_reading = False
            self._slots.give_back()
            session.hub.settle_turn()

    def _may_go_on(self) -> bool:
        """Return whether the client wants more, and takes it."""
        session = self._session
        return (
            not self._is_over
            and self.link.is_attached
            and self.link.credit > 0
            and session.is_open()
            and not session.transport.paused
            and session.connection.session_room(session.channel) > 0
        )

    def _show(self, page: BrowsedPage) -> None:
        link, session = self.link, self._session
        payloads = [_payload(found) for found in page.messages if found.body is not None]
        bytes_max = link.attach.max_message_size
        if bytes_max and payloads and max(map(len, payloads)) > bytes_max:
            size = max(map(len, payloads))
            text = f"message size ({size} bytes) > maximum message size ({bytes_max} bytes)"
            self._end(AmqpError(c.MESSAGE_SIZE_EXCEEDED, text))
            return
        session.connection.deliver(link, payloads)
        self._after = page.last or self._after
        if page.next is None and link.drain:
            session.connection.drained(link)
        session.transport.want_flush()

    def _end(self, error: AmqpError) -> None:
        self._is_over = True
        if self.link.is_attached:
            self._session.detach(self.link, error)


def _payload(found: BrowsedMessage) -> bytes:
    body = found.body or b""
    return as_amqp10(found.template, body).message(
        body, delivery_count=found.attempts, first_acquirer=not found.attempts
    )
