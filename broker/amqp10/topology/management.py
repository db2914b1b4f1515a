"""The link pair of `/management`: requests on one link, their answers on the other, in order."""

from __future__ import annotations

from collections import deque

import structlog

from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.settling.delivery_outcomes import Outcomes
from broker.amqp10.topology.management_operations import Operations
from broker.amqp10.topology.requests import Answer, Refused, message_id_of, read_request, write_answer
from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.events import TransferRun
from protocols.amqp10.link import Link

_log = structlog.get_logger("sluicemq.amqp")


class Management:
    """Both ends of a pair. `replies` is the link of the answers, None until the client has attached it.

    The client may ask so much ahead as the link of requests has credit; answers wait for credit of theirs.
    """

    settles = True

    def __init__(self, session: Session, operations: Operations, outcomes: Outcomes) -> None:
        self.requests: Link | None = None
        self.replies: Link | None = None
        self._session = session
        self._operations = operations
        self._outcomes = outcomes
        self._asked: deque[bytes] = deque()
        self._answers: deque[bytes] = deque()
        self._is_at_work = False
        self._is_closed = False

    def attach(self, link: Link) -> None:
        """Take one of the two links."""
        if link.client_sends:
            self.requests = link
            self._session.connection.grant(link, limits.AMQP10_REQUESTS_MAX)
        else:
            self.replies = link

    def take(self, run: TransferRun) -> None:
        """Take requests; raises AmqpError for those that cannot be answered."""
        if self.replies is None or self._is_closed:
            raise AmqpError(c.PRECONDITION_FAILED, "the link for answers is not attached")
        if not run.settled:
            self._outcomes.accept(run.first_id, len(run.payloads), self, durable=False)
        self._asked += run.payloads
        if not self._is_at_work:
            self._is_at_work = True
            self._session.hub.spawn(self._work())

    def told(self, count: int) -> None:
        """See `broker.amqp10.settling.delivery_outcomes.Source`."""

    def credit_changed(self) -> None:
        """Send the answers that waited."""
        self._send()
        replies = self.replies
        if replies is not None and replies.drain:
            self._session.connection.drained(replies)

    def close(self) -> None:
        """End with one of the links."""
        self._is_closed = True
        self._asked.clear()
        self._answers.clear()

    async def _work(self) -> None:
        while self._asked and not self._is_closed:
            payload = self._asked.popleft()
            message_id = message_id_of(payload)
            try:
                answer = await self._operations.act(read_request(payload))
            except Refused as refused:
                answer = Answer(refused.status, refused.reason)
            except AmqpError as error:
                answer = Answer(400, error.description)
            except Exception:
                _log.exception("connection.internal_error", peer=self._session.transport.peer)
                answer = Answer(500, "internal error")
            if not self._is_closed:
                self._answers.append(write_answer(message_id, answer))
                self._session.transport.guard(self._send)
                self._session.hub.settle_turn()
        self._is_at_work = False

    def _send(self) -> None:
        link, requests = self.replies, self.requests
        connection = self._session.connection
        while link is not None and self._answers and link.credit > 0 and link.is_attached:
            connection.deliver(link, [self._answers.popleft()])
        waiting = len(self._asked) + len(self._answers)
        room = limits.AMQP10_REQUESTS_MAX - waiting
        if requests is not None and requests.is_attached and requests.credit < min(room, 2):
            connection.grant(requests, room)
        self._session.transport.want_flush()
