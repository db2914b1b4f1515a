"""The outcomes of a publish."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from queue_manager.address import local_name

ACCEPTED: Final = 0  # by all it was routed to; durable once the open commit is
UNROUTED: Final = 1  # no queue takes it and no subscriber is there
REFUSED_DEPTH: Final = 2  # the queue is full, or all of them are (`PublishPlan.full`)
REFUSED_SIZE: Final = 3  # larger than a queue takes
REFUSED_IDENTITY: Final = 4  # a queue took another body under the same identity
REFUSED_WINDOW: Final = 5  # a queue can remember no more identities
REFUSED_ORDER: Final = 6  # a publish of the same producer was refused before it
REFUSED_IN_PART: Final = 7  # some queues are full, the others took it (`PublishPlan.full`)
REFUSED_PAUSED: Final = 8  # as REFUSED_DEPTH, of queues that are paused for publishers
REFUSED_SESSION: Final = 9  # a session that lasts has no room, and publishers are to be told
REFUSED_QUOTA: Final = 10  # as REFUSED_DEPTH, by a quota of a virtual host or user
REFUSED_LOST: Final = 11  # the worker that has the queue ended before it said whether it took it
FULL: Final = (REFUSED_DEPTH, REFUSED_IN_PART, REFUSED_PAUSED, REFUSED_QUOTA)

REASONS: Final = {
    UNROUTED: "no queue takes the message",
    REFUSED_DEPTH: "the queue is full",
    REFUSED_SIZE: "message is larger than the queue takes",
    REFUSED_IDENTITY: "another body was published under the same identity",
    REFUSED_WINDOW: "the queue can remember no more identities",
    REFUSED_ORDER: "an earlier publish of this producer was refused; send that first",
    REFUSED_IN_PART: "a queue is full or paused; the other queues took the message",
    REFUSED_PAUSED: "the queue is paused for publishers",
    REFUSED_SESSION: "the session of a subscriber has no room",
    REFUSED_QUOTA: "a quota of bytes stored is used up",
    REFUSED_LOST: "the worker that has the queue ended before it confirmed the message",
}


class Refusing(Protocol):
    """A queue that refused a publish."""

    @property
    def quota_refusal(self) -> str:
        """Whose quota keeps it from taking more; "": none does."""


def reason_of(outcome: int, full: Sequence[Refusing]) -> str:
    """Return the reason of a refusal, by the queues that refused."""
    by_quota = next((queue.quota_refusal for queue in full if queue.quota_refusal), "")
    if outcome == REFUSED_QUOTA and by_quota:
        return by_quota
    return REASONS[outcome]


class Refused(Protocol):
    """A publish that was judged: see `queue_manager.routing.judgement.Judgement`."""

    @property
    def outcome(self) -> int: ...

    @property
    def plan(self) -> Any: ...


def why_not(judged: Refused) -> str:
    """Return the reason for which a transaction is refused, by the publish that cannot be applied."""
    outcome, plan = judged.outcome, judged.plan
    reason = reason_of(outcome, plan.full)
    if outcome == REFUSED_QUOTA:
        return reason
    if outcome in FULL:
        name = local_name(plan.full[0].name)
        return f"queue {name!r} is paused, or has no room for what the transaction publishes"
    return f"{reason}: {plan.template.topic!r}"
