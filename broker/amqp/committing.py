"""`$queue/<stream>/$commit`: a group's offset, committed by headers `x-group-id` and `x-offset`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from broker.amqp.delivery import GROUP_HEADER, OFFSET_HEADER
from broker.engine.answers import Answer
from broker.properties.single import single_values
from config import limits
from protocols.amqp091 import content
from protocols.amqp091.events import PublishShape
from queue_manager import address
from queue_manager.errors import InvalidArgument, QueueManagerError

if TYPE_CHECKING:
    from broker.amqp.channel import AmqpChannel

_log: Final = structlog.get_logger("sluicemq.amqp")
SUFFIX: Final = "/$commit"


def is_commit(exchange: str, routing_key: str) -> bool:
    """Whether a publish is no message but a commit."""
    return not exchange and routing_key.endswith(SUFFIX) and address.is_queue_topic(routing_key)


def commit(channel: AmqpChannel, shape: PublishShape) -> Answer[None]:
    """Commit what the headers say; durable once the open commit is. Raises QueueManagerError."""
    frontend = channel.frontend
    parsed = address.parse(shape.routing_key)
    headers = single_values(content.decode_headers(shape.properties), "header", (GROUP_HEADER, OFFSET_HEADER))
    group_id = headers.get(GROUP_HEADER)
    offset = headers.get(OFFSET_HEADER)
    if not isinstance(group_id, str) or not group_id:
        raise InvalidArgument(f"$commit needs the header {GROUP_HEADER}, the name of a group")
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= limits.STREAM_OFFSET_MAX:
        raise InvalidArgument(f"$commit needs the header {OFFSET_HEADER}, an offset, not {offset!r}")
    return frontend.hub.client.streams.commit_offset(parsed.name, frontend.caller, group_id, offset)


def log_refused(channel: AmqpChannel, error: QueueManagerError) -> None:
    """Say why a commit was answered by basic.nack, which cannot."""
    _log.warning(
        "stream.commit_refused",
        peer=channel.frontend.transport.peer,
        channel=channel.number,
        reason=error.reason,
    )
