"""What links and webhooks are made from: the records of parameters."""

from __future__ import annotations

from collections.abc import Iterator

from queue_manager.shard.context import Context
from storage.records import ParameterKey
from storage.records import parameter as record

__all__ = ["ParameterKey", "StoredParameters"]


class StoredParameters:
    """The parameters that are kept, each as JSON."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_key: dict[ParameterKey, bytes] = {}

    def __iter__(self) -> Iterator[tuple[ParameterKey, bytes]]:
        return iter(list(self._by_key.items()))

    def keep(self, key: ParameterKey, value: bytes) -> None:
        """Have a parameter kept, with the open commit."""
        self._by_key[key] = value
        self._context.commit.put(record.key(*key), record.encode(value))

    def forget(self, key: ParameterKey) -> None:
        """Keep a parameter no more."""
        if self._by_key.pop(key, None) is not None:
            self._context.commit.delete(record.key(*key))

    def restore(self, key: ParameterKey, value: bytes) -> None:
        """Take in what was kept before the start."""
        self._by_key[key] = value
