"""Consistent-hash exchanges: each message goes to one binding, alike ones to the same.

Bindings have a weight, which is their routing key. Weighted rendezvous hashing: for each binding a score from
the hash of message and binding; the highest takes the message. So the choice depends on the set of bindings
alone, and a change of them moves no more messages than it must.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import log
from typing import Final

from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import PROPERTY_KEYS, Headers, Matcher
from storage.typed_values import encode_value

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"

_MASK: Final = (1 << 64) - 1


class ConsistentHashMatcher(Matcher):
    """By the routing key, or by a header or a property of the message."""

    def __init__(self, arguments: Headers) -> None:
        """Take the arguments. Raises InvalidArgument for what messages cannot be hashed by."""
        header = arguments.get(HASH_HEADER, "")
        if not isinstance(header, str):
            raise InvalidArgument(f"{HASH_HEADER} must be the name of a header, not {header!r}")
        if HASH_PROPERTY in arguments:
            if header:
                raise InvalidArgument(f"{HASH_HEADER} and {HASH_PROPERTY} are mutually exclusive")
            hashed = arguments[HASH_PROPERTY]
            if not isinstance(hashed, str) or hashed not in PROPERTY_KEYS:
                raise InvalidArgument(f"Unsupported property: {hashed}")
            header = PROPERTY_KEYS[hashed]
        self._header = header
        self.reads_headers = bool(header)
        self._weights: dict[Binding, tuple[int, int]] = {}  # seed, weight

    def check(self, key: str, arguments: Headers) -> None:
        if not (key.isascii() and key.isdigit()):
            raise InvalidArgument(f'The binding key must be an integer: <<"{key}">>')
        if not 1 <= int(key) <= limits.HASH_WEIGHT_MAX:
            raise InvalidArgument(
                f"The binding key must be an integer from 1 to {limits.HASH_WEIGHT_MAX}: it is a weight"
            )

    def add(self, binding: Binding) -> None:
        self._weights[binding] = _number_of(repr(binding.identity).encode()), int(binding.key)

    def remove(self, binding: Binding) -> None:
        del self._weights[binding]

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        if not self._weights:
            return ()
        if self._header:
            try:
                value = headers[self._header]
            except KeyError:
                value = None
            number = _number_of(_bytes_of(value))
        else:
            number = _number_of(keys[0].encode())
        return (max(self._weights, key=lambda binding: _score(number, *self._weights[binding])),)


def _bytes_of(value: object) -> bytes:
    try:
        return encode_value(value)
    except ValueError:  # an integer of more than 64 bits
        return repr(value).encode()


def _number_of(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def _score(number: int, seed: int, weight: int) -> float:
    """Return a number that is greatest, among bindings, with a probability in proportion to the weight."""
    return -weight / log((_mix(number ^ seed) + 1) / (_MASK + 2))


def _mix(number: int) -> int:
    """Return a hash of 64 bits (the finalizer of splitmix64)."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31
