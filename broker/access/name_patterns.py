"""Patterns of names: RabbitMQ's regular expressions, and MQTT topic filters with `%c` and `%u`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from broker.access.key_cover import KeyCover, TooHard
from config import limits

_EVERYTHING: Final = frozenset((".*", "^.*$", "^.*", ".*$", "^"))


class NamePattern:
    """A regular expression, found anywhere in a name unless anchored; the empty one covers nothing."""

    __slots__ = ("_cover", "_regex", "covers_all")

    def __init__(self, text: str) -> None:
        """Compile the pattern. Raises ValueError, with the reason, for what is no regular expression."""
        if len(text) > limits.ACCESS_PATTERN_CHARACTERS_MAX:
            raise ValueError(f"a pattern has at most {limits.ACCESS_PATTERN_CHARACTERS_MAX} characters")
        self.covers_all = text in _EVERYTHING
        try:
            self._regex = re.compile(text) if text else None
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from None
        self._cover: KeyCover | None = None  # made when it is first needed

    def covers(self, name: str) -> bool:
        """Return whether the pattern is for this name."""
        if self.covers_all:
            return True
        # `$` would let a name through that only differs by a line feed at its end
        return self._regex is not None and "\n" not in name and self._regex.search(name) is not None

    def covers_keys(self, binding_key: str) -> bool:
        """Return whether the pattern is for every routing key that a topic binding (`*`, `#`) matches.

        An expression that looks around or back, or is too large, is never for a binding with wildcards.
        """
        if self.covers_all:
            return True
        words = binding_key.split(".")
        if "*" not in words and "#" not in words:
            return self.covers(binding_key)
        if self._regex is None or "\n" in binding_key:
            return False
        try:
            if self._cover is None:
                self._cover = KeyCover(self._regex.pattern)
            return self._cover.uncovered(binding_key) is None
        except (TooHard, RecursionError):
            return False


@lru_cache(maxsize=limits.ACCESS_PATTERNS_KEPT_MAX)
def name_pattern(text: str) -> NamePattern:
    """Make a `NamePattern`; those that were compiled are kept."""
    return NamePattern(text)


def expanded_filter(pattern: str, user: str, client_id: str) -> str | None:
    """Return an MQTT filter with `%u` and `%c` filled in; None where that cannot be.

    A user name or client identifier with a wildcard or a level separator would widen the rule.
    """
    for variable, value in (("%u", user), ("%c", client_id)):
        if variable in pattern:
            if not value or any(character in value for character in "+#/"):
                return None
            pattern = pattern.replace(variable, value)
    return pattern


def filter_covers(rule: str, wanted: str) -> bool:
    """Return whether every topic that the filter (or topic) `wanted` matches is matched by the filter
    `rule`.
    """
    rules, levels = rule.split("/"), wanted.split("/")
    if rules[0] in ("+", "#") and levels[0].startswith("$"):
        return False  # a leading wildcard is not for topics that begin with $ [MQTT-4.7.2-1]
    for index, level in enumerate(rules):
        if level == "#":
            return True
        if index >= len(levels) or levels[index] == "#":
            return False
        if level != "+" and level != levels[index]:
            return False
    return len(levels) == len(rules)
