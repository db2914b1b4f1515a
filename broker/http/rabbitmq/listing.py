"""Listings as RabbitMQ's API gives them: columns, order, pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

import re2
from starlette.datastructures import QueryParams
from starlette.responses import Response

from broker.http.problems import Problem
from broker.http.rabbitmq.asking import answer, answer_in_parts
from broker.http.totals import in_steps
from config import limits

V = TypeVar("V")
_Order = tuple[int, float, str]


async def listing(
    views: Sequence[V],
    shape: Callable[[V], dict[str, Any]],
    query: QueryParams,
    name_of: Callable[[V], str] = lambda view: "",
) -> Response:
    """The views as the query wants them, in the form that `shape` gives them: all, or one page as an object.

    Only what is shown is given its form, and what has to be looked at to sort it. Raises Problem.
    """
    total = len(views)
    name = query.get("name", "")
    if name:
        views = _named(views, name, name_of, is_pattern=query.get("use_regex") == "true")
    sort = query.get("sort")
    if sort:
        views = await _sorted(views, shape, sort, is_reverse=query.get("sort_reverse") == "true")
    if "page" in query:
        return answer(_page(views, total, shape, query))
    return answer_in_parts(views, lambda view: with_columns(shape(view), query))


async def _sorted(
    views: Sequence[V], shape: Callable[[V], dict[str, Any]], path: str, *, is_reverse: bool
) -> list[V]:
    """The views by what stands at `path` of their form; sorted a part at a time, then merged in steps."""
    runs: list[list[tuple[_Order, V]]] = []
    async for part in in_steps(views):
        run = [(_order(value_of(shape(view), path)), view) for view in part]
        run.sort(key=itemgetter(0), reverse=is_reverse)
        runs.append(run)
    merged = merge(*runs, key=itemgetter(0), reverse=is_reverse)
    found: list[V] = []
    while step := list(islice(merged, limits.MERGED_VIEWS_PER_STEP)):
        found += [view for _, view in step]
        await asyncio.sleep(0)
    return found


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


def _page(
    views: Sequence[V], total: int, shape: Callable[[V], dict[str, Any]], query: QueryParams
) -> dict[str, Any]:
    page = _number(query, "page", 1, 1)
    size = _number(query, "page_size", 100, limits.RABBITMQ_PAGE_ITEMS_MAX)
    page_count = max(1, -(-len(views) // size))
    if page > page_count:
        reason = f"Page out of range, page: {page} page size: {size}, len: {len(views)}"
        raise Problem(400, "page_out_of_range", reason)
    shown = views[(page - 1) * size : page * size]
    return {
        "filtered_count": len(views),
        "item_count": len(shown),
        "items": [with_columns(shape(view), query) for view in shown],
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


def _named(views: Sequence[V], name: str, name_of: Callable[[V], str], *, is_pattern: bool) -> Sequence[V]:
    if not is_pattern:
        return [view for view in views if name in name_of(view)]
    pattern = _pattern(name)
    return [view for view in views if pattern.search(name_of(view))]


def _pattern(text: str) -> Any:
    """A user's pattern, by RE2: it takes a time that grows with the name, whatever the pattern is. Raises
    Problem.
    """
    if len(text) > limits.RABBITMQ_PATTERN_CHARACTERS_MAX:
        most = limits.RABBITMQ_PATTERN_CHARACTERS_MAX
        raise Problem(400, "bad_request", f"name: a pattern has at most {most} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = limits.RABBITMQ_PATTERN_MEMORY_BYTES_MAX
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise Problem(400, "bad_request", f"name: {error.args[0].decode()}") from None


def _order(value: Any) -> _Order:
    if isinstance(value, int | float):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, str(value))
