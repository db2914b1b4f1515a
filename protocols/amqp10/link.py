"""One link, as the broker sees it (AMQP 1.0, 2.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10.performatives import Attach

ATTACHING: Final = 0  # the client has attached, the front-end has not answered
ATTACHED: Final = 1
DETACHING: Final = 2  # detached by the broker: what the client sends until it answers is discarded
DETACHED: Final = 3


class LinkTotals:
    """What all links of a connection have together. `unfinished_bytes` is the memory of deliveries that have
    come in part.
    """

    __slots__ = ("link_count", "unfinished_bytes")

    def __init__(self) -> None:
        self.link_count = 0
        self.unfinished_bytes = 0


@dataclass(eq=False, repr=False, slots=True)
class Link:
    """A link.

    `client_sends` tells the direction. `credit` is what is left: for a link that the client sends on, of what
    the broker gave; for one that it receives on, of what the broker may send. `delivery_count` never wraps
    here, as it does on the wire.
    """

    channel: int
    attach: Attach
    max_message_size: int
    _totals: LinkTotals
    handle: int = field(init=False)
    name: str = field(init=False)
    client_sends: bool = field(init=False)
    snd_settle_mode: int = field(init=False)
    rcv_settle_mode: int = field(init=False)
    state: int = field(default=ATTACHING, init=False)
    credit: int = field(default=0, init=False)
    delivery_count: int = field(init=False)
    credit_end: int = field(init=False)
    drain: bool = field(default=False, init=False)
    # a delivery that has come in part
    first_transfer: Any = field(default=None, init=False)
    parts: list[bytes] = field(default_factory=list, init=False)
    part_bytes: int = field(default=0, init=False)
    encoder: Any = field(default=None, init=False)  # of deliveries

    def __post_init__(self) -> None:
        self._totals.link_count += 1
        self.handle = int(self.attach.handle)
        self.name = self.attach.name
        self.client_sends = self.attach.role is c.SENDER
        self.snd_settle_mode = self.attach.snd_settle_mode
        self.rcv_settle_mode = self.attach.rcv_settle_mode
        self.delivery_count = (self.attach.initial_delivery_count or 0) if self.client_sends else 0
        self.credit_end = self.delivery_count  # the highest count that the client was ever allowed to reach

    @property
    def is_attached(self) -> bool:
        """Whether both sides have attached it, and none has detached it."""
        return self.state == ATTACHED

    def add_part(self, payload: bytes) -> None:
        """Take a part of a delivery."""
        if payload:
            self.parts.append(payload)
            self.part_bytes += len(payload)
            self._totals.unfinished_bytes += len(payload) + limits.AMQP10_PART_BYTES

    def leave(self) -> None:
        """Be detached, by both sides or with the session."""
        self.state = DETACHED
        self.forget_parts()
        self._totals.link_count -= 1

    def forget_parts(self) -> None:
        """Forget the delivery that has come in part."""
        self._totals.unfinished_bytes -= self.part_bytes + len(self.parts) * limits.AMQP10_PART_BYTES
        self.first_transfer = None
        self.parts = []
        self.part_bytes = 0
