"""The checks of the queue manager for `queues[].groups` of a configuration file, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from queue_manager import patterns
from queue_manager.errors import QueueManagerError
from queue_manager.filters import FilterError, parse_selector
from queue_manager.group.group_start import read_start

Problem = tuple[tuple[str | int, ...], str]
"""Where in the entry, and what is wrong."""


def problems_of(entry: Mapping[str, Any]) -> Iterator[Problem]:
    """Return the problems of the groups of an entry of `queues:`, whose values may still be of any type (what
    the settings themselves refuse is left to them).
    """
    priorities = entry.get("max_priority")
    has_priorities = isinstance(priorities, int) and priorities > 0
    for position, group in enumerate(entry.get("groups") or ()):
        checks: dict[str, Callable[[Any], str]] = {
            "pattern": _pattern_problem,
            "selector": _selector_problem,
            "start": _priorities_start_problem if has_priorities else _start_problem,
        }
        for key, check in checks.items():
            value = group.get(key)
            if isinstance(value, str | int) and (problem := check(value)):
                yield ("groups", position, key), problem


def _pattern_problem(value: str | int) -> str:
    try:
        patterns.validate(str(value))
    except QueueManagerError as error:
        return error.reason
    return ""


def _selector_problem(value: str | int) -> str:
    try:
        parse_selector(str(value))
    except FilterError as error:
        return error.reason.removeprefix("selector, ")
    return ""


def _start_problem(value: str | int) -> str:
    try:
        read_start("it", value)
    except QueueManagerError as error:
        return error.reason
    return ""


def _priorities_start_problem(value: str | int) -> str:
    problem = _start_problem(value)
    if not problem and read_start("it", value).is_place:
        return "a queue with priorities has offsets of each: begin at earliest, latest or a time"
    return problem
