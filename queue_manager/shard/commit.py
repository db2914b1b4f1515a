"""The open commit: everything that is to become durable together, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from config import limits
from storage.batch import WriteOps


class Waiter(Protocol):
    """A waiter for a commit: it may tell its peer only what is durable."""

    def committed(self, tokens: list[int]) -> None:
        """Note that what these tokens stand for is durable; called once per commit, commits in order."""


class OnceDurable:
    """A waiter that makes one call, with its tokens."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[list[int]], None]) -> None:
        self._call = call

    def committed(self, tokens: list[int]) -> None:
        self._call(tokens)


class WrittenLog(Protocol):
    """A log whose newest messages are in a commit."""

    def became_durable(self, end_offset: int, tail_bytes_max: int) -> None:
        """Note that everything below `end_offset` is durable; of the messages in memory that many bytes may
        stay.
        """


class Commit:
    """Record operations of one atomic write, by key; a later operation on a key replaces the earlier.

    `waiters` maps who waits to the tokens it gave (publish sequence numbers, packet identifiers).
    `log_ends` maps logs to the offset below which they are durable with this commit.
    """

    __slots__ = ("deletes", "held_bytes", "log_ends", "puts", "waiters")

    def __init__(self) -> None:
        self.puts: dict[bytes, bytes] = {}
        self.deletes: dict[bytes, None] = {}
        self.waiters: dict[Waiter, list[int]] = {}
        self.log_ends: dict[WrittenLog, int] = {}
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

    def hold(self, held_bytes: int) -> None:
        """Count memory that is held until the commit is durable."""
        self.held_bytes += held_bytes

    def wait(self, waiter: Waiter, token: int) -> None:
        """Have `waiter` told when this commit is durable."""
        tokens = self.waiters.get(waiter)
        if tokens is None:
            self.waiters[waiter] = [token]
        else:
            tokens.append(token)

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """Wait as `wait`, for many tokens."""
        waiting = self.waiters.get(waiter)
        if waiting is None:
            self.waiters[waiter] = tokens[:]
        else:
            waiting += tokens

    def wait_up_to(self, waiter: Waiter, token: int) -> bool:
        """Wait as `wait`, for a waiter whose last token stands for all before it; returns whether it was not
        waiting yet.
        """
        tokens = self.waiters.get(waiter)
        if tokens is None:
            self.waiters[waiter] = [token]
            return True
        tokens[-1] = token
        return False

    def write_ops(self) -> WriteOps:
        """Return the operations for the store."""
        ops = WriteOps(self.puts.items(), self.deletes)
        held_bytes = self.held_bytes
        ops.is_large = held_bytes > limits.COMMIT_INLINE_BYTES_MAX or (
            held_bytes > limits.COMMIT_INLINE_BODIES_BYTES_MAX
            and held_bytes > limits.COMMIT_INLINE_BODY_BYTES_MAX * len(self.puts)
        )
        return ops
