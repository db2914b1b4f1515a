"""Names of the headers that deliveries carry beside the publisher's own."""

from __future__ import annotations

from typing import Final

from broker.properties.amqp import ACQUIRED_COUNT_HEADER, DELIVERY_COUNT_HEADER
from queue_manager.log.stream_start import NAME

OFFSET: Final = "x-offset"
TIMESTAMP: Final = "x-timestamp"
GROUP: Final = "x-group-id"
DELIVERY_COUNT: Final = DELIVERY_COUNT_HEADER
ACQUIRED_COUNT: Final = ACQUIRED_COUNT_HEADER

# of streams
STREAM_OFFSET: Final = NAME
STREAM_TIMESTAMP: Final = "x-stream-timestamp"
STREAM_GAP: Final = "x-stream-gap"
WORK_GROUP: Final = "x-work-group"
WORK_COMMITTED: Final = "x-work-committed-offset"
WORK_ACKED: Final = "x-work-acked"
