"""Room in memory for large messages that have come in part, shared by many connections."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.connections.read_holds import Reading
from config import limits


class Sender(Protocol):
    """A connection whose peer sends large messages."""

    reading: Reading


AnySender = TypeVar("AnySender", bound=Sender)


class _Grant(NamedTuple):
    size_bytes: int
    since: float


class BodyRoom(Generic[AnySender]):
    """Grants what senders announce, first come first served; who finds no room is not read from until then.

    The sender that was granted first always gets what it announces, so that something is finished. What is
    granted is at most `bytes_max`, and what that sender exceeds it by.
    """

    __slots__ = ("_bytes_max", "_granted", "_granted_bytes", "_waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._granted: dict[AnySender, _Grant] = {}  # oldest first
        self._granted_bytes = 0
        self._waiting: dict[AnySender, int] = {}  # oldest first; what they announce

    def announce(self, sender: AnySender, size_bytes: int, now: float) -> None:
        """Note that `sender` has begun messages of so many bytes in all, and not finished them; 0: no
        more.
        """
        if size_bytes <= limits.UNFINISHED_BYTES_FREE:
            if sender in self._granted or sender in self._waiting:
                self.forget(sender, now)
        elif sender in self._waiting:
            self._waiting[sender] = size_bytes
        elif self._fits(sender, size_bytes):
            self._grant(sender, size_bytes, now)
        else:
            self._waiting[sender] = size_bytes
            sender.reading.hold()

    def forget(self, sender: AnySender, now: float) -> None:
        """Forget `sender`, which is gone, or has finished what it began: those that wait may have its
        room.
        """
        grant = self._granted.pop(sender, None)
        if grant is not None:
            self._granted_bytes -= grant.size_bytes
        if self._waiting.pop(sender, None) is not None:
            sender.reading.release()
        self._serve(now)

    def overdue(self, now: float) -> AnySender | None:
        """Return a sender that has had room for longer than `limits.UNFINISHED_TIMEOUT_S`, while others wait
        for some.
        """
        if not self._waiting:
            return None
        oldest = next(iter(self._granted))
        if oldest in self._waiting or now - self._granted[oldest].since < limits.UNFINISHED_TIMEOUT_S:
            return None
        return oldest

    def _fits(self, sender: AnySender, size_bytes: int) -> bool:
        own = self._granted.get(sender)
        others_bytes = self._granted_bytes - (own.size_bytes if own is not None else 0)
        if others_bytes + size_bytes <= self._bytes_max:
            return True
        return not self._granted or next(iter(self._granted)) is sender

    def _grant(self, sender: AnySender, size_bytes: int, now: float) -> None:
        own = self._granted.get(sender)
        self._granted[sender] = _Grant(size_bytes, now if own is None else own.since)
        self._granted_bytes += size_bytes - (own.size_bytes if own is not None else 0)

    def _serve(self, now: float) -> None:
        """Grant what fits to who waits, in order; the oldest sender comes first in any case."""
        oldest = next(iter(self._granted), None)
        if oldest in self._waiting:
            self._let_on(oldest, now)
        while self._waiting:
            sender, size_bytes = next(iter(self._waiting.items()))
            if not self._fits(sender, size_bytes):
                return
            self._let_on(sender, now)

    def _let_on(self, sender: AnySender, now: float) -> None:
        self._grant(sender, self._waiting.pop(sender), now)
        sender.reading.release()
