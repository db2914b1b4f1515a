"""Arguments of basic.consume: what they mean; the rest is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.amqp.topology.bad_arguments import BadArgument, checked_integer, unacceptable
from broker.amqp.topology.retry_arguments import (
    CONSUMER_TIMEOUT,
    integer,
)
from broker.clients import consumer_filters
from broker.clients.consumer_filters import Filters
from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import NAME as START_ARGUMENT
from queue_manager.log.stream_start import StreamStart, parse_start

GROUP_ARGUMENT: Final = "x-consumer-group"
PRIORITY_ARGUMENT: Final = "x-priority"
AUTO_COMMIT_ARGUMENT: Final = "x-auto-commit"
TELL_OFFSET_ARGUMENT: Final = "x-tell-offset"

FAILOVER_ARGUMENT: Final = "x-cancel-on-ha-failover"  # there is one node: it asks for nothing

_CONSUMER_NAMES: Final = frozenset(
    (
        GROUP_ARGUMENT,
        PRIORITY_ARGUMENT,
        CONSUMER_TIMEOUT,
        FAILOVER_ARGUMENT,
        START_ARGUMENT,
        AUTO_COMMIT_ARGUMENT,
        TELL_OFFSET_ARGUMENT,
        *consumer_filters.NAMES,
        *consumer_filters.STREAM_NAMES,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerArguments:
    """The arguments of a basic.consume; group "" is the default group."""

    group: str = ""
    priority: int = 0
    filters: Filters = Filters()
    stream_filter: object = None
    match_unfiltered: object = None
    stream_offset: object = None
    auto_commit: object = None
    lease_ms: int = 0  # 0: as the queue has it
    tells_offset: bool = False

    def check_no_stream(self) -> None:
        """Raise BadArgument if there is something in them that only a stream can do."""
        asked = {
            START_ARGUMENT: self.stream_offset,
            AUTO_COMMIT_ARGUMENT: self.auto_commit,
            consumer_filters.STREAM_FILTER: self.stream_filter,
            consumer_filters.MATCH_UNFILTERED: self.match_unfiltered,
        }
        for name, value in asked.items():
            if value is not None:
                raise BadArgument(name, " of queue type rabbit_classic_queue")

    def stream_start(self, now_ms: int) -> StreamStart | None:
        """Read where a consumer of a stream wants to begin; None: it did not say."""
        return None if self.stream_offset is None else parse_start(self.stream_offset, now_ms)

    def commits_itself(self) -> bool:
        """Read whether the group of a stream's consumer commits by itself; raises InvalidArgument."""
        if not isinstance(self.auto_commit, bool | None):
            raise InvalidArgument(f"{AUTO_COMMIT_ARGUMENT} must be true or false, not {self.auto_commit!r}")
        return self.auto_commit is not False


def consumer_arguments(arguments: Mapping[str, Any]) -> ConsumerArguments:
    """Read the arguments of a basic.consume; raises InvalidArgument, mostly BadArgument, for those that mean
    nothing here.
    """
    for name in arguments:
        if name not in _CONSUMER_NAMES:
            raise BadArgument(name, ": not supported")
    group = arguments.get(GROUP_ARGUMENT, "")
    if not isinstance(group, str):
        raise InvalidArgument(f"{GROUP_ARGUMENT} must be a string")
    failover = arguments.get(FAILOVER_ARGUMENT, False)
    if not isinstance(failover, bool):
        raise unacceptable(FAILOVER_ARGUMENT, failover)
    tells_offset = arguments.get(TELL_OFFSET_ARGUMENT, False)
    if not isinstance(tells_offset, bool):
        raise unacceptable(TELL_OFFSET_ARGUMENT, tells_offset)
    priority = checked_integer(PRIORITY_ARGUMENT, arguments.get(PRIORITY_ARGUMENT, 0))
    lease_ms = 0
    if CONSUMER_TIMEOUT in arguments:
        lease_ms = integer(CONSUMER_TIMEOUT, arguments[CONSUMER_TIMEOUT], 1, limits.DURATION_MS_MAX)
    return ConsumerArguments(
        group=group,
        lease_ms=lease_ms,
        tells_offset=tells_offset,
        priority=max(-limits.CONSUMER_PRIORITY_MAX, min(priority, limits.CONSUMER_PRIORITY_MAX)),
        stream_offset=arguments.get(START_ARGUMENT),
        auto_commit=arguments.get(AUTO_COMMIT_ARGUMENT),
        stream_filter=arguments.get(consumer_filters.STREAM_FILTER),
        match_unfiltered=arguments.get(consumer_filters.MATCH_UNFILTERED),
        filters=consumer_filters.filters_of(arguments),
    )
