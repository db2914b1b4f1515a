"""`$queue/<stream>/$commit`: a group's offset, committed by headers `x-group-id` and `x-offset`."""

from __future__ import annotations

from typing import Final

import structlog

from broker.amqp.connection import header_names as names
from broker.amqp.connection import permissions
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.engine.answers import Answer
from broker.properties.single import single_values
from config import limits
from protocols.amqp091 import content
from protocols.amqp091.events import PublishShape
from queue_manager import address
from queue_manager.errors import InvalidArgument, QueueManagerError

_log: Final = structlog.get_logger("sluicemq.amqp")
SUFFIX: Final = "/$commit"


def is_commit(exchange: str, routing_key: str) -> bool:
    """Return whether a publish is no message but a commit."""
    return not exchange and routing_key.endswith(SUFFIX) and address.is_queue_topic(routing_key)


def commit(channel: AmqpChannel, shape: PublishShape) -> Answer[None]:
    """Commit what the headers say; durable once the open commit is. Raises QueueManagerError."""
    parsed = address.parse(shape.address.routing_key)
    headers = single_values(content.decode_headers(shape.properties), "header", (names.GROUP, names.OFFSET))
    group_id = headers.get(names.GROUP)
    permissions.check_call(channel.client.identity, parsed, headers, "")
    offset = headers.get(names.OFFSET)
    if not isinstance(group_id, str) or not group_id:
        raise InvalidArgument(f"$commit needs the header {names.GROUP}, the name of a group")
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= limits.STREAM_OFFSET_MAX:
        raise InvalidArgument(f"$commit needs the header {names.OFFSET}, an offset, not {offset!r}")
    streams = channel.core.streams
    return streams.commit_offset(parsed.name, channel.client.caller, group_id, offset)


def log_refused(channel: AmqpChannel, error: QueueManagerError) -> None:
    """Say why a commit was answered by basic.nack, which cannot."""
    _log.warning(
        "stream.commit_refused",
        peer=channel.transport.peer,
        channel=channel.number,
        reason=error.reason,
    )
