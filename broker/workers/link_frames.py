"""The frames of a link: length u32, kind u8, fields. Those of messages are packed, the others, which are
rare, have values as `link_codec` writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

HEAD: Final = struct.Struct("<IB")
HEAD_BYTES: Final = HEAD.size

# from who asks
HELLO: Final = 1  # values: a greeting
CALL: Final = 2  # values: number, part, method, arguments, named
PLAN: Final = 3  # values: number, queues, fields of the plan
PUBLISH: Final = 4
PUBLISH_VARIED: Final = 5
SUBSCRIBE: Final = 6  # values: number, queue, group, pattern, options
PULLER: Final = 7  # values: number, queue, consumer ID, options
CONSUMER: Final = 8
SETTLE: Final = 9
AMEND: Final = 10  # values: claim numbers, envelopes
BARRIER: Final = 11
FIND_CLAIM: Final = 12  # values: number of the answer, queue, group, offset
TOPIC_PLAN: Final = 13  # values: number, fields of the plan; its publishes are for subscribers of topics
PUBLISH_ALL: Final = 14  # values: number, publishes: queues, fields of the plan, bodies, properties
REPLIES: Final = 15  # values: routing key, properties, bodies
# from who serves
ACK: Final = 21
REFUSED: Final = 22
RESULT: Final = 23  # values: number, value or error
DELIVER_RUN: Final = 24
DELIVER: Final = 25
REVOKED: Final = 26  # values: consumer, claim numbers, whether it is to end
CANCELLED: Final = 27  # values: consumer, reason
TOLD: Final = 28  # values: consumer, what changed of it
WELCOME: Final = 29  # values: a greeting
UNWELCOME: Final = 30  # values: why there is no link

PUBLISH_HEAD: Final = struct.Struct("<IBIII")  # length, kind, plan, count, size of each body, or 0
ACK_FRAME: Final = struct.Struct("<IBQ")  # everything up to this number
REFUSED_FRAME: Final = struct.Struct("<IBQB")  # number, outcome
RUN_HEAD: Final = struct.Struct("<IBIQQIII")  # consumer, first claim, first message ID, count, size, envelope
DELIVER_HEAD: Final = struct.Struct("<IBIQI")  # consumer, first claim, count
CONSUMER_FRAME: Final = struct.Struct("<IBIBq")  # consumer, what, value
SETTLE_HEAD: Final = struct.Struct("<IBBBqI")  # how, is_spared, delay_ms or -1, count (0: a range follows)
RANGE: Final = struct.Struct("<QI")
BARRIER_FRAME: Final = struct.Struct("<IBI")  # consumer whose group is to be written soon, or 0

# of CONSUMER; END tells the number of the first claim that has not come, 0 if nobody knows
(
    PAUSE, RESUME, WAKE, END, END_KEEPING, CREDIT, PULL, PULL_NO_ACK, LATE, PACE, LINK_CREDIT, DRAIN, ECHO,
) = range(13)  # fmt: skip
# of SETTLE
DONE, REQUEUE, REJECT, RELEASE, UNCLAIM, EXTEND = range(6)


def sizes_of(bodies: Sequence[bytes]) -> tuple[int, int]:
    """Return the size that all bodies have, or 0; and how many bytes they take in a frame."""
    first = len(bodies[0])
    if len(bodies) == 1:
        return (first, first) if first else (0, 4)
    sizes = list(map(len, bodies))
    if first and sizes.count(first) == len(sizes):
        return first, first * len(sizes)
    return 0, sum(sizes) + 4 * len(sizes)


def put_bodies(output: list[bytes], bodies: Sequence[bytes], size: int) -> None:
    """Append bodies; where sizes differ (`size` 0) they come first."""
    if not size:
        output.append(struct.pack(f"<{len(bodies)}I", *map(len, bodies)))
    output += bodies


def take_bodies(data: bytes, at: int, count: int, size: int) -> tuple[list[bytes], int]:
    """Take bodies as `put_bodies` put them, and give the place behind them. Raises struct.error if there are
    not so many.
    """
    if size:
        end = at + size * count
        if end > len(data):
            raise struct.error(f"{count} bodies of {size} bytes are not there")
        if count == 1:
            return [data[at:end]], end
        return [data[start : start + size] for start in range(at, end, size)], end
    sizes = struct.unpack_from(f"<{count}I", data, at)
    ends = list(accumulate(sizes, initial=at + 4 * count))
    if ends[-1] > len(data):
        raise struct.error(f"{sum(sizes)} bytes of bodies are not there")
    return [data[start:end] for start, end in zip(ends, ends[1:], strict=False)], ends[-1]
