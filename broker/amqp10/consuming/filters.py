"""Filters of sources: which there are, what they ask for, and which of them are told as taken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from broker.clients.consumer_filters import (
    GROUP_SELECTOR,
    MATCH_UNFILTERED,
    SELECTORS,
    SQL,
    STREAM_FILTER,
    Filters,
    filters_of,
)
from broker.properties.amqp10 import compared, neutral
from protocols.amqp10.types import Described, Symbol, Timestamp
from queue_manager.errors import InvalidArgument
from queue_manager.filters import Symbol as SymbolReference
from queue_manager.filters.property_filters import APPLICATION_PROPERTIES_ARGUMENT, PROPERTIES_ARGUMENT
from queue_manager.log.stream_start import StreamStart, parse_start

_JMS: Final = "apache.org:selector-filter:string"
_NO_LOCAL: Final = "apache.org:no-local-filter:list"
_PROPERTIES: Final = "amqp:properties-filter"
_APPLICATION: Final = "amqp:application-properties-filter"
_SQL: Final = SQL
_OFFSET: Final = "rabbitmq:stream-offset-spec"

_OF_STREAMS: Final = {
    "rabbitmq:stream-filter": STREAM_FILTER,
    "rabbitmq:stream-match-unfiltered": MATCH_UNFILTERED,
}

# descriptors as numbers: of the registry of Apache, and of Filter Expressions 1.0
_NAMES: Final[dict[int, str]] = {
    0x0000468C00000003: _NO_LOCAL,
    0x0000468C00000004: _JMS,
    0x173: _PROPERTIES,
    0x174: _APPLICATION,
    0x120: _SQL,
}


class SourceFilters(NamedTuple):
    """The subscription that the filters of a source ask for; `taken` are those that are, as they came.

    `is_not_local`: messages that its own container publishes are not wanted.
    """

    wanted: Filters
    start: StreamStart | None
    taken: dict[Any, Any]
    is_not_local: bool


def source_filters(
    given: dict[Any, Any] | None, *, now_ms: int, is_stream: bool = False, is_topic: bool = False
) -> SourceFilters:
    """Read the filters of a source; one that is not known for such a source is not among the `taken`.

    The selector of a topic is its group's, so that what does not match is not kept. Raises InvalidArgument
    for a known filter that says nothing that can be had.
    """
    arguments: dict[str, object] = {}
    taken: dict[Any, Any] = {}
    start: StreamStart | None = None
    is_not_local = False
    selector = SELECTORS[0]
    if is_topic:
        selector = GROUP_SELECTOR
        arguments[selector] = ""
    for key, value in (given or {}).items():
        if type(value) is not Described:
            continue
        name = _NAMES.get(value.descriptor, value.descriptor) if _is_name(value.descriptor) else ""
        if name == _JMS:
            arguments[selector] = value.value
        elif name == _SQL:
            arguments[SQL] = value.value
        elif name in (_PROPERTIES, _APPLICATION):
            argument = PROPERTIES_ARGUMENT if name == _PROPERTIES else APPLICATION_PROPERTIES_ARGUMENT
            arguments[argument] = _references(value.value)
        elif name == _OFFSET and is_stream:
            start = parse_start(_place(value.value), now_ms)
        elif name == _NO_LOCAL and is_topic:
            is_not_local = True
        elif name in _OF_STREAMS and is_stream:
            arguments[_OF_STREAMS[name]] = value.value
        else:
            continue
        taken[key] = value
    return SourceFilters(filters_of(arguments), start, taken, is_not_local)


def _is_name(descriptor: object) -> bool:
    return isinstance(descriptor, int | Symbol)


def _references(table: object) -> object:
    """Return a table of a property filter with the values that the core compares by."""
    if not isinstance(table, dict):
        raise InvalidArgument("a property filter is a map")
    return {
        str(name): SymbolReference(item) if type(item) is Symbol else compared(neutral(item))
        for name, item in table.items()
    }


def _place(value: object) -> object:
    if type(value) is Timestamp:
        return datetime.fromtimestamp(int(value) / 1000, UTC)
    return value
