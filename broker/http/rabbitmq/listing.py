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
from broker.stepping import in_steps
from config import limits

V = TypeVar("V")
_Order = tuple[int, float, str]


async def listing(
    views: Sequence[V],
    shape: Callable[[V], dict[str, Any]],
    query: QueryParams,
    name_of: Callable[[V], str] = lambda view: "",
) -> Response:
    """Return the views as the query wants them, in the form that `shape` gives them: all, or one page as an
    object.

    Only what is shown is given its form, and what has to be looked at to sort it. Raises Problem.
    """
    total = len(views)
    columns = columns_of(query)
    name = query.get("name", "")
    if name:
        views = await _named(views, name, name_of, is_pattern=query.get("use_regex") == "true")
    sort = query.get("sort")
    if sort:
        views = await _sorted(views, shape, sort, is_reverse=query.get("sort_reverse") == "true")
    if "page" in query:
        return answer(_page(views, total, lambda view: with_columns(shape(view), columns), query))
    return answer_in_parts(views, lambda view: with_columns(shape(view), columns))


async def _sorted(
    views: Sequence[V], shape: Callable[[V], dict[str, Any]], path: str, *, is_reverse: bool
) -> list[V]:
    """Sort the views by what stands at `path` of their form; a part at a time, then merged in steps."""
    parts = _parts(path, "sort")
    runs: list[list[tuple[_Order, V]]] = []
    async for part in in_steps(views):
        run = [(_order(value_of(shape(view), parts)), view) for view in part]
        run.sort(key=itemgetter(0), reverse=is_reverse)
        runs.append(run)
    merged = merge(*runs, key=itemgetter(0), reverse=is_reverse)
    found: list[V] = []
    while step := list(islice(merged, limits.MERGED_VIEWS_PER_STEP)):
        found += [view for _, view in step]
        await asyncio.sleep(0)
    return found


Path = list[str]
"""`a.b`: what has the name `b` in the object `a`."""


def columns_of(query: QueryParams) -> list[Path]:
    """Return the wanted columns; none: all. Raises Problem."""
    wanted = query.get("columns")
    if not wanted:
        return []
    most = limits.RABBITMQ_COLUMNS_MAX
    paths = wanted.split(",", most)
    if len(paths) > most:
        raise Problem(400, "bad_request", f"columns: at most {most}")
    return [_parts(path, "columns") for path in paths]


def _parts(path: str, what: str) -> Path:
    most = limits.RABBITMQ_COLUMN_LEVELS_MAX
    parts = path.split(".", most)
    if len(parts) > most:
        raise Problem(400, "bad_request", f"{what}: at most {most} names, one in the other")
    return parts


def with_columns(item: dict[str, Any], columns: list[Path]) -> dict[str, Any]:
    """Return an item with the wanted columns only."""
    if not columns:
        return item
    found: dict[str, Any] = {}
    for path in columns:
        value = value_of(item, path)
        *parents, last = path
        if value is not None or (not parents and last in item):
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
    return found


def value_of(item: Mapping[str, Any], path: Path) -> Any:
    """Return what stands there in an object, None if nothing does."""
    value: Any = item
    for part in path:
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
        "items": [shape(view) for view in shown],
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


async def _named(
    views: Sequence[V], name: str, name_of: Callable[[V], str], *, is_pattern: bool
) -> Sequence[V]:
    pattern = _pattern(name) if is_pattern else None
    found: list[V] = []
    async for step in in_steps(views, limits.LISTED_NAMES_PER_STEP):
        if pattern is None:
            found += [view for view in step if name in name_of(view)]
        else:
            found += [view for view in step if pattern.search(name_of(view))]
    return found


def _pattern(text: str) -> Any:
    """Compile a user's pattern, by RE2: it takes a time that grows with the name, whatever the pattern is.
    Raises Problem.
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
