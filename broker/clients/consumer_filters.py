"""The arguments by which consumers of both protocols ask for filtered messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from queue_manager.errors import InvalidArgument
from queue_manager.filters import FilterError, parse_selector
from queue_manager.filters.consumer_filter import ConsumerFilter, consumer_filter, table_from_text
from queue_manager.filters.property_filters import APPLICATION_PROPERTIES_ARGUMENT, PROPERTIES_ARGUMENT
from queue_manager.filters.stream_values import StreamValues

SELECTORS: Final = ("x-jms-selector", "selector")
TABLES: Final = (PROPERTIES_ARGUMENT, APPLICATION_PROPERTIES_ARGUMENT)
SQL: Final = "amqp:sql-filter"  # for who has read it off a filter of AMQP 1.0; no argument of consumers
GROUP_SELECTOR: Final = "x-group-selector"
STREAM_FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
STREAM_NAMES: Final = (STREAM_FILTER, MATCH_UNFILTERED)
"""The arguments that are for streams alone."""

NAMES: Final = (*SELECTORS, *TABLES, GROUP_SELECTOR)


class Filters(NamedTuple):
    """The filter of a consumer (None: everything), and the selector its group must have (None: any)."""

    wanted: ConsumerFilter | None = None
    group_selector: str | None = None

    def options(self) -> dict[str, Any]:
        """Return what `Consuming.subscribe` is to be told."""
        if self == Filters():
            return {}
        return {"wanted": self.wanted, "group_selector": self.group_selector}


def filters_of(values: Mapping[str, object]) -> Filters:
    """Read the arguments of these names; raises InvalidArgument naming the one that is wrong, and where."""
    texts = {name: _text(name, values[name]) for name in SELECTORS if name in values}
    if len(set(texts.values())) > 1:
        raise InvalidArgument(f"{SELECTORS[0]} and {SELECTORS[1]} are the same argument, but differ")
    name, text = next(iter(texts.items()), (SELECTORS[0], ""))
    tables: dict[str, object] = {}
    try:
        for table_name in TABLES:
            value = values.get(table_name)
            if value is not None:
                name = table_name
                tables[name] = table_from_text(name, value) if isinstance(value, str) else value
                consumer_filter("", {name: tables[name]})
        name = STREAM_FILTER
        stream_values = _stream_values(values)
        name = next(iter(texts), SELECTORS[0])
        if SQL in values:
            if texts:
                raise InvalidArgument(f"{SQL} and {name} cannot be together")
            name = SQL
            wanted = consumer_filter(_text(SQL, values[SQL]), tables, "amqp-sql", stream_values)
        else:
            wanted = consumer_filter(text, tables, stream_values=stream_values)
        group_selector = None
        if GROUP_SELECTOR in values:
            name = GROUP_SELECTOR
            group_selector = _text(name, values[name]).strip()
            parse_selector(group_selector)
    except FilterError as error:
        raise InvalidArgument(f"{name}: {error.reason}") from None
    return Filters(wanted, group_selector)


def _stream_values(values: Mapping[str, object]) -> StreamValues | None:
    takes_unfiltered = values.get(MATCH_UNFILTERED, False)
    if not isinstance(takes_unfiltered, bool):
        raise InvalidArgument(f"{MATCH_UNFILTERED} must be true or false, not {takes_unfiltered!r}")
    given = values.get(STREAM_FILTER)
    return None if given is None else StreamValues(given, takes_unfiltered=takes_unfiltered)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a text, not {type(value).__name__}")
    return value
