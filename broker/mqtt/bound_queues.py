"""Queues that are bound to topics: what devices publish goes to them, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker import topics
from broker.engine.traffic import PublishPlan, Source, Targets
from broker.hub import Hub
from broker.properties.mqtt import options_of, read
from protocols.mqtt.events import PublishRun, PublishShape
from queue_manager import outcomes
from queue_manager.outcomes import ACCEPTED
from storage.envelope import PROPERTIES_MQTT, PROPERTIES_NONE

NOT_STORED: Final = 0
STORED: Final = 1  # by a durable queue: certain when the open commit is
REFUSED: Final = 2
REFUSED_TOGETHER: Final = 3  # each by itself, some may be taken
REFUSED_IN_PART: Final = 4  # by some of the queues, others took it


class BoundQueues:
    """What the bindings of `amq.topic` make of publishes of one shape.

    `reason`: why the last was refused; `full`: the queues that had no room for it.
    """

    __slots__ = ("_plan", "_shape", "_targets", "full", "reason")

    def __init__(self, shape: PublishShape) -> None:
        self._shape = shape
        self._targets: Targets | None = None
        self._plan: PublishPlan | None = None
        self.reason = ""
        self.full: Sequence[Source] = ()

    @property
    def has_queues(self) -> bool:
        """Whether there are any, as of the last publish."""
        return self._targets is not None and bool(self._targets.queues)

    @property
    def nowhere(self) -> Targets | None:
        """What says, as long as it is current, that there are no queues."""
        targets = self._targets
        return targets if targets is not None and not targets.queues else None

    def publish(self, hub: Hub, run: PublishRun) -> int:
        """Give publishes to the queues; what became of them. Raises QueueManagerError."""
        targets = self._targets
        if targets is None or not targets.is_current:
            targets = self._aim(hub)
        if not targets.queues:
            return NOT_STORED
        plan = self._plan
        assert plan is not None
        now_ms = hub.clock.now_ms()
        outcome = hub.client.publishing.publish(plan, run.payloads, now_ms)
        if outcome == ACCEPTED:
            return STORED if plan.durable else NOT_STORED
        if run.count > 1:
            return REFUSED_TOGETHER
        hub.counters.refuse_publishes(1)
        self.reason = outcomes.REASONS[outcome]
        self.full = plan.full if outcome in outcomes.FULL else ()
        return REFUSED_IN_PART if outcome == outcomes.REFUSED_IN_PART else REFUSED

    def _aim(self, hub: Hub) -> Targets:
        shape = self._shape
        publishing = hub.client.publishing
        key = topics.routing_key_of(shape.topic)
        self._targets = targets = publishing.through(topics.EXCHANGE, (key,), self._headers)
        if targets.queues:
            if self._plan is None:
                # without properties or QoS the kind still tells an AMQP consumer that the mode is 1
                kind = PROPERTIES_NONE if shape.qos and not shape.properties else PROPERTIES_MQTT
                options = options_of(shape.properties)
                self._plan = publishing.plan(
                    key, kind, shape.properties, shape.qos > 0, options, topics.EXCHANGE
                )
            publishing.aim(self._plan, targets)
        return targets

    def _headers(self) -> Mapping[str, object]:
        return read(self._shape.properties).routed()
