"""Calls over AMQP: publishes to `$queue/<queue>/<verb>` that are answered at their `reply_to`.

Staged epochs (`staging`), `$stream-status` (`stream_status`), `$browse` (`browse`), `$nack` and `$extend`
(`settling`). The answer is JSON, with the `correlation_id`, and comes when what it says is durable; without
`reply_to` a refusal closes the channel with its reason.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.amqp import settling, staging, stream_status
from broker.amqp.browse import Browse
from broker.engine.answers import Answer
from broker.properties.single import single_values
from protocols.amqp091 import constants as c
from protocols.amqp091 import content
from protocols.amqp091.events import PublishRun, PublishShape
from queue_manager import address
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.manager import ACCEPTED
from storage.envelope import PROPERTIES_AMQP

if TYPE_CHECKING:
    from broker.amqp.channel import AmqpChannel
    from broker.amqp.publishing import Publisher
    from broker.hub import Hub

_VERB_START: Final = "/$"

Told = dict[str, object] | None
"""What who asked is told; None: nothing, or something later."""


def is_call(shape: PublishShape) -> bool:
    """Whether these publishes are calls."""
    key = shape.routing_key
    if _VERB_START not in key or shape.exchange or not address.is_queue_topic(key):
        return False
    verb = address.parse(key).verb
    return verb in address.CALL_VERBS or verb in settling.VERBS


def perform(publisher: Publisher, run: PublishRun, now_ms: int) -> None:
    """Do what each publish of the run asks, and confirm it; raises QueueManagerError if nobody is told."""
    channel = publisher.channel
    properties = content.decode_properties(run.shape.properties)
    reply_to: str | None = properties.reply_to
    for index, body in enumerate(run.bodies):
        answer = _ask(channel, run.shape, properties, body, now_ms)
        finish = partial(_finish, publisher, reply_to, properties.correlation_id)
        channel.expect(answer, finish, c.CLASS_BASIC, 40)
        if not answer.is_done and index + 1 < len(run.bodies):
            channel.put_back(PublishRun(run.channel, run.shape, run.bodies[index + 1 :]))
            return


def _ask(
    channel: AmqpChannel, shape: PublishShape, properties: content.Properties, body: bytes, now_ms: int
) -> Answer[Told]:
    """Begin what a call asks."""
    parsed = address.parse(shape.routing_key)
    if parsed.rest:
        reason = f"{parsed.verb} follows the queue's name: $queue/{parsed.name}/{parsed.verb}"
        return Answer.failed(InvalidArgument(reason))
    frontend = channel.frontend
    found = frontend.hub.client.queues.look(parsed.name, frontend.caller)
    begin = partial(_begin, channel, parsed, shape.properties, properties, body, now_ms)
    return found.chain(lambda queue: begin())


def _begin(
    channel: AmqpChannel,
    parsed: address.Address,
    raw: bytes,
    properties: content.Properties,
    body: bytes,
    now_ms: int,
) -> Answer[Told]:
    """Begin what is asked of a queue that is there; raises QueueManagerError."""
    hub = channel.frontend.hub
    caller = channel.frontend.caller
    name, verb = parsed.name, parsed.verb
    headers = single_values(content.decode_headers(raw), "header")
    if verb in settling.VERBS:
        return Answer.given(settling.settle(channel, name, verb, headers, now_ms))
    if verb == address.BROWSE:
        correlation_id = properties.correlation_id or ""
        Browse(hub, name, caller, headers, properties.reply_to, correlation_id).begin()
        return Answer.given(None)
    if verb == address.STREAM_STATUS:
        return stream_status.status(hub.client.streams, name, caller, headers, now_ms)
    return staging.answer(hub.client.epochs, name, caller, verb, headers, body)


def _finish(
    publisher: Publisher, reply_to: str | None, correlation_id: str | None, answer: Answer[Told]
) -> None:
    """Tell who asked, and confirm the publish; raises QueueManagerError if nobody is told."""
    hub = publisher.channel.frontend.hub
    try:
        told = answer.result()
    except QueueManagerError as error:
        if not reply_to:
            raise
        hub.counters.refuse_control()
        told = {"status": "refused", "reason": error.reason, "error": type(error).__name__}
    if reply_to and told is not None:
        reply = _Reply(hub, reply_to, correlation_id, json.dumps(told).encode())
        hub.client.commits.wait(reply, 0)
    publisher.confirm(1, durable=True)


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
        publishing = self._hub.client.publishing
        targets = publishing.named(self._reply_to)
        if not targets:
            return  # who asked is gone
        properties = content.Properties(
            content_type="application/json", correlation_id=self._correlation_id or ""
        )
        raw = content.encode_properties(properties)
        plan = publishing.plan(self._reply_to, PROPERTIES_AMQP, raw, False)
        publishing.aim(plan, targets)
        if publishing.publish(plan, [self._body], self._hub.clock.now_ms()) == ACCEPTED:
            self._hub.settle_turn()
