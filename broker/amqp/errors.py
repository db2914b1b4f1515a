"""Refusals and their reply codes: which close the channel, which the connection."""

from __future__ import annotations

from typing import Final

from protocols.amqp091 import constants as c
from protocols.errors import ProtocolError
from queue_manager.errors import (
    AccessRefused,
    InvalidAddress,
    LimitReached,
    QueueManagerError,
    QueueNotFound,
    ResourceLocked,
)

_CODES: Final[dict[type[QueueManagerError], int]] = {
    QueueNotFound: c.NOT_FOUND,
    ResourceLocked: c.RESOURCE_LOCKED,
    AccessRefused: c.ACCESS_REFUSED,
    LimitReached: c.RESOURCE_ERROR,
    InvalidAddress: c.PRECONDITION_FAILED,
}


def refusal(error: QueueManagerError) -> ProtocolError:
    """What the queue manager refuses, as a channel error."""
    return channel_error(_CODES.get(type(error), c.PRECONDITION_FAILED), error.reason)


def channel_error(code: int, reason: str) -> ProtocolError:
    """To be raised for what closes the channel; the class and method at fault are those being handled."""
    return ProtocolError(code, reason, is_connection_error=False)


def connection_error(code: int, reason: str) -> ProtocolError:
    """As `channel_error`, for what closes the connection."""
    return ProtocolError(code, reason)
