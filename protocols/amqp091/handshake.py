"""From protocol header to connection.open-ok (AMQP 0.9.1, 2.2.4): steps, and what a client may ask for."""

import re
from collections.abc import Callable
from struct import error as StructError
from typing import Any, Final

from pamqp import commands

from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from protocols.amqp091 import tables
from protocols.errors import ProtocolError

MECHANISMS: Final = "PLAIN AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"
LOCALE: Final = "en_US"

# steps; in the ones named DECIDING the front-end has been asked
AWAITING_HEADER: Final = 0
AWAITING_START_OK: Final = 1
DECIDING_AUTH: Final = 2
AWAITING_TUNE_OK: Final = 3
AWAITING_OPEN: Final = 4
DECIDING_OPEN: Final = 5
RUNNING: Final = 6

# methods legal on channel 0, by step; connection.close always is
LEGAL: Final[tuple[frozenset[int], ...]] = tuple(
    frozenset((*expected, c.CONNECTION_CLOSE))
    for expected in (
        (),
        (c.CONNECTION_START_OK,),
        (),
        (c.CONNECTION_TUNE_OK,),
        (c.CONNECTION_OPEN,),
        (),
        (c.CONNECTION_UPDATE_SECRET,),
    )
)


def _start_ok_error(code: int, reason: str) -> ProtocolError:
    return ProtocolError(code, reason, class_id=c.CLASS_CONNECTION, method_id=c.CONNECTION_START_OK & 0xFFFF)


def credentials(start_ok: commands.Connection.StartOk) -> tuple[str, str]:
    """Return user name and password of a response to connection.start.

    Raises ProtocolError: 503 for a mechanism that is not offered, 502 for a malformed response.
    """
    read = _READERS.get(start_ok.mechanism)
    if read is None:
        raise _start_ok_error(
            c.COMMAND_INVALID, f"authentication mechanism {start_ok.mechanism!r} is unknown"
        )
    response: str | bytes = start_ok.response
    return read(response.encode() if isinstance(response, str) else response)


def _amqplain(raw: bytes) -> tuple[str, str]:
    """Read AMQPLAIN: a field table without its length, LOGIN and PASSWORD as strings."""
    table = len(raw).to_bytes(4, "big") + raw
    try:
        fields = dict(tables.decode_pairs(table, 0, len(table))[0])
    except (ProtocolError, ValueError, IndexError, StructError):
        fields = {}
    login, password = fields.get("LOGIN"), fields.get("PASSWORD")
    if not isinstance(login, str) or not isinstance(password, str):
        raise _start_ok_error(c.SYNTAX_ERROR, "malformed AMQPLAIN response")
    return login, password


def _plain(raw: bytes) -> tuple[str, str]:
    """Read SASL PLAIN (RFC 4616); the authorisation identity is ignored."""
    fields = raw.split(b"\0")
    if len(fields) != 3:
        raise _start_ok_error(c.SYNTAX_ERROR, "malformed PLAIN response")
    try:
        return fields[1].decode(), fields[2].decode()
    except UnicodeDecodeError:
        raise _start_ok_error(c.SYNTAX_ERROR, "PLAIN response is not UTF-8") from None


def _external(raw: bytes) -> tuple[str, str]:
    """Read EXTERNAL (RFC 4422, appendix A): TLS below has shown the user; the authorisation identity is
    ignored.
    """
    return "", ""


_READERS: Final[dict[str, Callable[[bytes], tuple[str, str]]]] = {
    "PLAIN": _plain,
    "AMQPLAIN": _amqplain,
    EXTERNAL: _external,
}


def understands(client_properties: dict[str, Any], capability: str) -> bool:
    """Return whether a client says that it knows of an extension of the protocol."""
    capabilities = client_properties.get("capabilities")
    return isinstance(capabilities, dict) and bool(capabilities.get(capability))


def _lowered(name: str, offered: int, chosen: int) -> int:
    """Return the client's choice, 0 meaning no limit of its own; raises ProtocolError (530) above the
    offer.
    """
    if chosen > offered:
        raise ProtocolError(
            c.NOT_ALLOWED,
            f"{name} of {chosen} is above the {offered} offered",
            class_id=c.CLASS_CONNECTION,
            method_id=c.CONNECTION_TUNE_OK & 0xFFFF,
        )
    return chosen or offered


def negotiated_channel_max(offered: int, chosen: int) -> int:
    """Return the highest channel number both sides accept."""
    return _lowered("channel_max", offered, chosen)


def negotiated_frame_max(offered: int, chosen: int) -> int:
    """Return the largest frame both sides accept; raises ProtocolError (501) below the specification's
    minimum.
    """
    frame_max = _lowered("frame_max", offered, chosen)
    if frame_max < limits.AMQP_FRAME_BYTES_MIN:
        raise ProtocolError(
            c.FRAME_ERROR,
            f"frame_max of {frame_max} is below the {limits.AMQP_FRAME_BYTES_MIN} every peer must accept",
            class_id=c.CLASS_CONNECTION,
            method_id=c.CONNECTION_TUNE_OK & 0xFFFF,
        )
    return frame_max


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
