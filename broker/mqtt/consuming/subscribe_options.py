"""User properties of SUBSCRIBE: what a subscription to a queue asks for, and what only streams take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from broker.clients.consumer_filters import NAMES as FILTER_PROPERTIES
from broker.clients.consumer_filters import Filters, filters_of
from broker.engine.answers import Answer
from broker.engine.client.groups import GroupClient
from broker.engine.shard_ending import BrokerStopped
from broker.engine.traffic import Consumer
from broker.properties.single import aliased_value, single_values
from broker.vhosts.hub import Hub
from config import limits
from queue_manager.address import PASSING_GROUP_PREFIX
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.log.stream_start import NAME as START_PROPERTY
from queue_manager.log.stream_start import StreamStart, parse_start

GROUP_PROPERTY: Final = "consumer-group"
ACK_PROPERTY: Final = "ack"
EXPLICIT: Final = "explicit"
PUBACK: Final = "puback"
AUTO_COMMIT_PROPERTIES: Final = ("auto-commit", "x-auto-commit")
PROPERTIES: Final = frozenset(
    (
        GROUP_PROPERTY,
        ACK_PROPERTY,
        "exclusive",
        "prefetch",
        "x-priority",
        START_PROPERTY,
        *AUTO_COMMIT_PROPERTIES,
        *FILTER_PROPERTIES,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a subscription to a stream; `given` says by which properties."""

    start: StreamStart | None
    auto_commit: bool
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The options of a subscription to a queue; None, and `prefetch` 0: it does not say."""

    group: str | None
    ack: str | None
    exclusive: bool
    prefetch: int
    priority: int
    filters: Filters
    stream: StreamOptions | None


def read_options(user_properties: Iterable[tuple[str, str]], now_ms: int) -> SubscribeOptions:
    """Read the user properties of a SUBSCRIBE; raises InvalidArgument naming the one that is wrong."""
    values = single_values(user_properties, "user property", PROPERTIES)
    ack = values.get(ACK_PROPERTY)
    if ack not in (None, EXPLICIT, PUBACK):
        raise InvalidArgument(f"user property ack is {EXPLICIT!r} or {PUBACK!r}, not {ack!r}")
    return SubscribeOptions(
        group=values.get(GROUP_PROPERTY),
        ack=ack,
        stream=stream_options(values, now_ms),
        prefetch=_prefetch(values),
        priority=_priority(values),
        exclusive=_flag("exclusive", values.get("exclusive", "false")),
        filters=filters_of(values),
    )


def stream_options(values: dict[str, str], now_ms: int) -> StreamOptions | None:
    """Return what the user properties say of a stream; None: nothing. Raises InvalidArgument."""
    given = [name for name in (START_PROPERTY, *AUTO_COMMIT_PROPERTIES) if name in values]
    if not given:
        return None
    name, text = aliased_value(values, AUTO_COMMIT_PROPERTIES)
    auto_commit = _flag(name, text) if name else True
    start = parse_start(values[START_PROPERTY], now_ms) if START_PROPERTY in values else None
    return StreamOptions(start=start, auto_commit=auto_commit, given=f"user property {', '.join(given)}")


def _priority(values: dict[str, str]) -> int:
    text = values.get("x-priority", "0")
    digits = text.removeprefix("-")
    if not _is_number(digits) or int(digits) > limits.CONSUMER_PRIORITY_MAX:
        raise InvalidArgument(f"user property x-priority is a whole number, not {text!r}")
    return int(text)


def _prefetch(values: dict[str, str]) -> int:
    text = values.get("prefetch")
    if text is None:
        return 0
    if not _is_number(text) or not 1 <= int(text) <= 65_535:
        raise InvalidArgument(f"user property prefetch is 1 to 65535, not {text!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidArgument(f"user property {name} is 'true' or 'false', not {text!r}")
    return text == "true"


_log: Final = structlog.get_logger("sluicemq.mqtt")


class TemporaryGroups:
    """The groups that one client made, by queue and group ID."""

    __slots__ = ("_hub", "_is_over", "_made")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._made: set[tuple[str, str]] = set()
        self._is_over = False

    def name_for(self, client_id: str) -> str:
        """Return the name of the client's own group."""
        return PASSING_GROUP_PREFIX + client_id

    def expect(self, queue: str, answer: Answer[Consumer]) -> None:
        """Note that the client is in a group of its own once the answer, which brings its consumer, is
        there.
        """
        answer.then(partial(self._note, queue))

    def _note(self, queue: str, answer: Answer[Consumer]) -> None:
        if not answer.is_error:
            self._made.add((queue, answer.result().group.group_id))
        if self._is_over:
            self.end()

    def end(self) -> None:
        """End the client's groups: it is gone."""
        self._is_over = True
        if self._made:
            self._hub.spawn(_delete(self._hub.client.groups, self._made))
            self._made = set()


async def _delete(groups: GroupClient, made: set[tuple[str, str]]) -> None:
    for queue, group_id in made:
        try:
            await groups.delete(queue, group_id, force=True)
        except QueueManagerError as error:  # the queue went first
            _log.debug("mqtt.group_left", queue=queue, group=group_id, reason=error.reason)
        except BrokerStopped:  # the next start sees to it
            return


async def delete_left(groups: GroupClient) -> None:
    """Delete the groups of clients that were connected when the broker was killed."""
    count = await groups.delete_passing()
    if count:
        _log.info("mqtt.groups_deleted", count=count)
