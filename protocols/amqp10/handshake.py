"""From protocol header to open (AMQP 1.0, 2.2 and 5.3): steps, and what a client says of itself."""

from __future__ import annotations

from typing import Any, Final

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10.errors import AmqpError

PLAIN: Final = "PLAIN"
ANONYMOUS: Final = "ANONYMOUS"
EXTERNAL: Final = "EXTERNAL"

# steps; in the ones named DECIDING the front-end has been asked
AWAITING_HEADER: Final = 0
AWAITING_INIT: Final = 1
DECIDING_AUTH: Final = 2
AWAITING_AMQP_HEADER: Final = 3
AWAITING_OPEN: Final = 4
DECIDING_OPEN: Final = 5
RUNNING: Final = 6

# what frame bodies are legal, by step; steps without any read nothing
LEGAL: Final[dict[int, tuple[type[Any], ...]]] = {
    AWAITING_INIT: (p.SaslInit,),
    AWAITING_OPEN: (p.Open, p.Close),
    RUNNING: (p.Begin, p.Attach, p.Flow, p.Transfer, p.Disposition, p.Detach, p.End, p.Close),
}
DECIDING: Final = (DECIDING_AUTH, DECIDING_OPEN)


def credentials(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """Return user name and password of a response; both "" for other mechanisms than PLAIN (RFC 4616).

    None when it is malformed. The authorisation identity is ignored.
    """
    if mechanism != PLAIN:
        return "", ""
    fields = response.split(b"\0")
    if len(fields) != 3:
        return None
    try:
        return fields[1].decode(), fields[2].decode()
    except UnicodeDecodeError:
        return None


def check_open(opened: p.Open, idle_time_out_min: int) -> None:
    """Raise AmqpError for what the broker cannot do as the client asks."""
    if opened.max_frame_size < c.FRAME_BYTES_MIN:
        told = int(opened.max_frame_size)
        raise AmqpError(c.INVALID_FIELD, f"max-frame-size of {told} is below {c.FRAME_BYTES_MIN}")
    if opened.idle_time_out and opened.idle_time_out < idle_time_out_min:
        raise AmqpError(
            c.NOT_ALLOWED,
            f"idle-time-out of {int(opened.idle_time_out)} ms is below {idle_time_out_min} ms",
        )
