"""Where the answers to a call go: to the queue that `reply_to` names, or straight to who asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from broker.amqp.connection.shared import is_reply_key
from broker.engine.client.replies import ReplyTaker
from broker.vhosts.hub import Hub
from protocols.amqp091 import content
from queue_manager.outcomes import ACCEPTED
from storage.envelope import PROPERTIES_AMQP, vary


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one call; `takers` are those of all channels."""

    hub: Hub
    takers: Mapping[str, ReplyTaker]
    reply_to: str
    correlation_id: str

    def send(self, properties: list[bytes], bodies: list[bytes]) -> bool:
        """Send messages, all or none; False if nobody is there any more, or a queue does not take them."""
        if is_reply_key(self.reply_to):
            take_replies = self.takers.get(self.reply_to)
            if take_replies is None:
                return False
            take_replies(properties, bodies)
            return True
        hub = self.hub
        publishing = hub.client.publishing
        targets = publishing.named(self.reply_to)
        if not targets:
            return False
        plan = publishing.plan(self.reply_to, PROPERTIES_AMQP, b"", False)
        publishing.aim(plan, targets)
        templates = vary(plan.template, properties, [False] * len(properties))
        return publishing.publish(plan, bodies, hub.clock.now_ms(), templates) == ACCEPTED

    def tell(self, answer: dict[str, object]) -> bool:
        """Send the answer that ends the call, with the correlation-id of what it answers."""
        properties = content.Properties(content_type="application/json", correlation_id=self.correlation_id)
        return self.send([content.encode_properties(properties)], [json.dumps(answer).encode()])
