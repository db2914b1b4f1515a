"""Answering a client when what it asked for is durable."""

from __future__ import annotations

from collections.abc import Callable

from broker.network.transport import Transport


class DurableCall:
    """Calls what answers a client, when what was done so far is durable.

    Implements `queue_manager.shard.commit.Waiter`.
    """

    __slots__ = ("_call", "_transport")

    def __init__(self, transport: Transport, call: Callable[[], None]) -> None:
        self._transport = transport
        self._call = call

    def committed(self, tokens: list[int]) -> None:
        self._transport.guard(self._call)
        self._transport.want_flush()
