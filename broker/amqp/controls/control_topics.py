"""Control topics over AMQP: publishes to `$queue/<queue>/<verb>` that are answered at their `reply_to`.

Staged epochs (`staging`), `$stream-status` (`stream_status`), `$browse` (`browse`), `$nack` and `$extend`
(`settling`). The answer is JSON, with the `correlation_id`, and comes when what it says is durable; without
`reply_to` a refusal closes the channel with its reason.
"""

from __future__ import annotations

from typing import Final

from broker.amqp.connection import permissions
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.controls import claim_verbs, staging, stream_status
from broker.amqp.controls.browse import Browse
from broker.amqp.controls.replying import publish_json
from broker.amqp.settling.unacked import Unacked
from broker.clients.when_durable import WhenDurable
from broker.engine.answers import Answer
from broker.properties.single import single_values
from protocols.amqp091 import content
from protocols.amqp091.events import PublishShape
from queue_manager import address
from queue_manager.errors import InvalidArgument, QueueManagerError

_VERB_START: Final = "/$"

Told = dict[str, object] | None
"""The answer to the caller; None: nothing, or something later."""


def is_call(shape: PublishShape) -> bool:
    """Return whether these publishes are calls."""
    key = shape.address.routing_key
    if _VERB_START not in key or shape.address.exchange or not address.is_queue_topic(key):
        return False
    verb = address.parse(key).verb
    return verb in address.CALL_VERBS or verb in claim_verbs.VERBS


class Call:
    """The call that publishes of one shape make."""

    __slots__ = ("_address", "_channel", "_correlation_id", "_properties", "_reply_to", "_unacked")

    def __init__(self, channel: AmqpChannel, unacked: Unacked, shape: PublishShape) -> None:
        self._channel = channel
        self._unacked = unacked
        self._address = address.parse(shape.address.routing_key)
        self._properties = shape.properties
        properties = content.decode_properties(shape.properties)
        self._reply_to: str = properties.reply_to or ""
        self._correlation_id: str = properties.correlation_id or ""

    def ask(self, body: bytes, now_ms: int) -> Answer[Told]:
        """Begin what one publish asks; raises NotPermitted."""
        parsed = self._address
        identity = self._channel.client.identity
        headers = dict(content.decode_headers(self._properties))
        permissions.check_call(identity, parsed, headers, self._reply_to)
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
            if not self._reply_to:
                raise
            hub.counters.refuse_control()
            told = {"status": "refused", "reason": error.reason, "error": type(error).__name__}
        if self._reply_to and told is not None:
            answered = told
            hub.client.commits.wait(WhenDurable(lambda tokens: self._publish(answered)), 0)

    def _publish(self, told: dict[str, object]) -> None:
        """Answer, now that what the answer says is durable."""
        if publish_json(self._channel.hub, self._reply_to, self._correlation_id, told):
            self._channel.hub.settle_turn()

    def _begin(self, body: bytes, now_ms: int) -> Answer[Told]:
        """Begin what is asked of a queue that is there; raises QueueManagerError."""
        channel = self._channel
        client = channel.client
        hub = channel.hub
        name, verb = self._address.name, self._address.verb
        headers = single_values(content.decode_headers(self._properties), "header")
        if verb in claim_verbs.VERBS:
            return Answer.given(claim_verbs.settle(channel, self._unacked, name, verb, headers, now_ms))
        if verb == address.BROWSE:
            slots = client.shared.browse_slots
            Browse(hub, slots, name, client.caller, headers, self._reply_to, self._correlation_id).begin()
            return Answer.given(None)
        if verb == address.STREAM_STATUS:
            return stream_status.status(hub.client.streams, name, client.caller, headers, now_ms)
        return staging.answer(hub.client.epochs, name, client.caller, verb, headers, body)
