"""A binding: what an exchange passes on to a queue, or to another exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from storage.records import TO_EXCHANGE, BindingKey, binding_digest


class Destination(Protocol):
    """Where a binding leads: a queue or an exchange."""

    name: str
    durable: bool


class Binding:
    """From an exchange, by its name, to a destination. `identity` is what tells it from others."""

    __slots__ = ("arguments", "destination", "identity", "is_durable", "key", "source")

    def __init__(
        self,
        source: str,
        destination: Destination,
        kind: int,
        key: str,
        arguments: Mapping[str, object],
        *,
        is_durable: bool,
    ) -> None:
        """`kind` is `TO_QUEUE` or `TO_EXCHANGE`. Raises ValueError for arguments that cannot be stored."""
        self.source = source
        self.destination = destination
        self.key = key
        self.arguments = arguments
        self.is_durable = is_durable
        self.identity = BindingKey(source, kind, destination.name, key, binding_digest(arguments))

    @property
    def is_to_exchange(self) -> bool:
        """Whether the destination is an exchange."""
        return self.identity.kind == TO_EXCHANGE
