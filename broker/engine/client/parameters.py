"""The records of parameters in a shard of this process."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.shard import Shard
from queue_manager.api import ParameterKey


class ParameterRecords:
    """What is kept of parameters, each as JSON; durable with the open commit."""

    def __init__(self, shard: Shard) -> None:
        self._parameters = shard.manager.parameters
        self._shard = shard

    def kept(self) -> Iterable[tuple[ParameterKey, bytes]]:
        """Return all of them."""
        return list(self._parameters)

    def keep(self, key: ParameterKey, value: bytes) -> None:
        """Have one kept so."""
        self._parameters.keep(key, value)
        self._shard.wake()

    def forget(self, key: ParameterKey) -> None:
        """Keep one no more."""
        self._parameters.forget(key)
        self._shard.wake()
