"""The open commit: everything that is to become durable together, and who waits for it."""

from __future__ import annotations

from typing import Protocol

from storage.batch import WriteOps


class Waiter(Protocol):
    """Somebody who may tell his peer only what is durable."""

    def committed(self, tokens: list[int]) -> None:
        """What these tokens stand for is durable; called once per commit, commits in order."""


class Journal:
    """Record operations of one atomic write, by key; a later operation on a key replaces the earlier.

    `waiters` maps who waits to the tokens he gave (publish sequence numbers, packet identifiers).
    `log_ends` maps queues to the offset below which their log is durable with this commit.
    """

    __slots__ = ("held_bytes", "deletes", "log_ends", "puts", "waiters")

    def __init__(self) -> None:
        self.puts: dict[bytes, bytes] = {}
        self.deletes: dict[bytes, None] = {}
        self.waiters: dict[Waiter, list[int]] = {}
        self.log_ends: dict[object, int] = {}
        self.held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes or self.waiters)

    def put(self, key: bytes, value: bytes) -> None:
        """Set a record."""
        self.puts[key] = value
        if self.deletes:
            self.deletes.pop(key, None)

    def delete(self, key: bytes) -> None:
        """Remove a record."""
        self.puts.pop(key, None)
        self.deletes[key] = None

    def delete_run(self, keys: list[bytes]) -> None:
        """Remove many records."""
        puts = self.puts
        for key in keys:
            puts.pop(key, None)
        self.deletes.update(dict.fromkeys(keys))

    def wait(self, waiter: Waiter, token: int) -> None:
        """Have `waiter` told when this commit is durable."""
        tokens = self.waiters.get(waiter)
        if tokens is None:
            self.waiters[waiter] = [token]
        else:
            tokens.append(token)

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """As `wait`, for many tokens."""
        waiting = self.waiters.get(waiter)
        if waiting is None:
            self.waiters[waiter] = tokens[:]
        else:
            waiting += tokens

    def write_ops(self) -> WriteOps:
        """The operations for the store."""
        ops = WriteOps()
        ops.puts = list(self.puts.items())
        ops.deletes = list(self.deletes)
        return ops
