"""Telling clients when what was done is durable."""

from __future__ import annotations

from collections.abc import Callable

from broker.network.transport import Transport


class WhenDurable:
    """Calls with the tokens that became durable; what answers a client does so by its transport.

    Implements `queue_manager.shard.commit.Waiter`.
    """

    __slots__ = ("_call", "_transport")

    def __init__(self, call: Callable[[list[int]], None], transport: Transport | None = None) -> None:
        self._call = call
        self._transport = transport

    def committed(self, tokens: list[int]) -> None:
        transport = self._transport
        if transport is None:
            self._call(tokens)
        else:
            transport.guard(self._call, tokens)
            transport.want_answer()
