"""Fanout exchanges: every binding takes every message (3.1.3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers, Matcher


class FanoutMatcher(Matcher):
    """Gives all bindings."""

    def __init__(self) -> None:
        self._bindings: dict[Binding, None] = {}

    def add(self, binding: Binding) -> None:
        self._bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        del self._bindings[binding]

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        return self._bindings
