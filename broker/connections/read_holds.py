"""Whether anything is read from a client, and what speaks against it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from config import limits


class Reading:
    """Reads from the transport of a client while nothing speaks against it.

    Whoever has a reason of its own calls `hold`, and `release` when it is over. Three reasons are kept here,
    each once at most: the store, which does not keep up (`is_blocked`), answers that the peer does not take,
    and a quota of what it sends a second (`held_by` says which).
    """

    __slots__ = (
        "_blocked_since",
        "_hold_count",
        "_is_unread",
        "_taken_bytes",
        "_transport",
        "held_by",
        "is_blocked",
    )

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._hold_count = 0
        self._blocked_since = 0.0  # if `is_blocked`
        self._is_unread = False
        self._taken_bytes = 0  # of large messages
        self.is_blocked = False
        self.held_by = ""

    def took_part(
        self,
        size: int,
        loop: asyncio.AbstractEventLoop,
        memory_to_take: Callable[[], Callable[[], None] | None],
    ) -> None:
        """Count a part of a large message: after so much, others have their turn before the next, for which
        memory is taken in a thread (see `Connection.memory_to_take`).

        One turn of the loop may otherwise read many MB from one peer.
        """
        self._taken_bytes += size
        if self._taken_bytes >= limits.READ_TURN_BYTES_MAX:
            self._taken_bytes = 0
            self.hold()
            take = memory_to_take()
            if take is None:
                loop.call_soon(self.release)
            else:
                loop.run_in_executor(None, take).add_done_callback(lambda taken: self.release())

    def hold(self) -> None:
        """Read nothing more before as many `release` as there were holds."""
        self._hold_count += 1
        if self._hold_count == 1 and not self._transport.is_closing():
            self._transport.pause_reading()

    def release(self) -> None:
        """Take one reason away not to read."""
        self._hold_count -= 1
        if not self._hold_count and not self._transport.is_closing():
            self._transport.resume_reading()

    def hold_for(
        self, seconds: float, reason: str, loop: asyncio.AbstractEventLoop, then: Callable[[], None]
    ) -> None:
        """Read nothing for so long, for a quota, and call `then`; what is held for one already stays so."""
        if self.held_by:
            return
        self.held_by = reason
        self.hold()
        loop.call_later(seconds, self._go_on, then)

    def _go_on(self, then: Callable[[], None]) -> None:
        self.held_by = ""
        self.release()
        then()

    @property
    def is_held_by_broker(self) -> bool:
        """Whether nothing is read for a reason that is not the peer's: its silence says nothing then."""
        return self._hold_count > self._is_unread

    def block(self, now: float) -> bool:
        """Hold back while the store does not keep up; gives whether that is new."""
        if self.is_blocked:
            return False
        self.is_blocked = True
        self._blocked_since = now
        self.hold()
        return True

    def unblock(self) -> bool:
        """Go on after the store caught up; gives whether the peer was held back by it."""
        if not self.is_blocked:
            return False
        self.is_blocked = False
        self.release()
        return True

    def is_blocked_long(self, now: float) -> bool:
        """Return whether the store has not kept up for so long that the peer should be told."""
        return self.is_blocked and now - self._blocked_since >= limits.BLOCKED_NOTICE_MS / 1000

    def bound_answers(self, buffered_bytes: int) -> None:
        """Let the peer ask nothing more while it takes its answers too slowly, and so much waits for it."""
        if not self._is_unread and buffered_bytes > limits.SUBSCRIBER_BUFFER_BYTES_MAX:
            self._is_unread = True
            self.hold()

    def answers_taken(self) -> None:
        """Let the peer ask again: it caught up."""
        if self._is_unread:
            self._is_unread = False
            self.release()
