"""Control topics over AMQP: publishes to `$queue/<queue>/<verb>` that are answered at their `reply_to`.

Staged epochs (`staging`), `$browse` (`browse`), and here `$stream-status`, `$commit`, `$nack` and `$extend`.
The answer is JSON, with the `correlation_id`, and comes when what it says is durable; without `reply_to` a
refusal closes the channel with its reason.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import structlog

from broker.amqp.connection import header_names as names
from broker.amqp.connection import permissions
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.controls import staging
from broker.amqp.controls.browse import Browse
from broker.amqp.controls.call_answers import Answers
from broker.amqp.settling.unacked import Unacked
from broker.clients import claim_controls
from broker.clients.client_consumers import Consumers
from broker.clients.when_durable import WhenDurable
from broker.engine.answers import Answer
from broker.engine.client.streams import StreamClient
from broker.properties.single import single_values
from config import limits
from protocols.amqp091 import content
from protocols.amqp091.events import PublishShape
from queue_manager import address
from queue_manager.api import StreamStatus
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.log.stream_start import NAME as START_HEADER
from queue_manager.log.stream_start import parse_start

_NACK: Final = "$nack"
_EXTEND: Final = "$extend"
_SETTLING: Final = frozenset((_NACK, _EXTEND))
_TAG: Final = "delivery-tag"
_CONSUMER: Final = "x-consumer-tag"


def _settle(
    channel: AmqpChannel, unacked: Unacked, name: str, verb: str, headers: dict[str, Any], now_ms: int
) -> dict[str, object]:
    """Do what the call asks; gives its answer, true once the open commit is durable.

    Raises QueueNotFound, InvalidArgument; the channel holds the delivery then as before.
    """
    shard = channel.core
    settling = shard.settling
    queue = shard.consuming.find(name, channel.client.caller)
    tag = headers.get(_TAG)
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise InvalidArgument(f"{verb} needs the header {_TAG}, an integer, not {tag!r}")
    claim = unacked.claim(tag)
    holder = None if claim is None else settling.holder(claim)
    if claim is None or holder is None or not claim.is_in_flight:
        ended = claim is not None or unacked.is_late(tag)
        raise InvalidArgument(f"the lease of delivery tag {tag} ended" if ended else f"unknown {_TAG} {tag}")
    if not settling.is_claim_of(claim, queue):
        raise InvalidArgument(f"{_TAG} {tag} is not of queue {queue.name!r}")
    group = settling.durable_group_of(claim)
    claim_controls.check_delay(headers, verb, stream=queue.policy.stream)
    if verb == _NACK:
        claim_controls.hand_back(settling, claim, headers, now_ms)
        unacked.release(tag)
    else:
        claim_controls.extend(settling, claim, headers, holder.lease_ms, now_ms)
    if group is not None:
        settling.write_soon(group)
    return {"status": "ok"}


def _status(
    streams: StreamClient, queue: str, caller: str, headers: dict[str, Any], now_ms: int
) -> Answer[dict[str, object] | None]:
    """Return the oldest offset and the one to come; the committed one of a group, or that of a place."""
    start = parse_start(headers[START_HEADER], now_ms) if START_HEADER in headers else None
    group = headers.get(names.GROUP)
    name = None if group is None else address.validate_group_name(str(group))
    found = streams.status(queue, caller, group=name, start=start)
    return found.map(partial(_told, name))


def _told(group: str | None, found: StreamStatus) -> dict[str, object] | None:
    answer: dict[str, object] = {"status": "ok", "first": found.first_offset, "next": found.next_offset}
    if group is not None:
        answer["committed"] = found.committed
    elif found.place is not None:
        answer["offset"] = found.place
    return answer


_VERB_START: Final = "/$"

Told = dict[str, object] | None
"""The answer to the caller; None: nothing, or something later."""


def is_call(shape: PublishShape) -> bool:
    """Return whether these publishes are calls."""
    key = shape.address.routing_key
    if _VERB_START not in key or shape.address.exchange or not address.is_queue_topic(key):
        return False
    verb = address.parse(key).verb
    return verb in address.CALL_VERBS or verb in _SETTLING


class Call:
    """The call that publishes of one address and with these properties make."""

    __slots__ = ("_address", "_answers", "_channel", "_consumers", "_properties", "_unacked")

    def __init__(
        self, channel: AmqpChannel, unacked: Unacked, consumers: Consumers, key: str, raw: bytes
    ) -> None:
        self._channel = channel
        self._unacked = unacked
        self._consumers = consumers
        self._address = address.parse(key)
        self._properties = raw
        properties = content.decode_properties(raw)
        takers = channel.core.replies.takers
        self._answers = Answers(
            channel.hub, takers, properties.reply_to or "", properties.correlation_id or ""
        )

    def ask(self, body: bytes, now_ms: int) -> Answer[Told]:
        """Begin what one publish asks; raises NotPermitted."""
        parsed = self._address
        identity = self._channel.client.identity
        headers = dict(content.decode_headers(self._properties))
        permissions.check_call(identity, parsed, headers, self._answers.reply_to)
        if parsed.rest:
            reason = (
                f"{parsed.verb} follows the queue's name: {address.address_of(parsed.name)}/{parsed.verb}"
            )
            return Answer.failed(InvalidArgument(reason))
        queues = self._channel.core.queues
        found = queues.look(parsed.name, self._channel.client.caller)
        return found.chain(lambda queue: self._begin(body, now_ms))

    def tell(self, answer: Answer[Told]) -> None:
        """Tell who asked what came of it; raises QueueManagerError if there is no reply_to."""
        hub = self._channel.hub
        try:
            told = answer.result()
        except QueueManagerError as error:
            if not self._answers.reply_to:
                raise
            hub.counters.refuse_control()
            told = {"status": "refused", "reason": error.reason, "error": type(error).__name__}
        if self._answers.reply_to and told is not None:
            answered = told
            hub.client.commits.wait(WhenDurable(lambda tokens: self._publish(answered)), 0)

    def _publish(self, told: dict[str, object]) -> None:
        """Answer, now that what the answer says is durable."""
        if self._answers.tell(told):
            self._channel.hub.settle_turn()

    def _begin(self, body: bytes, now_ms: int) -> Answer[Told]:
        """Begin what is asked of a queue that is there; raises QueueManagerError."""
        channel = self._channel
        client = channel.client
        hub = channel.hub
        name, verb = self._address.name, self._address.verb
        headers = single_values(content.decode_headers(self._properties), "header")
        if verb in _SETTLING:
            return Answer.given(_settle(channel, self._unacked, name, verb, headers, now_ms))
        if verb == address.BROWSE:
            slots = client.shared.browse_slots
            Browse(hub, slots, name, client.caller, headers, self._answers).begin()
            return Answer.given(None)
        if verb == address.STREAM_STATUS:
            if _CONSUMER in headers:
                return Answer.given(self._place(name, str(headers[_CONSUMER])))
            return _status(hub.client.streams, name, client.caller, headers, now_ms)
        return staging.answer(hub.client.epochs, name, client.caller, verb, headers, body)

    def _place(self, name: str, tag: str) -> dict[str, object]:
        """Return how far a consumer of this channel has read a stream: what it is given of the messages
        before, if its filter lets it, is on its way.
        """
        consuming = self._channel.core.consuming
        consumer = self._consumers.find(tag)
        if consumer is None or not consuming.reads_stream(consumer, name, self._channel.client.caller):
            raise InvalidArgument(f"{_CONSUMER} {tag!r} is no consumer of stream {name!r} on this channel")
        return {"status": "ok", "position": consuming.position(consumer)}


_log: Final = structlog.get_logger("sluicemq.amqp")
SUFFIX: Final = "/$commit"


def is_commit(exchange: str, routing_key: str) -> bool:
    """Return whether a publish is no message but a commit."""
    return not exchange and routing_key.endswith(SUFFIX) and address.is_queue_topic(routing_key)


def commit(channel: AmqpChannel, shape: PublishShape) -> Answer[None]:
    """Commit what the headers say; durable once the open commit is. Raises QueueManagerError."""
    parsed = address.parse(shape.address.routing_key)
    headers = single_values(content.decode_headers(shape.properties), "header", (names.GROUP, names.OFFSET))
    group_id = headers.get(names.GROUP)
    permissions.check_call(channel.client.identity, parsed, headers, "")
    offset = headers.get(names.OFFSET)
    if not isinstance(group_id, str) or not group_id:
        raise InvalidArgument(f"$commit needs the header {names.GROUP}, the name of a group")
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= limits.STREAM_OFFSET_MAX:
        raise InvalidArgument(f"$commit needs the header {names.OFFSET}, an offset, not {offset!r}")
    streams = channel.core.streams
    return streams.commit_offset(parsed.name, channel.client.caller, group_id, offset)


def log_refused(channel: AmqpChannel, error: QueueManagerError) -> None:
    """Say why a commit was answered by basic.nack, which cannot."""
    _log.warning(
        "stream.commit_refused",
        peer=channel.transport.peer,
        channel=channel.number,
        reason=error.reason,
    )
