"""Calls over AMQP: publishes to `$queue/<queue>/<verb>` that are answered at their `reply_to`.

Staged epochs (`staging`), `$stream-status` (`stream_status`), `$browse` (`browse`), `$nack` and `$extend`
(`settling`). The answer is JSON, with the `correlation_id`, and comes when what it says is durable; without
`reply_to` a refusal closes the channel with its reason.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from broker.amqp import settling, staging, stream_status
from broker.amqp.browse import Browse
from broker.properties.single import single_values
from protocols.amqp091 import content
from protocols.amqp091.events import PublishRun, PublishShape
from queue_manager import address
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.manager import ACCEPTED
from queue_manager.queue import Queue
from storage.envelope import PROPERTIES_AMQP

if TYPE_CHECKING:
    from broker.amqp.publishing import Publisher
    from broker.hub import Hub

_VERB_START: Final = "/$"


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
    hub = channel.frontend.hub
    verb = address.parse(run.shape.routing_key).verb
    properties = content.decode_properties(run.shape.properties)
    reply_to: str | None = properties.reply_to
    for body in run.bodies:
        answer: dict[str, object] | None
        try:
            queue = _find(hub, run.shape.routing_key, channel.frontend)
            headers = single_values(content.decode_headers(run.shape.properties), "header")
            if verb in settling.VERBS:
                answer = settling.settle(channel, queue, verb, headers, now_ms)
            elif verb == address.BROWSE:
                Browse(hub, queue, headers, reply_to, properties.correlation_id or "").begin()
                answer = None
            elif verb == address.STREAM_STATUS:
                answer = stream_status.status(hub, queue, headers, now_ms)
            else:
                answer = staging.answer(hub, queue, verb, headers, body, now_ms)
        except QueueManagerError as error:
            if not reply_to:
                raise
            hub.counters.refuse_control()
            answer = {"status": "refused", "reason": error.reason, "error": type(error).__name__}
        if reply_to and answer is not None:
            reply = _Reply(hub, reply_to, properties.correlation_id, json.dumps(answer).encode())
            hub.shard.manager.journal.wait(reply, 0)
        publisher.confirm(1, durable=True)


def _find(hub: Hub, topic: str, owner: object) -> Queue:
    """The queue that a call is about."""
    parsed = address.parse(topic)
    if parsed.rest:
        raise InvalidArgument(f"{parsed.verb} follows the queue's name: $queue/{parsed.name}/{parsed.verb}")
    return hub.shard.manager.find(parsed.name, owner)


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
