"""The calls between front-ends and the core while messages flow, as the front-ends see it.

Plans, consumers, claims and credit belong to the client that made them and come back to it; a front-end reads
what is stated here and does the rest by calls of `PublishingClient`, `ConsumingClient` and `SettlingClient`
(`broker.engine.client`). What a client has behind that is its own business: the local one gives out what the
core itself works with, at no cost for a message; one that speaks to another process has numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from queue_manager.audience import Audience, Topics
from queue_manager.claims.claim import UNLIMITED
from queue_manager.model import Message
from queue_manager.options import PublishOptions
from queue_manager.policy import QueuePolicy
from queue_manager.retained_messages import RetainedMessage
from queue_manager.shard.commit import Waiter
from storage.envelope import EnvelopeTemplate

# of the core's values, beside what is stated here
__all__ = ["UNLIMITED", "Audience", "Message", "RetainedMessage", "Topics"]


class Source(Protocol):
    """A queue that messages go to or come from."""

    @property
    def name(self) -> str: ...

    @property
    def policy(self) -> QueuePolicy: ...

    @property
    def quota_refusal(self) -> str:
        """Whose quota keeps it from taking more; "": none does."""


class Targets(Protocol):
    """The queues a publish goes to, until bindings change."""

    @property
    def queues(self) -> Sequence[Source]: ...

    @property
    def is_current(self) -> bool:
        """Whether that is still so."""

    @property
    def topics_of(self) -> str | None:
        """The virtual host whose topics it meets, leading through the exchange where those are."""

    def __bool__(self) -> bool:
        """Return whether there are any."""


class PublishPlan(Protocol):
    """The common part of publishes alike; aimed at queues by `PublishingClient.aim`."""

    @property
    def queues(self) -> Sequence[Source]:
        """Where they go, as far as that is at this worker."""

    @property
    def queue_names(self) -> Sequence[str]:
        """The names of all queues they go to."""

    @property
    def leads_anywhere(self) -> bool:
        """Whether a queue of whatever shard, or a subscriber, is to have what is published."""

    @property
    def message_bytes_max(self) -> int:
        """The largest message that all queues take."""

    @property
    def full(self) -> Sequence[Source]:
        """The queues without room, as of the last publish that was refused for that."""

    @property
    def durable(self) -> bool:
        """Whether what was published last is kept on the store."""

    @property
    def options(self) -> PublishOptions: ...

    @property
    def template(self) -> EnvelopeTemplate:
        """The template that messages published by it are stored with."""

    @property
    def audience(self) -> Audience | None:
        """The subscribers of topics that hear it, too."""

    def accompany(self, audience: Audience | None) -> None:
        """Have these hear it instead of those that aiming finds."""


class PublishWaiter(Waiter, Protocol):
    """A waiter for publishes that were accepted, but are judged in the end by a queue elsewhere."""

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """Note that the publishes of these tokens were refused, with one of `queue_manager.outcomes`. Its
        `committed` of them, or of later ones, follows.

        A publish has a token of its own, also where `wait_up_to` is told only that of the last of them.
        """


class Judgement(Protocol):
    """The outcome of a publish at its targets, before anything is done."""

    @property
    def plan(self) -> PublishPlan: ...

    @property
    def bodies(self) -> Sequence[bytes]: ...

    @property
    def templates(self) -> Sequence[EnvelopeTemplate] | None:
        """Those of messages with properties of their own."""

    @property
    def outcome(self) -> int:
        """One of `queue_manager.outcomes`."""


class Group(Protocol):
    """The consumer group of a consumer."""

    @property
    def name(self) -> str: ...

    @property
    def group_id(self) -> str:
        """Its name, or `name@pattern`."""

    @property
    def queue_name(self) -> str: ...


class Consumer(Protocol):
    """One consumer of one group."""

    @property
    def group(self) -> Group: ...

    @property
    def no_ack(self) -> bool:
        """Whether what it is sent is settled thereby."""

    @property
    def exclusive(self) -> bool:
        """Whether it keeps others out."""

    @property
    def priority(self) -> int: ...

    @property
    def lease_ms(self) -> int: ...

    @property
    def credit_max(self) -> int:
        """How many unsettled messages it may hold."""

    @property
    def held_count(self) -> int:
        """How many it holds."""

    @property
    def is_cut_off(self) -> bool:
        """Whether it has ended with the way to its queue, which may be there."""

    def pace(self, per_s: int) -> None:
        """Give it what a quota of so many messages a second lets it have at a time; 0: there is none."""

    def pause(self) -> None:
        """Give it nothing until `resume`."""

    def resume(self) -> None:
        """Give it messages again, from the next `wake` on."""

    def came_late(self) -> None:
        """Note that it settled a claim that it does not hold any more: it is slow, but at work."""


class Claim(Protocol):
    """A message that was handed to a consumer, until it is settled or taken back."""

    @property
    def attempts(self) -> int: ...

    @property
    def is_in_flight(self) -> bool:
        """Whether a consumer holds it still."""


class Credit(Protocol):
    """A limit on unsettled messages that several consumers share."""

    @property
    def credit_max(self) -> int: ...

    def set_credit(self, credit_max: int) -> None:
        """Set another limit."""


class LinkCredit(Protocol):
    """How many messages a consumer may be given until its client allows more, whatever it settles."""

    left: int
    is_draining: bool

    def set(self, count: int) -> None:
        """Allow so many from now on; to be followed by a wake of the consumer."""

    def drain(self) -> None:
        """Have all given that is there; the client of the credit is told once it was."""


class Window(Protocol):
    """The deliveries that a client has not acknowledged. A front-end gives it: see
    `ConsumingClient.places`.
    """

    def free(self) -> int:
        """Return how many more messages it takes now, of whatever it is sent; below 1: none."""

    def close(self) -> None:
        """Take nothing until `open`: places became free, and whose turn it is has yet to be found."""

    def open(self) -> None:
        """Take as many messages again as the client allows."""


class Places(Protocol):
    """The places of a window: the credit of the client's consumers, which take turns with whatever else it is
    sent.
    """

    def freed(self) -> None:
        """Note that places are free again: told once for all that become free together."""


class Sink(Protocol):
    """The place where a front-end has the deliveries of a consumer go."""

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        """Send `messages`, in order; give whether that could be done.

        `claims` are theirs; None: first deliveries to a `no_ack` consumer. Claims of a `no_ack` consumer are
        done once this gives True, and not to be kept. All messages of one call are either first deliveries or
        all redeliveries (`claims[0].attempts > 1`). A consumer whose sink gives False had better go: what it
        could not send returns when it does.
        """

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """Forget `claims` whose leases ended: their delivery tags mean nothing any more."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """End the consumer, whose queue or group is gone."""
