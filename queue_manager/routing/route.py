"""Where messages go, as of one version of the bindings: queues of this shard, and of others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, cast

from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.validity import Version
from storage.envelope import EnvelopeTemplate


class Route(Version):
    """The queues of one topic or name, as of one version of the bindings.

    `foreign` are those that other shards have. `topics_of`: the virtual host whose topics of MQTT it meets,
    as it leads through the exchange where those are; None: it does not.
    """

    __slots__ = ("durable_count", "foreign", "queues", "topics_of")

    def __init__(
        self,
        queues: tuple[Queue, ...],
        topics_of: str | None = None,
        foreign: tuple[ForeignQueue, ...] = (),
    ) -> None:
        super().__init__()
        self.queues = queues
        self.foreign = foreign
        self.topics_of = topics_of
        self.durable_count = sum(queue.durable for queue in queues)

    def __bool__(self) -> bool:
        return bool(self.queues or self.foreign)


Pass = Callable[["ForeignQueue", EnvelopeTemplate, bytes, int], None]
"""Passes one message on to the shard that has the queue: what it is given is in the open commit of this
shard, and reaches the other one whatever happens.
"""


@dataclass(eq=False, slots=True)
class ForeignQueue:
    """A queue of the shard with this number, known by what that one told of it last.

    `is_exclusive`: to a connection of its shard. `log_id` tells it from an earlier one of its name there.
    Bindings lead to it as to a queue of this shard; whoever publishes sends it there. Implements
    `queue_manager.rules.dead_letters.Target`.
    """

    name: str
    _: KW_ONLY
    shard: int
    durable: bool
    policy: QueuePolicy
    topics: tuple[str, ...]
    is_exclusive: bool
    log_id: str
    pass_on: Pass
    route: Route = field(init=False)

    def __post_init__(self) -> None:
        self.route = Route((), foreign=(self,))

    @property
    def quota_refusal(self) -> str:
        """See `broker.engine.traffic.Source`: only its own shard knows."""
        return ""

    @property
    def deleted(self) -> bool:
        """Whether it is gone: then it is forgotten, and what it is owed with it."""
        return False

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        """See `Target`: it waits here as long as its shard does not take it."""
        return ""

    def lets_go_of(self, template: EnvelopeTemplate) -> bool:
        """See `Target`: only its own shard knows."""
        return False

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """Append a message."""
        self.pass_on(self, template, body, now_ms)


def by_shard(
    found: Collection[Queue | ForeignQueue],
) -> tuple[tuple[Queue, ...], tuple[ForeignQueue, ...]]:
    """Return the queues of this shard among some, and those of others."""
    foreign = tuple([queue for queue in found if isinstance(queue, ForeignQueue)])
    if not foreign:
        return cast("tuple[Queue, ...]", tuple(found)), ()
    return tuple([queue for queue in found if not isinstance(queue, ForeignQueue)]), foreign


def joined(routes: Collection[Route]) -> Route:
    """Return all queues of some routes, each once; never current."""
    queues = dict.fromkeys(queue for route in routes for queue in route.queues)
    foreign = dict.fromkeys(queue for route in routes for queue in route.foreign)
    topics_of = next((route.topics_of for route in routes if route.topics_of is not None), None)
    route = Route(tuple(queues), topics_of, tuple(foreign))
    route.expire()
    return route


def open_to(route: Route, publisher: str) -> Route:
    """Return the queues of a route that take messages from a publisher; not current if some do not."""
    queues = tuple(queue for queue in route.queues if queue.policy.not_from != publisher)
    foreign = tuple(queue for queue in route.foreign if queue.policy.not_from != publisher)
    if len(queues) == len(route.queues) and len(foreign) == len(route.foreign):
        return route
    left = Route(queues, route.topics_of, foreign)
    left.expire()
    return left


NOWHERE: Final = Route(())
NOWHERE.expire()
