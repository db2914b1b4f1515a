"""Staged epochs over AMQP: publishes to `$queue/<queue>/$stage-commit`, `-abort`, `-status`, `-forget`.

(`$stream-status` and `$browse` are answered in the same way, see `stream_status` and `browse`.)

Headers `x-stage-producer` and, but for status and forget, `x-stage-epoch`. A commit's body is JSON,
`{"parts": [[part, "attempt", rows], ...]}`; an abort's may name parts so too. A status request may name one
attempt by the headers of a staged publish, to be told how many rows of it are there. With `reply_to` the
answer goes there, as JSON with the `correlation_id`, when what it says is durable; without it a refusal
closes the channel with its reason.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from broker.amqp import stream_status
from broker.amqp.browse import Browse
from config import limits
from protocols.amqp091 import content
from protocols.amqp091.events import PublishRun, PublishShape
from queue_manager import address
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.manager import ACCEPTED
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.queue import Queue
from queue_manager.staging import tags
from queue_manager.staging.tags import EpochPart
from storage.envelope import PROPERTIES_AMQP
from storage.records.committed_epoch import CommittedEpoch

if TYPE_CHECKING:
    from broker.amqp.publishing import Publisher
    from broker.hub import Hub

_VERB_START: Final = "/$"
_BROWSE_END: Final = f"/{address.BROWSE}"


class StagedProperties:
    """Takes apart the properties of staged publishes: the rows of an attempt have the same headers, however
    else they differ, so the last headers' meaning is kept.
    """

    __slots__ = ("_options", "_plain", "_table")

    def __init__(self) -> None:
        self._table = b""
        self._plain = b""
        self._options = PLAIN

    def find(self, raw: bytes) -> tuple[PublishOptions, bytes] | None:
        """The options, and the properties as consumers are to see them, if the headers are the last ones."""
        table = self._table
        if not table or table not in raw or any(content.peek_fields(raw)[1:]):
            return None
        span = content.headers_span(raw)
        if raw[span[0] : span[1]] != table:
            return None
        return self._options, content.with_headers_table(raw, span, self._plain)

    def take(self, raw: bytes, options: PublishOptions) -> bytes:
        """The properties as consumers are to see them; these headers are the last ones now."""
        span = content.headers_span(raw)
        kept = content.without_headers(raw, tags.TAG_NAMES)
        first, last = content.headers_span(kept)
        plain = kept[first:last] if last - first > 4 else b""
        if not any(content.peek_fields(raw)[1:]):
            self._table, self._plain, self._options = raw[span[0] : span[1]], plain, options
        return content.with_headers_table(raw, span, plain)


def is_control(shape: PublishShape) -> bool:
    """Whether these publishes are control calls."""
    key = shape.routing_key
    return (
        _VERB_START in key and address.is_queue_topic(key) and address.parse(key).verb in address.CALL_VERBS
    )


def control(publisher: Publisher, run: PublishRun, now_ms: int) -> None:
    """Do what each publish of the run asks, and confirm it; raises QueueManagerError if nobody is told."""
    channel = publisher.channel
    hub = channel.frontend.hub
    properties = content.decode_properties(run.shape.properties)
    reply_to: str | None = properties.reply_to
    headers: dict[str, Any] = properties.headers or {}
    for body in run.bodies:
        answer: dict[str, object] | None
        try:
            if run.shape.routing_key.endswith(_BROWSE_END):
                queue = _find(hub, run.shape.routing_key, channel.frontend)
                Browse(hub, queue, headers, reply_to, properties.correlation_id or "").begin()
                answer = None
            else:
                answer = _perform(hub, run.shape.routing_key, channel.frontend, headers, body, now_ms)
        except QueueManagerError as error:
            if not reply_to:
                raise
            hub.counters.control_refused += 1
            answer = {"status": "refused", "reason": error.reason, "error": type(error).__name__}
        if reply_to and answer is not None:
            reply = _Reply(hub, reply_to, properties.correlation_id, json.dumps(answer).encode())
            hub.shard.manager.journal.wait(reply, 0)
        publisher.confirm(1, durable=True)


def _perform(
    hub: Hub, topic: str, owner: object, headers: dict[str, Any], body: bytes, now_ms: int
) -> dict[str, object]:
    manager = hub.shard.manager
    queue = _find(hub, topic, owner)
    parsed = address.parse(topic)
    if parsed.verb == address.STREAM_STATUS:
        return stream_status.status(hub, queue, headers, now_ms)
    producer = tags.text(headers, tags.PRODUCER)
    if parsed.verb == "$stage-status":
        tag = tags.read_tag(headers) if tags.ATTEMPT in headers else None
        staged = {} if tag is None else {"staged": manager.staged_rows(queue, tag)}
        return {"status": "ok", **_last(manager.last_epoch(queue, producer)), **staged}
    if parsed.verb == "$stage-forget":
        return {"status": "forgotten" if manager.forget_producer(queue, producer, now_ms) else "unknown"}
    epoch = tags.number(headers, tags.EPOCH)
    if parsed.verb == "$stage-abort":
        named = {(part.part, part.attempt) for part in _parts(body)} if body else None
        return {
            "status": "aborted",
            "attempts": manager.abort_epoch(queue, producer, epoch, now_ms, named),
        }
    return _commit(hub, queue, producer, epoch, headers, body, now_ms)


def _find(hub: Hub, topic: str, owner: object) -> Queue:
    """The queue that a call is about."""
    parsed = address.parse(topic)
    if parsed.rest:
        raise InvalidArgument(f"{parsed.verb} follows the queue's name: $queue/{parsed.name}/{parsed.verb}")
    return hub.shard.manager.find(parsed.name, owner)


def _commit(
    hub: Hub, queue: Queue, producer: str, epoch: int, headers: dict[str, Any], body: bytes, now_ms: int
) -> dict[str, object]:
    checksum = tags.text(headers, tags.CHECKSUM) if tags.CHECKSUM in headers else ""
    committed, before = hub.shard.manager.commit_epoch(queue, producer, epoch, _parts(body), now_ms, checksum)
    return {"status": "already" if before else "committed", **_last(committed)}


def _last(committed: CommittedEpoch | None) -> dict[str, object]:
    if committed is None:
        return {"epoch": None}
    return {"epoch": committed.epoch, "rows": committed.row_count, "checksum": committed.checksum}


def _parts(body: bytes) -> list[EpochPart]:
    if len(body) > limits.STAGE_CONTROL_BYTES_MAX:
        raise InvalidArgument(f"a commit has at most {limits.STAGE_CONTROL_BYTES_MAX} bytes")
    wanted = 'the body is JSON: {"parts": [[part, "attempt", rows], ...]}'
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgument(wanted) from None
    if not isinstance(document, dict) or not isinstance(document.get("parts"), list):
        raise InvalidArgument(wanted)
    parts = []
    for element in document["parts"]:
        if not isinstance(element, list) or len(element) != 3:
            raise InvalidArgument(wanted)
        part, attempt, row_count = element
        values = {"part": part, "attempt": attempt, "rows": row_count}
        parts.append(
            EpochPart(tags.number(values, "part"), tags.text(values, "attempt"), tags.number(values, "rows"))
        )
    return parts


class _Reply:
    """An answer that goes out when what it says is durable."""

    __slots__ = ("_body", "_correlation_id", "_hub", "_reply_to")

    def __init__(self, hub: Hub, reply_to: str, correlation_id: str | None, body: bytes) -> None:
        self._hub = hub
        self._reply_to = reply_to
        self._correlation_id = correlation_id
        self._body = body

    def committed(self, tokens: list[int]) -> None:
        """As `queue_manager.journal.Waiter`."""
        manager = self._hub.shard.manager
        queue = manager.queues.get(self._reply_to)
        if queue is None:
            return  # who asked is gone
        properties = content.Properties(
            content_type="application/json", correlation_id=self._correlation_id or ""
        )
        raw = content.encode_properties(properties)
        plan = manager.plan(self._reply_to, PROPERTIES_AMQP, raw, False)
        plan.aim(manager, (queue,))
        if manager.publish(plan, [self._body], self._hub.clock.now_ms()) == ACCEPTED:
            self._hub.settle_turn()
