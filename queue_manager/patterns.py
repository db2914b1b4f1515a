"""Topic filters by MQTT rules: `+` is one level, `#` is the parent level and everything below."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.errors import InvalidAddress

MATCH_ALL = "#"


def validate(pattern: str) -> str:
    """Give the pattern back if it is a legal topic filter, else raise InvalidAddress."""
    levels = pattern.split("/")
    for index, level in enumerate(levels):
        if level == "#":
            if index != len(levels) - 1:
                raise InvalidAddress(f"'#' must be the last level of {pattern!r}")
        elif "#" in level or (level != "+" and "+" in level):
            raise InvalidAddress(f"a wildcard must be a whole level of {pattern!r}")
    if "\0" in pattern:
        raise InvalidAddress("a pattern contains NUL")
    return pattern


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a predicate on topics for a validated pattern."""
    if pattern == MATCH_ALL:
        return lambda topic: True
    if "+" not in pattern:
        if not pattern.endswith("/#"):
            return pattern.__eq__
        root = pattern[:-2]
        below = root + "/"
        return lambda topic: topic == root or topic.startswith(below)
    levels = pattern.split("/")
    open_ended = levels[-1] == "#"
    if open_ended:
        levels.pop()
    count = len(levels)
    fixed = [(index, level) for index, level in enumerate(levels) if level != "+"]

    def matches(topic: str) -> bool:
        parts = topic.split("/") if topic else []  # an empty routing key has no level for `+`
        if len(parts) != count and not (open_ended and len(parts) > count):
            return False
        return all(parts[index] == level for index, level in fixed)

    return matches
