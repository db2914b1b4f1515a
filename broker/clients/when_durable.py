"""Telling clients when what was done is durable."""

from __future__ import annotations

from collections.abc import Callable


class WhenDurable:
    """Calls with the tokens that became durable. Implements `queue_manager.shard.commit.Waiter`."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[list[int]], None]) -> None:
        self._call = call

    def committed(self, tokens: list[int]) -> None:
        self._call(tokens)
