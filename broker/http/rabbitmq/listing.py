"""Listings as RabbitMQ's API gives them: columns, order, pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import QueryParams

from broker.http.problems import Problem
from config import limits

_FLAGS: Final = ("true", "false")


def listed(items: list[dict[str, Any]], query: QueryParams) -> Any:
    """The items as the query wants them: all, or one page as an object; raises Problem."""
    total = len(items)
    name = query.get("name", "")
    if name:
        items = _named(items, name, is_pattern=query.get("use_regex") == "true")
    if sort := query.get("sort"):
        is_reverse = query.get("sort_reverse") == "true"
        items = sorted(items, key=lambda item: _order(value_of(item, sort)), reverse=is_reverse)
    if "page" not in query:
        return [with_columns(item, query) for item in items]
    return _page(items, total, query)


def with_columns(item: dict[str, Any], query: QueryParams) -> dict[str, Any]:
    """An item with the wanted columns only; `a.b` is in an object."""
    wanted = query.get("columns")
    if not wanted:
        return item
    found: dict[str, Any] = {}
    for path in wanted.split(","):
        value = value_of(item, path)
        if value is not None or path in item:
            *parents, last = path.split(".")
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
    return found


def value_of(item: Mapping[str, Any], path: str) -> Any:
    """What stands at `a.b` in an object, None if nothing does."""
    value: Any = item
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _page(items: list[dict[str, Any]], total: int, query: QueryParams) -> dict[str, Any]:
    page = _number(query, "page", 1, 1)
    size = _number(query, "page_size", 100, limits.RABBITMQ_PAGE_ITEMS_MAX)
    page_count = max(1, -(-len(items) // size))
    if page > page_count:
        reason = f"Page out of range, page: {page} page size: {size}, len: {len(items)}"
        raise Problem(400, "page_out_of_range", reason)
    shown = items[(page - 1) * size : page * size]
    return {
        "filtered_count": len(items),
        "item_count": len(shown),
        "items": [with_columns(item, query) for item in shown],
        "page": page,
        "page_count": page_count,
        "page_size": size,
        "total_count": total,
    }


def _number(query: QueryParams, name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise Problem(400, "bad_request", f"{name} is a number from 1")
    return int(text) if name == "page" else min(int(text), most)


def _named(items: list[dict[str, Any]], name: str, *, is_pattern: bool) -> list[dict[str, Any]]:
    if not is_pattern:
        return [item for item in items if name in str(item.get("name", ""))]
    try:
        if len(name) > limits.RABBITMQ_PATTERN_CHARACTERS_MAX:
            raise re.error("too long")
        pattern = re.compile(name)
    except (re.error, RecursionError, OverflowError) as error:
        raise Problem(400, "bad_request", f"name: {error}") from None
    return [item for item in items if pattern.search(str(item.get("name", "")))]


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, str(value))
