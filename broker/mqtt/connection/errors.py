"""Which reason code says what the queue manager refuses."""

from __future__ import annotations

from typing import Final

from broker.access.login import NotPermitted
from broker.engine.shard_ending import WorkerLost
from protocols.mqtt import constants as c
from queue_manager import outcomes
from queue_manager.errors import (
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueManagerError,
    QueueNotFound,
)

_PUBLISH: Final[dict[type[QueueManagerError], int]] = {
    LimitReached: c.QUOTA_EXCEEDED,
    InvalidArgument: c.IMPLEMENTATION_SPECIFIC_ERROR,
    PreconditionFailed: c.IMPLEMENTATION_SPECIFIC_ERROR,
}
_SUBSCRIBE: Final[dict[type[QueueManagerError], int]] = {
    NotPermitted: c.NOT_AUTHORIZED,
    QueueNotFound: c.NOT_AUTHORIZED,
    WorkerLost: c.UNSPECIFIED_ERROR,
    InvalidAddress: c.TOPIC_FILTER_INVALID,
    LimitReached: c.QUOTA_EXCEEDED,
}


_OUTCOMES: Final = {
    outcomes.REFUSED_IDENTITY: c.IMPLEMENTATION_SPECIFIC_ERROR,
    outcomes.REFUSED_ORDER: c.IMPLEMENTATION_SPECIFIC_ERROR,
    outcomes.REFUSED_LOST: c.UNSPECIFIED_ERROR,
}


def outcome_code(outcome: int) -> int:
    """Return the reason code of a publish that was refused."""
    return _OUTCOMES.get(outcome, c.QUOTA_EXCEEDED)


def connect_code(error: QueueManagerError) -> int:
    """Return the reason code of a CONNACK."""
    return c.QUOTA_EXCEEDED if isinstance(error, LimitReached) else c.NOT_AUTHORIZED


def publish_code(error: QueueManagerError) -> int:
    """Return the reason code of a PUBACK or PUBREC."""
    return _PUBLISH.get(type(error), c.NOT_AUTHORIZED)


def subscribe_code(error: QueueManagerError) -> int:
    """Return the reason code in a SUBACK."""
    return _SUBSCRIBE.get(type(error), c.IMPLEMENTATION_SPECIFIC_ERROR)
