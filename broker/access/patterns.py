"""Patterns of names: RabbitMQ's regular expressions, and MQTT topic filters with `%c` and `%u`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from config import limits

_EVERYTHING: Final = frozenset((".*", "^.*$", "^.*", ".*$", "^"))
_LOOKS_AROUND: Final = re.compile(r"\(\?(?:[=!]|<[=!])|\\[bB]")
_PROBES: Final = ("", "q", "0", "-", "Zk8vQw3nT5", "~!@%&", "\u00fc\u6f22", "a b", "x" * 200)
"""What is put in the place of a wildcard: a pattern has to cover a name whatever stands there."""


class NamePattern:
    """A regular expression, found anywhere in a name unless anchored; the empty one covers nothing."""

    __slots__ = ("_looks_around", "_regex", "covers_all")

    def __init__(self, text: str) -> None:
        """Raises ValueError, saying why, for what is no regular expression."""
        if len(text) > limits.ACCESS_PATTERN_CHARACTERS_MAX:
            raise ValueError(f"a pattern has at most {limits.ACCESS_PATTERN_CHARACTERS_MAX} characters")
        self.covers_all = text in _EVERYTHING
        try:
            self._regex = re.compile(text) if text else None
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from None
        self._looks_around = _LOOKS_AROUND.search(text) is not None

    def covers(self, name: str) -> bool:
        """Whether the pattern is for this name."""
        if self.covers_all:
            return True
        # `$` would let a name through that only differs by a line feed at its end
        return self._regex is not None and "\n" not in name and self._regex.search(name) is not None

    def covers_keys(self, binding_key: str) -> bool:
        """Whether the pattern is for every routing key that a topic binding (`*`, `#`) matches.

        That is tried with words of all kinds, so an expression that looks around is never for a binding with
        wildcards.
        """
        if self.covers_all:
            return True
        words = binding_key.split(".")
        if "*" not in words and "#" not in words:
            return self.covers(binding_key)
        if self._looks_around or not self.covers(binding_key):
            return False
        return all(self.covers(_filled(words, probe)) for probe in _PROBES)


def _filled(words: list[str], probe: str) -> str:
    """A routing key that the binding matches; an empty probe takes the `#` away."""
    filled = [probe if word in ("*", "#") else word for word in words if probe or word != "#"]
    return ".".join(filled)


@lru_cache(maxsize=limits.ACCESS_PATTERNS_KEPT_MAX)
def name_pattern(text: str) -> NamePattern:
    """As `NamePattern`; those that were compiled are kept."""
    return NamePattern(text)


def expanded_filter(pattern: str, user: str, client_id: str) -> str | None:
    """An MQTT filter with `%u` and `%c` filled in; None where that cannot be.

    A user name or client identifier with a wildcard or a level separator would widen the rule.
    """
    for variable, value in (("%u", user), ("%c", client_id)):
        if variable in pattern:
            if not value or any(character in value for character in "+#/"):
                return None
            pattern = pattern.replace(variable, value)
    return pattern


def filter_covers(rule: str, wanted: str) -> bool:
    """Whether every topic that the filter (or topic) `wanted` matches is matched by the filter `rule`."""
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
