"""The attempts of messages that ended without success: when, and by which consumer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from config import limits
from queue_manager.shard.commit import Commit
from storage.encoding import pack_u64_key
from storage.records import attempts

Attempt = tuple[int, str]  # claimed at, in ms; consumer ID


class AttemptLog:
    """The attempts of one cursor's messages as far as they are known, by message ID.

    In memory only of what is still active, and of `limits.ATTEMPTS_LOGS_PER_GROUP_MAX` beside; the records
    stay. Of quorum queues also how many claims of a message are `spared`: they do not count.
    """

    __slots__ = ("_logs", "_spared", "_unwritten")

    def __init__(self) -> None:
        self._logs: dict[int, list[Attempt]] = {}
        self._spared: dict[int, int] = {}
        self._unwritten: dict[int, None] = {}

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._logs

    def of(self, message_id: int) -> list[Attempt]:
        """Return the attempts of a message, oldest first."""
        return self._logs.get(message_id, [])

    def add(self, message_id: int, claimed_at_ms: int, consumer_id: str) -> None:
        """Remember an attempt that ended without success."""
        history = self._logs.setdefault(message_id, [])
        history.append((claimed_at_ms, consumer_id))
        if len(history) > limits.ATTEMPTS_KEPT_MAX:
            del history[0]
        self._unwritten[message_id] = None

    def spare(self, message_id: int) -> None:
        """Have the last attempt not count; it was added just now."""
        self._spared[message_id] = min(self._spared.get(message_id, 0) + 1, limits.ATTEMPTS_MAX)

    def spared(self, message_id: int) -> int:
        """Return how many claims of a message do not count."""
        return self._spared.get(message_id, 0)

    def restore(self, message_id: int, attempts_before: Sequence[tuple[int, str]], spared: int) -> None:
        """Take in what was written before the start."""
        self._logs[message_id] = [*attempts_before, *self._logs.get(message_id, [])]
        if spared:
            self._spared[message_id] = self._spared.get(message_id, 0) + spared

    def forget(self, message_id: int) -> bool:
        """Forget a message in memory; give whether it was known."""
        self._unwritten.pop(message_id, None)
        self._spared.pop(message_id, None)
        return self._logs.pop(message_id, None) is not None

    def write(self, storage_id: str, commit: Commit) -> None:
        """Put what changed into the commit."""
        if not self._unwritten:
            return
        logs, prefix = self._logs, attempts.prefix(storage_id)
        for message_id in self._unwritten:
            history = logs.get(message_id)
            if history:
                commit.put(
                    prefix + pack_u64_key(message_id),
                    attempts.encode(history, self._spared.get(message_id, 0)),
                )
        self._unwritten.clear()

    def is_full(self) -> bool:
        """Return whether there is more than is to be kept of settled messages."""
        return len(self._logs) > limits.ATTEMPTS_LOGS_PER_GROUP_MAX

    def let_go(self, message_ids: Iterable[int]) -> None:
        """Forget messages in memory whose attempts are written."""
        for message_id in message_ids:
            self._logs.pop(message_id, None)
            self._spared.pop(message_id, None)


NO_ATTEMPTS: Final = AttemptLog()
"""The attempts of cursors whose messages never failed one; nothing is added to it."""
