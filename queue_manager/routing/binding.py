"""A binding: what an exchange passes on to a queue, or to another exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Protocol

from storage.records import TO_EXCHANGE, BindingKey, binding_digest


class Destination(Protocol):
    """Where a binding leads: a queue or an exchange."""

    name: str
    durable: bool


@dataclass(eq=False, repr=False, slots=True)
class Binding:
    """From an exchange, by its name, to a destination. `identity` is what tells it from others.

    `kind` is `TO_QUEUE` or `TO_EXCHANGE`; `user` made it, None: no user did. Raises ValueError for arguments
    that cannot be stored.
    """

    source: str
    destination: Destination
    kind: InitVar[int]
    key: str
    arguments: Mapping[str, object]
    _: KW_ONLY
    is_durable: bool
    user: str | None = None
    identity: BindingKey = field(init=False)

    def __post_init__(self, kind: int) -> None:
        self.identity = BindingKey(
            self.source, kind, self.destination.name, self.key, binding_digest(self.arguments)
        )

    @property
    def is_to_exchange(self) -> bool:
        """Whether the destination is an exchange."""
        return self.identity.kind == TO_EXCHANGE
