"""What the queue manager wants read from the store; the driver reads it and brings it back.

The manager never waits: it puts requests on `QueueManager.loads`, whoever drives it performs them and
calls `QueueManager.log_loaded` or `QueueManager.payloads_loaded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.model import Message

if TYPE_CHECKING:
    from queue_manager.group import Group


class LogLoad:
    """Read the queue's metadata log from `sequence` on: messages from `offset`, with their payloads."""

    __slots__ = ("group", "offset", "sequence")

    def __init__(self, group: Group, sequence: int, offset: int) -> None:
        self.group = group
        self.sequence = sequence
        self.offset = offset


class PayloadLoad:
    """Read the payloads of `messages`, whose envelopes are in memory."""

    __slots__ = ("group", "messages")

    def __init__(self, group: Group, messages: list[Message]) -> None:
        self.group = group
        self.messages = messages
