"""The filter of one consumer, whatever protocol it speaks: a selector, property filters, or both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from queue_manager.filters.errors import FilterError
from queue_manager.filters.field_access import MessageFilter
from queue_manager.filters.property_filters import (
    APPLICATION_PROPERTIES_ARGUMENT,
    PROPERTIES_ARGUMENT,
    AllOf,
    filters_from_arguments,
)
from queue_manager.filters.selector import Dialect, parse_selector
from queue_manager.filters.stream_values import StreamValues


class ConsumerFilter:
    """A condition, and the `key` that it shares with all conditions that say the same in the same words.

    `source` is what it was made of, by `consumer_filter`: as that it goes to another process.
    """

    __slots__ = ("condition", "key", "source")

    def __init__(self, key: str, condition: MessageFilter, source: Sequence[Any] = ()) -> None:
        self.key = key
        self.condition = condition
        self.source = tuple(source)


def consumer_filter(
    selector: str,
    tables: Mapping[str, object],
    dialect: Dialect = "jms",
    stream_values: StreamValues | None = None,
) -> ConsumerFilter | None:
    """Return the filter of a selector (blank: none) in this dialect, the property filters among `tables`, and
    the values of a stream's messages; None if there is none. Raises FilterError.
    """
    parts: list[MessageFilter] = []
    keys: list[object] = []
    if stream_values is not None:
        parts.append(stream_values)
        keys.append(stream_values.key)
    parsed = parse_selector(selector, dialect)
    if parsed is not None:
        parts.append(parsed)
        keys.append(selector.strip() if dialect == "jms" else [dialect, selector.strip()])
    properties = filters_from_arguments(tables)
    if properties is not None:
        parts.append(properties)
        for name in (PROPERTIES_ARGUMENT, APPLICATION_PROPERTIES_ARGUMENT):
            table = tables.get(name)
            if isinstance(table, Mapping):
                keys.append([name, sorted((str(key), repr(value)) for key, value in table.items())])
    if not parts:
        return None
    condition = AllOf(parts) if len(parts) > 1 else parts[0]
    return ConsumerFilter(json.dumps(keys), condition, (selector, tables, dialect, stream_values))


def table_from_text(name: str, text: str) -> Mapping[str, object]:
    """Read a property filter written as a JSON object, for protocols whose properties are texts.

    Raises FilterError.
    """
    try:
        table = json.loads(
            text, object_pairs_hook=_without_twins, parse_float=_number, parse_constant=_number
        )
    except (ValueError, RecursionError) as error:
        raise FilterError(f"{name} must be a JSON object: {error}") from None
    if not isinstance(table, dict):
        raise FilterError(f"{name} must be a JSON object, not {type(table).__name__}")
    return table


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twin!r} is there more than once")
    return table


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no number")
    return number
