"""LIKE patterns: `%` is any text, `_` is any one character; matching never backtracks.

A pattern is cut at its `%` into segments of fixed length. The first is anchored at the start of the value,
the last at its end, and each one between is taken where it is first found; that is enough, as a later place
would only leave less room for the next. Time is linear in the value (a segment with `_` costs one step of
as many bits as it has characters for each character of the value).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

EXACT: Final = "exact"
PREFIX: Final = "prefix"
SUFFIX: Final = "suffix"
CONTAINS: Final = "contains"
GENERAL: Final = "general"

Symbols: TypeAlias = tuple[str | None, ...]  # characters, None for `_`


def split(pattern: str, escape: str | None) -> list[Symbols]:
    """Return the segments between the `%` of a pattern; raises ValueError when it ends in its escape
    character.
    """
    segments: list[Symbols] = []
    symbols: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise ValueError("the pattern ends in its escape character")
            symbols.append(following)
        elif character == "%":
            segments.append(tuple(symbols))
            symbols = []
        else:
            symbols.append(None if character == "_" else character)
    segments.append(tuple(symbols))
    return [segments[0], *filter(None, segments[1:-1]), *segments[1:][-1:]]


def classify(segments: list[Symbols]) -> tuple[str, str]:
    """Return the kind of test that the segments come to, and its text ("" for GENERAL)."""
    if any(None in segment for segment in segments):
        return GENERAL, ""
    texts = ["".join(filter(None, segment)) for segment in segments]
    match texts:
        case [text]:
            return EXACT, text
        case [text, ""]:
            return PREFIX, text
        case ["", text]:
            return SUFFIX, text
        case ["", text, ""]:
            return CONTAINS, text
    return GENERAL, ""


class Segment:
    """A stretch of characters and `_`. Finds itself in a value."""

    __slots__ = ("_accept", "_masks", "_runs", "_text", "_wild", "length")

    def __init__(self, symbols: Symbols) -> None:
        self.length = len(symbols)
        self._text = None if None in symbols else "".join(filter(None, symbols))
        self._runs = _literal_runs(symbols)
        # Shift-And: bit i of a character's mask says that the symbol at i takes it
        self._wild = sum(1 << index for index, symbol in enumerate(symbols) if symbol is None)
        self._masks: dict[str, int] = {}
        for index, symbol in enumerate(symbols):
            if symbol is not None:
                self._masks[symbol] = self._masks.get(symbol, self._wild) | 1 << index
        self._accept = 1 << self.length >> 1

    def is_at(self, value: str, start: int) -> bool:
        """Return whether it is found at `start`; the caller has seen that the value is long enough."""
        return all(value.startswith(text, start + offset) for offset, text in self._runs)

    def find(self, value: str, start: int, end: int) -> int:
        """Return the first place within [start, end) that holds all of it, or -1."""
        if self._text is not None:
            return value.find(self._text, start, end)
        masks = self._masks
        wild = self._wild
        accept = self._accept
        state = 0
        for index in range(start, end):
            state = (state << 1 | 1) & masks.get(value[index], wild)
            if state & accept:
                return index - self.length + 1
        return -1


def _literal_runs(symbols: Symbols) -> list[tuple[int, str]]:
    runs: list[tuple[int, str]] = []
    text = ""
    for index, symbol in enumerate((*symbols, None)):
        if symbol is not None:
            text += symbol
        elif text:
            runs.append((index - len(text), text))
            text = ""
    return runs


def matcher(segments: list[Symbols]) -> Callable[[str], bool]:
    """Return a test for any pattern; for the kinds that `classify` names there are quicker ones."""
    first = Segment(segments[0])
    if len(segments) == 1:
        return lambda value: len(value) == first.length and first.is_at(value, 0)
    between = [Segment(segment) for segment in segments[1:-1]]
    last = Segment(segments[-1])
    shortest = sum(map(len, segments))

    def matches(value: str) -> bool:
        if len(value) < shortest:
            return False
        end = len(value) - last.length
        if not (first.is_at(value, 0) and last.is_at(value, end)):
            return False
        start = first.length
        for segment in between:
            start = segment.find(value, start, end)
            if start < 0:
                return False
            start += segment.length
        return True

    return matches
