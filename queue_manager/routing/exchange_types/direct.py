"""Direct exchanges: the routing key is the binding's (3.1.3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers, Matcher


class DirectMatcher(Matcher):
    """Finds bindings by their key."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding, None]] = {}

    def add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, {})[binding] = None

    def remove(self, binding: Binding) -> None:
        bindings = self._by_key[binding.key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.key]

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        return [binding for key in keys for binding in self._by_key.get(key, ())]
