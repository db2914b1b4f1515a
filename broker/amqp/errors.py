"""Refusals and their reply codes: which close the channel, which the connection."""

from __future__ import annotations

from typing import Final

from broker.access.login import NotPermitted
from broker.properties.amqp import field_type_name
from protocols.amqp091 import constants as c
from protocols.errors import ProtocolError
from queue_manager.errors import (
    AccessRefused,
    ExchangeNotFound,
    Inequivalent,
    InvalidAddress,
    LimitReached,
    QueueManagerError,
    QueueNotFound,
    ResourceLocked,
)

_CODES: Final[dict[type[QueueManagerError], int]] = {
    QueueNotFound: c.NOT_FOUND,
    ExchangeNotFound: c.NOT_FOUND,
    ResourceLocked: c.RESOURCE_LOCKED,
    AccessRefused: c.ACCESS_REFUSED,
    NotPermitted: c.ACCESS_REFUSED,
    LimitReached: c.RESOURCE_ERROR,
    InvalidAddress: c.PRECONDITION_FAILED,
}


def refusal(error: QueueManagerError, vhost: str) -> ProtocolError:
    """What the queue manager refuses, as a channel error, in the words that clients know from RabbitMQ."""
    code = _CODES.get(type(error), c.PRECONDITION_FAILED)
    if isinstance(error, ExchangeNotFound):
        return channel_error(code, f"no exchange '{error.name}' in vhost '{vhost}'")
    if isinstance(error, Inequivalent):
        return channel_error(code, _inequivalent(error, vhost))
    return channel_error(code, error.reason)


def _inequivalent(error: Inequivalent, vhost: str) -> str:
    received, current = error.received, error.current
    where = f"inequivalent arg '{error.what}' for {error.kind} '{error.name}' in vhost '{vhost}'"
    if not error.is_argument:
        return f"{where}: received '{_as_text(received)}' but current is '{_as_text(current)}'"
    if current is None:
        return f"{where}: received {_with_type(received)} but current is none"
    if received is None:
        return f"{where}: received none but current is {_with_type(current)}"
    return f"{where}: received '{_as_text(received)}' but current is '{_as_text(current)}'"


def _with_type(value: object) -> str:
    return f"the value '{_as_text(value)}' of type '{field_type_name(value)}'"


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def channel_error(code: int, reason: str) -> ProtocolError:
    """To be raised for what closes the channel; the class and method at fault are those being handled."""
    return ProtocolError(code, reason, is_connection_error=False)


def connection_error(code: int, reason: str) -> ProtocolError:
    """As `channel_error`, for what closes the connection."""
    return ProtocolError(code, reason)
