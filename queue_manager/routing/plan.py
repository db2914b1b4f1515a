"""The plan of publishes alike, made once: their queues and the constant part of their envelope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from config import limits
from queue_manager.audience import STORED, UNHEARD, Audience, TopicSpaces
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.queue.queue import Queue
from queue_manager.routing.route import NOWHERE, Route
from storage.envelope import EnvelopeTemplate


@dataclass(eq=False, slots=True)
class PublishPlan:
    """Topic and properties, resolved. `aim` it before use, and again whenever it is not `is_current`.

    `durable_count` of the queues keep messages on the store; `durable`: one of them does, or what the
    audience heard last was stored. `full`: the queues without room, as of the last publish that was refused
    for that. `audience`: the subscribers that hear it beside the queues.
    """

    topic: str
    properties_kind: int
    properties: bytes
    persistent: bool
    options: PublishOptions = PLAIN
    exchange: str = ""
    queues: Sequence[Queue] = field(default=(), init=False)
    durable: bool = field(default=False, init=False)
    durable_count: int = field(default=0, init=False)
    full: tuple[Queue, ...] = field(default=(), init=False)
    route: Route = field(default=NOWHERE, init=False)
    audience: Audience | None = field(default=None, init=False)
    is_accompanied: bool = field(default=False, init=False)
    template: EnvelopeTemplate = field(init=False)

    def __post_init__(self) -> None:
        self.template = self._template(False)

    @property
    def is_current(self) -> bool:
        """Whether it points at the queues that bindings give now."""
        return self.route.is_current

    @property
    def queue_names(self) -> list[str]:
        """The names of the queues it points at, those of other shards too."""
        return [queue.name for queue in self.queues] + [queue.name for queue in self.route.foreign]

    @property
    def leads_anywhere(self) -> bool:
        """Whether a queue, here or elsewhere, or a subscriber is to have it."""
        return bool(self.queues or self.route.foreign) or self.audience is not None

    @property
    def message_bytes_max(self) -> int:
        """The largest message that all queues take."""
        policies = [queue.policy for queue in self.queues] + [queue.policy for queue in self.route.foreign]
        return min([policy.message_bytes_max for policy in policies], default=limits.MESSAGE_BYTES_MAX)

    def accompany(self, audience: Audience | None) -> None:
        """Have `audience` hear what is published, beside the queues, whatever the plan is aimed at."""
        self.audience = audience
        self.is_accompanied = True

    def aim(self, route: Route) -> None:
        """Point the plan at the queues of a route."""
        self.route = route
        self.aim_at(route.queues, route.durable_count)

    def aim_at(self, queues: Sequence[Queue], durable_count: int) -> None:
        """Point the plan at `queues`."""
        self.queues = queues
        self.durable_count = durable_count
        self.durable = durable_count > 0
        shared = durable_count > 1
        if shared != self.template.shared:
            self.template = self._template(shared, self.template.context)

    def find_audience(self, topics: TopicSpaces, keys: Sequence[str]) -> None:
        """Have those hear what is published who subscribe to the topics its route meets, by `keys` or its own
        topic; an audience that it has already stays.
        """
        if self.is_accompanied:
            return
        vhost = self.route.topics_of
        if vhost is None:
            self.audience = None
        elif self.audience is None:
            self.audience = topics.audience(vhost, keys or (self.topic,), self.template)

    def is_heard(self, audience: Audience, bodies: list[bytes]) -> bool:
        """Have the audience hear messages; whether there is a subscriber."""
        heard = audience.hear(bodies)
        self.durable = self.durable_count > 0 or heard == STORED
        return heard != UNHEARD

    def refused_by(self, full: tuple[Queue, ...]) -> None:
        """Note that a publish was refused: these have no room."""
        self.full = full

    def _template(self, shared: bool, context: object = None) -> EnvelopeTemplate:
        return EnvelopeTemplate(
            self.topic,
            self.properties_kind,
            self.properties,
            persistent=self.persistent,
            shared=shared,
            priority=min(self.options.priority, 255),
            expires_at_ms=0
            if self.options.ttl_ms is None
            else max(limits.LIFETIME_MS_MIN, self.options.ttl_ms),
            exchange=self.exchange,
            context=context,
        )
