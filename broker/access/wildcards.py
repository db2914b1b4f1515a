"""Wildcards, as the scopes of tokens name things: `*` is any text, `%2F` a slash."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from broker.access.key_cover import KeyCover, TooHard
from config import limits

_CODED: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.DOTALL)


class Wildcards:
    """Some patterns with wildcards, of which one is enough; each is for a whole name. What is coded wrongly
    covers nothing.
    """

    __slots__ = ("_cover", "_parts", "covers_all")

    def __init__(self, patterns: Iterable[str]) -> None:
        read = (_parts_of(pattern) for pattern in patterns)
        self._parts = [parts for parts in read if parts is not None]
        self.covers_all = any(len(parts) > 1 and not any(parts) for parts in self._parts)
        self._cover: KeyCover | None = None  # made when it is first needed

    def covers(self, name: str) -> bool:
        """Return whether one of the patterns is for this name."""
        return self.covers_all or any(_fits(parts, name) for parts in self._parts)

    def covers_keys(self, binding_key: str) -> bool:
        """Return whether the patterns are for every routing key that a topic binding (`*`, `#`) matches."""
        if self.covers_all:
            return True
        words = binding_key.split(".")
        if "*" not in words and "#" not in words:
            return self.covers(binding_key)
        if "\n" in binding_key or not self._parts:
            return False
        try:
            if self._cover is None:
                each = (".*".join(map(re.escape, parts)) for parts in self._parts)
                self._cover = KeyCover(f"^(?:{'|'.join(each)})$")
            return self._cover.uncovered(binding_key) is None
        except (TooHard, RecursionError):
            return False


@lru_cache(maxsize=limits.ACCESS_PATTERNS_KEPT_MAX)
def wildcards(patterns: tuple[str, ...]) -> Wildcards:
    """Make `Wildcards`; those that were made are kept."""
    return Wildcards(patterns)


def _parts_of(pattern: str) -> list[str] | None:
    """Return the texts between the wildcards; None: it is not coded as URLs are."""
    parts = []
    for part in pattern.split("*"):
        if not _CODED.fullmatch(part):
            return None
        try:
            parts.append(unquote_to_bytes(part.replace("+", " ")).decode())
        except UnicodeDecodeError:
            return None
    return parts


def _fits(parts: list[str], name: str) -> bool:
    """Return whether the name is these texts with anything in between."""
    first, *others = parts
    if not others:
        return name == first
    *between, last = others
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in between:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
