"""How a connection ends: why, what the client may still say, and that the front-end is told once."""

import re
from typing import Final

from config import limits
from protocols.amqp091 import events as ev

# connection.close (0x32) or close-ok (0x33), looked for while everything else is discarded
_CLOSE_OR_OK: Final = re.compile(rb"\x01\x00\x00....\x00\x0a\x00([\x32\x33])", re.DOTALL)
_CLOSE_OR_OK_BYTES: Final = 11
CLOSE: Final = 0x32


class Ending:
    """The end of a connection, from its begin on."""

    __slots__ = ("_code", "_deadline", "_is_told", "_reason", "_tail")

    def __init__(self) -> None:
        self._code = 0
        self._reason = ""
        self._deadline: float | None = None
        self._tail = b""
        self._is_told = False

    def begin(self, code: int, reason: str, deadline: float | None = None) -> None:
        """End for this reason, at the deadline at the latest; without one `limits.AMQP_CLOSE_TIMEOUT_S` after
        the first look at the time.
        """
        self._code = code
        self._reason = reason
        self._deadline = deadline

    def deadline(self, now: float) -> float:
        """Return when to give up on the client; `now` if that was never asked yet."""
        return now if self._deadline is None else self._deadline

    def is_overdue(self, now: float) -> bool:
        """Return whether the client had its time to answer."""
        if self._deadline is None:
            self._deadline = now + limits.AMQP_CLOSE_TIMEOUT_S
        return now >= self._deadline

    def answer(self, data: bytes) -> int:
        """Look for connection.close and close-ok, and discard the rest; gives which came, 0: neither.

        Found by their bytes, not by framing, which the error may have lost; if a discarded body happens to
        hold them, the connection ends a little earlier.
        """
        data = self._tail + data
        found = _CLOSE_OR_OK.search(data)
        if found is None:
            self._tail = data[1 - _CLOSE_OR_OK_BYTES :]
            return 0
        return found[1][0]

    def told(self) -> list[ev.ConnectionLost]:
        """Return what `told_of` does, for the reason it began with."""
        return self.told_of(self._code, self._reason, by_peer=False)

    def told_of(self, code: int, reason: str, *, by_peer: bool) -> list[ev.ConnectionLost]:
        """Return the event that tells the front-end of the end: nothing but the first time."""
        if self._is_told:
            return []
        self._is_told = True
        return [ev.ConnectionLost(code, reason, by_peer)]
