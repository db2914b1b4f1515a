"""Refusals and their reply codes: which close the channel, which the connection."""

from __future__ import annotations

from typing import Final

from broker.access.login import NotPermitted
from broker.properties.amqp import field_type_name
from protocols.amqp091 import constants as c
from protocols.errors import ProtocolError
from queue_manager.address import local_name
from queue_manager.errors import (
    AccessRefused,
    ExchangeNotFound,
    Inequivalent,
    InExclusiveUse,
    InternalExchange,
    InUse,
    InvalidAddress,
    LimitReached,
    NotEmpty,
    NotText,
    QueueManagerError,
    QueueNotFound,
    ReservedName,
    ResourceLocked,
)

_LOCKED: Final = (
    "It could be originally declared on another connection or the exclusive property value does not match "
    "that of the original declaration."
)
_CODES: Final[dict[type[QueueManagerError], int]] = {
    QueueNotFound: c.NOT_FOUND,
    ExchangeNotFound: c.NOT_FOUND,
    ResourceLocked: c.RESOURCE_LOCKED,
    InternalExchange: c.ACCESS_REFUSED,
    AccessRefused: c.ACCESS_REFUSED,
    InExclusiveUse: c.ACCESS_REFUSED,
    ReservedName: c.ACCESS_REFUSED,
    NotPermitted: c.ACCESS_REFUSED,
    LimitReached: c.RESOURCE_ERROR,
    InvalidAddress: c.PRECONDITION_FAILED,
}


def refusal(error: QueueManagerError, vhost: str) -> ProtocolError:
    """Return a refusal of the queue manager as a channel error, in the words that clients know from
    RabbitMQ.
    """
    code = _CODES.get(type(error), c.PRECONDITION_FAILED)
    return channel_error(code, _text_of(error, f"in vhost '{vhost}'"))


def _text_of(error: QueueManagerError, where: str) -> str:
    if isinstance(error, ExchangeNotFound):
        return f"no exchange '{local_name(error.name)}' {where}"
    if isinstance(error, QueueNotFound) and error.name is not None:
        return f"no queue '{local_name(error.name)}' {where}"
    if isinstance(error, ResourceLocked):
        return f"cannot obtain exclusive access to locked queue '{local_name(error.name)}' {where}. {_LOCKED}"
    if isinstance(error, InUse):
        return f"{error.kind} '{local_name(error.name)}' {where} in use"
    if isinstance(error, InExclusiveUse):
        of_group = f" group '{error.group}'" if error.group else ""
        return f"queue '{local_name(error.name)}' {where}{of_group} in exclusive use"
    if isinstance(error, NotEmpty):
        return f"queue '{local_name(error.name)}' {where} not empty"
    if isinstance(error, InternalExchange):
        return f"cannot publish to internal exchange '{local_name(error.name)}' {where}"
    if isinstance(error, NotText):
        return _not_text(error, where)
    if isinstance(error, Inequivalent):
        return _inequivalent(error, where)
    return error.reason


def _not_text(error: NotText, where: str) -> str:
    kind = field_type_name(error.value)
    if error.owner:
        owner = local_name(error.owner)
        return f"invalid type '{kind}' for arg '{error.argument}' in exchange '{owner}' {where}"
    return f"Invalid {error.argument} field type {kind} (value {error.value}); expected longstr"


def _inequivalent(error: Inequivalent, where: str) -> str:
    received, current = error.received, error.current
    what = f"inequivalent arg '{error.what}' for {error.kind} '{local_name(error.name)}' {where}"
    if error.is_argument and current is None:
        return f"{what}: received {_with_type(received)} but current is none"
    if error.is_argument and received is None:
        return f"{what}: received none but current is {_with_type(current)}"
    return f"{what}: received '{_as_text(received)}' but current is '{_as_text(current)}'"


def _with_type(value: object) -> str:
    return f"the value '{_as_text(value)}' of type '{field_type_name(value)}'"


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def channel_error(code: int, reason: str) -> ProtocolError:
    """Return the exception for what closes the channel; the class and method at fault are those being
    handled.
    """
    return ProtocolError(code, reason, is_connection_error=False)


def connection_error(code: int, reason: str) -> ProtocolError:
    """Return the exception as `channel_error`, for what closes the connection."""
    return ProtocolError(code, reason)
