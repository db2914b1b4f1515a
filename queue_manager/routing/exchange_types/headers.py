"""Headers exchanges: the arguments of a binding are compared with the headers of a message (3.1.3.4).

`x-match` `all` (the default) wants every argument, `any` one of them; arguments that begin `x-` count only
for `all-with-x` and `any-with-x`. A binding with no value for a name wants only that the header is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from queue_manager.errors import InvalidArgument, NotText
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers, Matcher
from storage.encoding import encode_var_bytes
from storage.typed_values import TEXT, encode_value

MATCH: Final = "x-match"
ALL: Final = "all"
_MODES: Final = (ALL, "any", "all-with-x", "any-with-x")

_Condition = tuple[str, bytes]
"""A header's name, and its value in the one form that equal values have; b"" for any value."""


def _form(value: object) -> bytes:
    """Return the form of a value: text and bytes are equal, so are a time and its seconds, as with RabbitMQ.

    Raises ValueError for what no binding can have.
    """
    if isinstance(value, (bytes, bytearray)):
        return bytes((TEXT,)) + encode_var_bytes(bytes(value))
    if isinstance(value, datetime):
        return encode_value(int(value.timestamp()))
    return encode_value(value)


class _Wanted:
    """The condition of one binding."""

    __slots__ = ("conditions", "wants_all")

    def __init__(self, arguments: Headers) -> None:
        mode = str(arguments.get(MATCH, ALL))
        with_x = mode.endswith("-with-x")
        self.wants_all = mode.startswith(ALL)
        self.conditions: list[_Condition] = [
            (name, b"" if value is None else _form(value))
            for name, value in arguments.items()
            if name != MATCH and (with_x or not name.startswith("x-"))
        ]


class HeadersMatcher(Matcher):
    """Compares the arguments of bindings with headers.

    A binding is listed under one of its conditions if it wants all of them, under each if it wants any: a
    message costs by its headers, not by the number of bindings.
    """

    reads_headers = True

    def __init__(self) -> None:
        self._wanted: dict[Binding, _Wanted] = {}
        self._listed: dict[_Condition, dict[Binding, None]] = {}
        self._unconditional: dict[Binding, None] = {}

    def check(self, key: str, arguments: Headers) -> None:
        mode = arguments.get(MATCH, ALL)
        if not isinstance(mode, str):
            raise NotText(MATCH, "", mode)
        if mode not in _MODES:
            raise InvalidArgument(
                f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x'
            )

    def add(self, binding: Binding) -> None:
        wanted = self._wanted[binding] = _Wanted(binding.arguments)
        for bindings in self._lists_of(wanted):
            bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        wanted = self._wanted.pop(binding)
        for bindings in self._lists_of(wanted):
            del bindings[binding]
        for condition in wanted.conditions:
            if not self._listed.get(condition, True):
                del self._listed[condition]

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        given = _conditions_met(headers)
        found = dict(self._unconditional)
        for condition in given:
            for binding in self._listed.get(condition, ()):
                wanted = self._wanted[binding]
                if not wanted.wants_all or given.issuperset(wanted.conditions):
                    found[binding] = None
        return found

    def _lists_of(self, wanted: _Wanted) -> list[dict[Binding, None]]:
        """Return where a binding is listed; nowhere if it wants any of nothing."""
        if not wanted.wants_all:
            return [self._listed.setdefault(condition, {}) for condition in wanted.conditions]
        if not wanted.conditions:
            return [self._unconditional]
        # values tell messages apart better than names do
        chosen = next((pair for pair in wanted.conditions if pair[1]), wanted.conditions[0])
        return [self._listed.setdefault(chosen, {})]


def _conditions_met(headers: Mapping[str, object]) -> set[_Condition]:
    met: set[_Condition] = {(name, b"") for name in headers}
    for name, value in headers.items():
        try:
            met.add((name, _form(value)))
        except ValueError:
            continue  # no binding can have such a value
    return met
