"""What other workers have of MQTT, as a front-end sees it where there are several workers.

Subscribers of topics, members of share groups and retained messages are at the workers of their clients and
topics. Each worker knows which filters the others have subscribers for, and sends them what those match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Protocol

from broker.engine.answers import Answer
from queue_manager.audience import Audience
from queue_manager.retained_messages import RetainedMessage


class FilterFact(NamedTuple):
    """The subscriptions of one worker to a filter, or its members of a group: how many, 0 for none any more.
    `is_kept`: lasting sessions are among them, which keep what they are not sent.
    """

    filter: str
    share: str
    members: int
    is_kept: bool


@dataclass(eq=False, slots=True)
class FarPlan:
    """The common part of publishes of one shape that go from one worker to another, `worker`: the other one
    as each of both sees it.

    `is_retained`: it is to retain them. `share` and `share_filter`: they are for one member of that group,
    and for nobody else. `is_certain`: who published them waits until they are durable there.
    """

    worker: int
    vhost: str
    first_byte: int
    topic: str
    properties: bytes
    topics: tuple[str, ...]
    _: KW_ONLY
    user: str | None = None
    is_retained: bool = False
    share: str = ""
    share_filter: str = ""
    is_certain: bool = False

    def told(self) -> tuple[object, ...]:
        """Return what the other worker is told of it, for `heard`."""
        kinds = (self.is_retained, self.share, self.share_filter)
        return (self.vhost, self.first_byte, self.topic, self.properties, self.topics, self.user, *kinds)

    @classmethod
    def heard(cls, worker: int, vhost: str, first_byte: int, topic: str, *more: Any) -> FarPlan:
        """Return the plan of another worker that was told of."""
        properties, topics, user, is_retained, share, share_filter = more
        return cls(
            worker,
            vhost,
            first_byte,
            topic,
            properties,
            topics,
            user=user,
            is_retained=is_retained,
            share=share,
            share_filter=share_filter,
        )


class Here(Protocol):
    """The topics of one virtual host at this worker, as the others need them."""

    def know(self, worker: int, facts: Collection[FilterFact]) -> None:
        """Take note of what another worker has subscribers for."""

    def audience(self, plan: FarPlan) -> Audience:
        """Return who here hears publishes of another worker's clients."""


class Pages(Protocol):
    """The retained messages of other workers that a filter matches, as they come."""

    def __iter__(self) -> Iterator[RetainedMessage | None]:
        """Yield what is there, and None while there is nothing: then `arrived` tells when to go on."""

    @property
    def arrived(self) -> Answer[None]:
        """Done while there is something, or the end."""

    def later(self) -> list[Answer[Pages]]:
        """Return what workers have that were gone: each is there once that worker is, or comes to WorkerLost.

        To be called after the end.
        """


class Elsewhere(Protocol):
    """The other workers. `number` is that of this one."""

    number: int

    def home_of(self, vhost: str, client_id: str) -> int:
        """Return the worker that a client belongs to."""

    def keeper_of(self, vhost: str, topic: str) -> int:
        """Return the worker that retains the last message of a topic."""

    def retained(self, vhost: str, topic_filter: str) -> Pages:
        """Return the retained messages that the others have and a filter matches."""

    def join(self, vhost: str, here: Here | None) -> None:
        """Have the subscribers of a virtual host hear what the others publish; None: it is deleted."""

    def tell(self, vhost: str, fact: FilterFact) -> None:
        """Tell the others what there is for a filter here."""

    def settled(self) -> Answer[None]:
        """Return what is done once the others know all that they were told."""

    def begin_publish(self) -> None:
        """Note that a publish begins: what was sent for the one before is not waited for with it."""

    def publish(self, plan: FarPlan, bodies: Sequence[bytes]) -> None:
        """Send publishes to a worker. Who waits for this worker's commit then waits for that one, too, if the
        plan says so.
        """
