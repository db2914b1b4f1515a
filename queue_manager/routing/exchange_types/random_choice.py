"""Random exchanges: each message goes to one of the bindings, whatever its routing key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers, Matcher

_MULTIPLIER: Final = 6_364_136_223_846_793_005  # of Knuth's linear congruential generator
_INCREMENT: Final = 1_442_695_040_888_963_407
_MASK: Final = (1 << 64) - 1


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
