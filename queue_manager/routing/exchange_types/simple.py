"""Exchange types that look at the routing key at most: direct (3.1.3.1), fanout (3.1.3.2), and those where
each message goes to one of the bindings: any (random), or the one its key stands for (modulus hash).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from queue_manager.errors import InvalidArgument
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers, Matcher

_MULTIPLIER: Final = 6_364_136_223_846_793_005  # of Knuth's linear congruential generator
_INCREMENT: Final = 1_442_695_040_888_963_407
_MASK: Final = (1 << 64) - 1


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


class RandomMatcher(Matcher):
    """The core has no source of chance: the numbers are a sequence that looks random."""

    varies = True

    def __init__(self) -> None:
        self._bindings: list[Binding] = []
        self._state = 0

    def add(self, binding: Binding) -> None:
        self._bindings.append(binding)

    def remove(self, binding: Binding) -> None:
        self._bindings.remove(binding)

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        if not self._bindings:
            return ()
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self._bindings[(self._state >> 33) % len(self._bindings)],)


class LocalRandomMatcher(RandomMatcher):
    """As random; with one node every queue is local. Bindings have no routing key, as in RabbitMQ."""

    def check(self, key: str, arguments: Headers) -> None:
        if key:
            raise InvalidArgument(f"Non empty binding '{key}' key not permitted")


class ModulusHashMatcher(Matcher):
    """Messages with one routing key go to one binding, whatever the keys of the bindings are.

    Which one: the hash of the key, modulo how many bindings there are, in order of what they lead to. So a
    start, or the same bindings made in another order, changes nothing.
    """

    def __init__(self) -> None:
        self._bindings: list[Binding] = []

    def add(self, binding: Binding) -> None:
        self._bindings.append(binding)
        self._bindings.sort(key=_order)

    def remove(self, binding: Binding) -> None:
        self._bindings.remove(binding)

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        if not self._bindings:
            return ()
        number = int.from_bytes(blake2b(keys[0].encode(), digest_size=8).digest(), "big")
        return (self._bindings[number % len(self._bindings)],)


def _order(binding: Binding) -> tuple[object, ...]:
    return tuple(binding.identity)
