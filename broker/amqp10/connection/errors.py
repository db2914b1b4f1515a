"""Refusals and their conditions, which an error of AMQP 1.0 begins with."""

from __future__ import annotations

from typing import Final

from broker.access.login import NotPermitted
from broker.amqp.connection.errors import refusal
from protocols.amqp10 import constants as c
from protocols.amqp10.errors import AmqpError
from queue_manager.errors import (
    AccessRefused,
    ExchangeNotFound,
    InExclusiveUse,
    InternalExchange,
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    NotText,
    QueueManagerError,
    QueueNotFound,
    ReservedName,
    ResourceLocked,
)

_CONDITIONS: Final[dict[type[QueueManagerError], str]] = {
    QueueNotFound: c.NOT_FOUND,
    ExchangeNotFound: c.NOT_FOUND,
    ResourceLocked: c.RESOURCE_LOCKED,
    InternalExchange: c.UNAUTHORIZED_ACCESS,
    AccessRefused: c.UNAUTHORIZED_ACCESS,
    InExclusiveUse: c.UNAUTHORIZED_ACCESS,
    ReservedName: c.UNAUTHORIZED_ACCESS,
    NotPermitted: c.UNAUTHORIZED_ACCESS,
    LimitReached: c.RESOURCE_LIMIT_EXCEEDED,
    InvalidAddress: c.INVALID_FIELD,
    InvalidArgument: c.INVALID_FIELD,
    NotText: c.INVALID_FIELD,
}


def told(error: QueueManagerError, vhost: str) -> str:
    """Return what a client is told of a refusal, in the words that clients know from RabbitMQ."""
    return refusal(error, vhost).reason


def condition_of(error: QueueManagerError) -> str:
    """Return the condition of a refusal."""
    for kind in type(error).__mro__:
        if kind in _CONDITIONS:
            return _CONDITIONS[kind]
    return c.PRECONDITION_FAILED


def refused(error: QueueManagerError, vhost: str) -> AmqpError:
    """Return a refusal of the queue manager as the error that is sent."""
    return AmqpError(condition_of(error), told(error, vhost))
