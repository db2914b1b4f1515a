"""Whether a regular expression covers every routing key that a topic binding matches.

The expression and the binding are read as automata, and walked side by side: a key that the one matches and
the other does not is a path to a state where only the binding accepts.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from config import limits

_PYTHON_LAST: Final = (3, 14)
"""The parse of an expression is private to `re`, and no other reader of its syntax exists. Up to this
version it is as read here; of a later one nothing is assumed, and no expression covers wildcards."""
_is_known: bool = sys.version_info[:2] <= _PYTHON_LAST
_parser: Any = importlib.import_module("re._parser") if _is_known else None
_constants: Any = importlib.import_module("re._constants") if _is_known else None

_CHARACTERS: Final = "az AZ_09-\t~!@%&\x01\u00e9\u00df\u01c5\u0130\u0663\u2003\u20ac\u6f22\U0001f600"
"""Some of every kind that a class of characters may tell apart."""
_IN_WORD: Final = None
"""On an edge of a binding: any character but the one between words."""
_LINE_FEED: Final = "\n"

_Predicate = Callable[[str], bool]
_At = Any
"""Where an edge without a character may be taken: `AT_BEGINNING`, `AT_END`; None: anywhere."""


class TooHard(Exception):
    """The expression looks around or back, or takes too many steps: what it covers is not worked out."""


class KeyCover:
    """The topic bindings that a regular expression, found anywhere in a key unless anchored, covers. Keys
    with line feeds are left out: none is told by a pattern.
    """

    __slots__ = ("_bare", "_classes", "_edges", "_end", "_predicates")

    def __init__(self, text: str) -> None:
        """Compile the pattern. Raises TooHard, also where this Python's `re` is not known."""
        if _parser is None:
            raise TooHard
        self._bare: list[list[tuple[_At, int]]] = [[]]
        self._edges: list[list[tuple[_Predicate, int]]] = [[]]
        self._predicates: list[tuple[_Predicate, set[str]]] = []
        parsed = _parser.parse(text)
        self._end = self._sequence(parsed, parsed.state.flags, 0)
        self._classes = self._one_of_each_class()

    def uncovered(self, binding_key: str) -> str | None:
        """Return a key that the binding matches and the expression does not, None: it covers all of them.
        Raises TooHard.
        """
        bare, edges, last = _binding(binding_key.split("."))
        closures: dict[tuple[frozenset[int], bool, bool], frozenset[int]] = {}

        def closed(states: frozenset[int], *, begins: bool, ends: bool) -> frozenset[int]:
            key = (states, begins, ends)
            found = closures.get(key)
            if found is None:
                found = closures[key] = self._closed(states, begins=begins, ends=ends)
            return found

        waiting = [(0, frozenset((0,)), "")]
        seen = {waiting[0][:2]}
        step_count = 0
        while waiting:
            place, states, key = waiting.pop()
            here = closed(states, begins=not key, ends=False)
            if self._end in here:
                continue  # found, whatever follows
            places = _reached(bare, place)
            if last in places and self._end not in closed(states, begins=not key, ends=True):
                return key
            for character, following in ((each, to) for at in places for each, to in edges[at]):
                for one in self._classes if character is _IN_WORD else (character,):
                    step_count += len(here)
                    if step_count > limits.ACCESS_COVER_STEPS_MAX:
                        raise TooHard
                    then = frozenset(to for at in here for fits, to in self._edges[at] if fits(one)) | {0}
                    if (following, then) not in seen:
                        seen.add((following, then))
                        waiting.append((following, then, key + one))
        return None

    # the automaton of the expression, as Thompson makes it

    def _state(self) -> int:
        if len(self._bare) >= limits.ACCESS_COVER_STATES_MAX:
            raise TooHard
        self._bare.append([])
        self._edges.append([])
        return len(self._bare) - 1

    def _sequence(self, parsed: Iterable[tuple[Any, Any]], flags: int, state: int) -> int:
        """Read these one after the other from a state on; gives the state behind them."""
        for operator, argument in parsed:
            state = self._item(operator, argument, flags, state)
        return state

    def _item(self, operator: Any, argument: Any, flags: int, state: int) -> int:
        c = _constants
        if operator is c.SUBPATTERN:
            _, added, taken, inner = argument
            return self._sequence(inner, (flags | added) & ~taken, state)
        if operator in (c.MAX_REPEAT, c.MIN_REPEAT):
            least, most, inner = argument
            return self._repeat(inner, least, most, flags, state)
        behind = self._state()
        if operator is c.BRANCH:
            for inner in argument[1]:
                begin = self._state()
                self._bare[state].append((None, begin))
                self._bare[self._sequence(inner, flags, begin)].append((None, behind))
        elif operator is c.AT:
            if argument not in (c.AT_BEGINNING, c.AT_BEGINNING_STRING, c.AT_END, c.AT_END_STRING):
                raise TooHard
            at_end = argument in (c.AT_END, c.AT_END_STRING)
            self._bare[state].append((c.AT_END if at_end else c.AT_BEGINNING, behind))
        else:
            self._edges[state].append((self._predicate(operator, argument, flags), behind))
        return behind

    def _repeat(self, inner: Any, least: int, most: Any, flags: int, state: int) -> int:
        for _ in range(least):
            state = self._sequence(inner, flags, state)
        if most is _constants.MAXREPEAT:
            begin, behind = self._state(), self._state()
            self._bare[state].append((None, begin))
            self._bare[begin].append((None, behind))
            self._bare[self._sequence(inner, flags, begin)].append((None, begin))
            return behind
        behind = self._state()
        for _ in range(most - least):
            self._bare[state].append((None, behind))
            state = self._sequence(inner, flags, state)
        self._bare[state].append((None, behind))
        return behind

    def _closed(self, states: frozenset[int], *, begins: bool, ends: bool) -> frozenset[int]:
        """Return these states and those reached from them without a character, at the beginning or end of a
        key, or not.
        """
        allowed = {None}
        allowed |= {_constants.AT_BEGINNING} if begins else set()
        allowed |= {_constants.AT_END} if ends else set()
        found = set(states)
        left = list(states)
        while left:
            for where, following in self._bare[left.pop()]:
                if where in allowed and following not in found:
                    found.add(following)
                    left.append(following)
        return frozenset(found)

    # characters

    def _predicate(self, operator: Any, argument: Any, flags: int) -> _Predicate:
        """Return which characters fit; raises TooHard for what is no single character."""
        c = _constants
        edges: set[str] = set()
        if operator is c.ANY:
            return self._noted(lambda one: True, edges)
        if operator in (c.LITERAL, c.NOT_LITERAL):
            entries, is_negated = [(c.LITERAL, argument)], operator is c.NOT_LITERAL
        elif operator is c.IN:
            is_negated = argument[0][0] is c.NEGATE
            entries = argument[1:] if is_negated else argument
        else:
            raise TooHard
        fits = [_entry(kind, value, flags, edges) for kind, value in entries]
        ignores_case = bool(flags & re.IGNORECASE)

        def is_in(one: str) -> bool:
            cases = {one, one.lower(), one.upper()} if ignores_case else (one,)
            return any(fit(each) for fit in fits for each in cases if len(each) == 1) != is_negated

        return self._noted(is_in, edges)

    def _noted(self, predicate: _Predicate, edges: set[str]) -> _Predicate:
        self._predicates.append((predicate, edges))
        return predicate

    def _one_of_each_class(self) -> list[str]:
        """Return characters of a word, one for each set of predicates that fit the same."""
        candidates = set(_CHARACTERS)
        for _, edges in self._predicates:
            candidates |= edges
        candidates |= {case for one in candidates for case in (one.lower(), one.upper()) if len(case) == 1}
        by_class: dict[tuple[bool, ...], str] = {}
        for one in sorted(candidates - {".", _LINE_FEED}):
            by_class.setdefault(tuple(fits(one) for fits, _ in self._predicates), one)
        return list(by_class.values())


def _entry(kind: Any, value: Any, flags: int, edges: set[str]) -> _Predicate:
    """Return the predicate of an entry of a class of characters: one, a range, or a category. `edges` takes
    what stands at its borders.
    """
    c = _constants
    if kind is c.CATEGORY:
        return _category(value, is_ascii=bool(flags & re.ASCII))
    first, last = value if kind is c.RANGE else (value, value)
    if kind not in (c.LITERAL, c.RANGE):
        raise TooHard
    borders = (first - 1, first, last, last + 1)
    edges.update(chr(each) for each in borders if 0 <= each < 0x110000 and not 0xD800 <= each < 0xE000)
    return lambda one: first <= ord(one) <= last


def _category(name: Any, *, is_ascii: bool) -> _Predicate:
    c = _constants
    kinds: dict[Any, _Predicate] = {
        c.CATEGORY_DIGIT: str.isdecimal,
        c.CATEGORY_SPACE: str.isspace,
        c.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
    }
    opposites = {
        c.CATEGORY_NOT_DIGIT: c.CATEGORY_DIGIT,
        c.CATEGORY_NOT_SPACE: c.CATEGORY_SPACE,
        c.CATEGORY_NOT_WORD: c.CATEGORY_WORD,
    }
    is_kind = kinds.get(opposites.get(name, name))
    if is_kind is None:
        raise TooHard
    is_negated = name in opposites
    return lambda one: (is_kind(one) and (one.isascii() or not is_ascii)) != is_negated


def _binding(words: list[str]) -> tuple[list[list[int]], list[list[tuple[str | None, int]]], int]:
    """Return the automaton of a topic binding: edges without and with a character, and its last state; 0
    begins.
    """
    bare: list[list[int]] = [[]]
    edges: list[list[tuple[str | None, int]]] = [[]]

    def state() -> int:
        bare.append([])
        edges.append([])
        return len(bare) - 1

    first, later = 0, state()  # before the first word of a key; behind another word
    for word in words:
        at = state()
        bare[first].append(at)
        edges[later].append((".", at))
        next_first, next_later = state(), state()
        if word in ("*", "#"):
            edges[at].append((_IN_WORD, at))
        else:
            for character in word:
                following = state()
                edges[at].append((character, following))
                at = following
        bare[at].append(next_later)
        if word == "#":
            bare[first].append(next_first)
            bare[later].append(next_later)
            edges[next_later].append((".", at))
        first, later = next_first, next_later
    last = state()
    bare[first].append(last)
    bare[later].append(last)
    return bare, edges, last


def _reached(bare: list[list[int]], place: int) -> set[int]:
    found = {place}
    left = [place]
    while left:
        for following in bare[left.pop()]:
            if following not in found:
                found.add(following)
                left.append(following)
    return found
