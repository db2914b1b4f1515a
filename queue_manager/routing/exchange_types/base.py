"""The base of the exchange types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from queue_manager.routing.binding import Binding

Headers = Mapping[str, object]
"""The values that exchanges route by: a message's headers, and its properties under `PROPERTY_KEYS`.
These are looked up by `[]` alone, which may raise KeyError: they are worked out when somebody asks.
"""
NO_HEADERS: Final[Headers] = {}
PROPERTY_KEYS: Final = {name: f"\0{name}" for name in ("message_id", "correlation_id", "timestamp")}
"""Keys that stand for properties, which no header should be called."""


class Matcher:
    """The bindings of one exchange, and which of them take a message.

    `reads_headers`: what `match` gives depends on the headers. `varies`: it may differ for messages alike.
    """

    reads_headers = False
    varies = False

    def check(self, key: str, arguments: Headers) -> None:
        """Raise InvalidArgument if nothing can be bound so; by itself an exchange takes every binding."""

    def add(self, binding: Binding) -> None:
        """Take in a binding that passed `check` and is not there."""

    def remove(self, binding: Binding) -> None:
        """Let go of a binding that was added."""

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        """Return the bindings that take a message with these routing keys (one, and what CC and BCC add); one
        may come more than once.
        """
        raise NotImplementedError
