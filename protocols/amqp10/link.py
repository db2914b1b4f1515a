"""One link, as the broker sees it (AMQP 1.0, 2.6)."""

from __future__ import annotations

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


class Link:
    """A link.

    `client_sends` tells the direction. `credit` is what is left: for a link that the client sends on, of what
    the broker gave; for one that it receives on, of what the broker may send. `delivery_count` never wraps
    here, as it does on the wire.
    """

    __slots__ = (
        "_totals",
        "attach",
        "channel",
        "client_sends",
        "credit",
        "credit_end",
        "delivery_count",
        "drain",
        "encoder",
        "first_transfer",
        "handle",
        "max_message_size",
        "name",
        "part_bytes",
        "parts",
        "rcv_settle_mode",
        "snd_settle_mode",
        "state",
    )

    def __init__(self, channel: int, attach: Attach, max_message_size: int, totals: LinkTotals) -> None:
        totals.link_count += 1
        self._totals = totals
        self.channel = channel
        self.handle = int(attach.handle)
        self.name = attach.name
        self.attach = attach
        self.client_sends = attach.role is c.SENDER
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.max_message_size = max_message_size
        self.state = ATTACHING
        self.credit = 0
        self.delivery_count = (attach.initial_delivery_count or 0) if self.client_sends else 0
        self.credit_end = self.delivery_count  # the highest count that the client was ever allowed to reach
        self.drain = False
        # a delivery that has come in part
        self.first_transfer: Any = None
        self.parts: list[bytes] = []
        self.part_bytes = 0
        self.encoder: Any = None  # of deliveries

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
