"""The frames of a link: length u32, kind u8, fields. Those of messages are packed, the others pickled.

Both ends are workers of one broker, started from one program; still only values of the core are unpickled.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from queue_manager.errors import QueueManagerError

HEAD: Final = struct.Struct("<IB")
HEAD_BYTES: Final = HEAD.size

# from who asks
HELLO: Final = 1  # pickled: worker number, version
CALL: Final = 2  # pickled: number, part, method, arguments, named
PLAN: Final = 3  # pickled: number, queues, fields of the plan
PUBLISH: Final = 4
PUBLISH_VARIED: Final = 5
SUBSCRIBE: Final = 6  # pickled: number, queue, group, pattern, options
PULLER: Final = 7  # pickled: number, queue, consumer ID, options
CONSUMER: Final = 8
SETTLE: Final = 9
AMEND: Final = 10  # pickled: claim numbers, envelopes
BARRIER: Final = 11
FIND_CLAIM: Final = 12  # pickled: number of the answer, queue, group, offset
TOPIC_PLAN: Final = 13  # pickled: number, fields of the plan; its publishes are for subscribers of topics
PUBLISH_ALL: Final = 14  # pickled: number, publishes: queues, fields of the plan, bodies, properties
REPLIES: Final = 15  # pickled: routing key, properties, bodies
# from who serves
ACK: Final = 21
REFUSED: Final = 22
RESULT: Final = 23  # pickled: number, value or error
DELIVER_RUN: Final = 24
DELIVER: Final = 25
REVOKED: Final = 26  # pickled: consumer, claim numbers, whether it is to end
CANCELLED: Final = 27  # pickled: consumer, reason
TOLD: Final = 28  # pickled: consumer, what changed of it

PUBLISH_HEAD: Final = struct.Struct("<IBIII")  # length, kind, plan, count, size of each body, or 0
ACK_FRAME: Final = struct.Struct("<IBQ")  # everything up to this number
REFUSED_FRAME: Final = struct.Struct("<IBQB")  # number, outcome
RUN_HEAD: Final = struct.Struct("<IBIQQIII")  # consumer, first claim, first message ID, count, size, envelope
DELIVER_HEAD: Final = struct.Struct("<IBIQI")  # consumer, first claim, count
CONSUMER_FRAME: Final = struct.Struct("<IBIBq")  # consumer, what, value
SETTLE_HEAD: Final = struct.Struct("<IBBBqI")  # how, is_spared, delay_ms or -1, count (0: a range follows)
RANGE: Final = struct.Struct("<QI")
BARRIER_FRAME: Final = struct.Struct("<IBI")  # consumer whose group is to be written soon, or 0

# of CONSUMER
PAUSE, RESUME, WAKE, END, END_KEEPING, CREDIT, PULL, PULL_NO_ACK, LATE, PACE, LINK_CREDIT, DRAIN = range(12)
# of SETTLE
DONE, REQUEUE, REJECT, RELEASE, UNCLAIM, EXTEND = range(6)

_PACKAGE: Final = __name__.removesuffix("broker.workers.link_frames")  # where it is installed
_ALLOWED_ROOTS: Final = frozenset(("queue_manager", "storage", "config", "protocols"))
_ALLOWED: Final = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "bytearray"),
    ("datetime", "datetime"),
    ("datetime", "timezone"),
    ("datetime", "timedelta"),
    ("decimal", "Decimal"),
    ("broker.workers.link_frames", "_restored"),
    ("broker.workers.worker_directory", "QueueFact"),
    ("broker.workers.worker_directory", "QueueGone"),
    ("broker.workers.worker_directory", "BindingFact"),
    ("broker.workers.worker_directory", "ReplyFact"),
    ("broker.workers.remote_consumers", "RemoteGroup"),
    ("broker.engine.elsewhere", "FilterFact"),
    ("broker.admin.node", "CounterView"),
    ("broker.engine.client.federating", "Federated"),
    ("broker.engine.client.listings", "ListedPage"),
    ("broker.engine.client.listings", "RetainedView"),
    ("broker.engine.client.listings", "SessionView"),
    ("broker.engine.shard_ending", "BrokerStopped"),
    ("broker.engine.shard_ending", "WorkerLost"),
    ("broker.connections.connection_views", "ChannelView"),
    ("broker.connections.connection_views", "ConnectionView"),
    ("broker.connections.connection_views", "ConsumerView"),
    ("broker.connections.connection_views", "Description"),
    ("broker.connections.connection_views", "SubscriptionView"),
}


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, QueueManagerError):  # made with other arguments than it keeps
            return _restored, (type(value), vars(value))
        return NotImplemented


def _restored(kind: type[QueueManagerError], fields: dict[str, Any]) -> QueueManagerError:
    error = kind.__new__(kind)
    Exception.__init__(error, fields["reason"])
    vars(error).update(fields)
    return error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        own = module.removeprefix(_PACKAGE)
        if own.partition(".")[0] in _ALLOWED_ROOTS or (own, name) in _ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not come over a link")


def pickled(kind: int, *fields: Any) -> bytes:
    """Return a frame that is rare."""
    body = io.BytesIO()
    _Pickler(body, pickle.HIGHEST_PROTOCOL).dump(fields)
    raw = body.getvalue()
    return HEAD.pack(HEAD_BYTES + len(raw), kind) + raw


def unpickled(data: bytes, at: int, end: int) -> Any:
    """Return the fields of the frame at a place, as they were given to `pickled`."""
    return _Unpickler(io.BytesIO(data[at + HEAD_BYTES : end])).load()


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
    """Take bodies as `put_bodies` put them, and give the place behind them."""
    if size:
        end = at + size * count
        if count == 1:
            return [data[at:end]], end
        return [data[start : start + size] for start in range(at, end, size)], end
    sizes = struct.unpack_from(f"<{count}I", data, at)
    ends = list(accumulate(sizes, initial=at + 4 * count))
    return [data[start:end] for start, end in zip(ends, ends[1:], strict=False)], ends[-1]
