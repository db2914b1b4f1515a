"""What administration tells: immutable, made at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from queue_manager.policy import QueuePolicy

State = Literal["ready", "in_flight", "delayed", "scheduled", "failed", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One consumer group. `group_id` is its name, with `@` and the pattern unless that is `#`.

    `lag` is what it has not done yet: `ready` (may be claimed), `delayed` (came back, waits for its next
    attempt) and `in_flight`. With a pattern `lag` and `ready` count messages that may turn out not to match.
    `oldest_age_ms`: how long ago the oldest of them was published, 0 if there is none. `position` is the
    first offset it never looked at. `unmatched`: those of `ready` that no filter of its consumers wants, as
    far as all were asked. `done` are kept until their retention ends. `redelivered` counts since the start
    of the broker.

    In a stream `lag` is what lies between `committed` (where the group goes on after a restart; otherwise
    the same as `position`) and the end, and `lost` counts what retention took before the group read it. In a
    queue with priorities `position` is that of priority 0.
    """

    queue: str
    group_id: str
    name: str
    pattern: str
    selector: str
    position: int
    committed: int
    lag: int
    oldest_age_ms: int
    ready: int
    unmatched: int
    delayed: int
    in_flight: int
    failed: int
    done: int
    lost: int
    consumers: int
    redelivered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue. `ready` is what `message_count` of AMQP says (of a stream: all there is); `unmatched`,
    `delayed`, `in_flight`, `failed` and `done` are sums over its groups.

    Offsets `first_offset` up to `next_offset` are kept, or were when some group last let go of one (with
    priorities: those of priority 0, each has its own). `retained_bytes` is the payload a stream keeps, 0 for
    other queues. `memory_bytes` is what messages take in memory. `groups` leaves out the nameless ones of a
    stream's readers.
    """

    name: str
    type: Literal["classic", "ephemeral", "stream"]
    durable: bool
    topics: tuple[str, ...]
    policy: QueuePolicy
    exclusive: bool
    auto_delete: bool
    ready: int
    unmatched: int
    delayed: int
    in_flight: int
    scheduled: int
    failed: int
    done: int
    consumers: int
    first_offset: int
    next_offset: int
    retained_bytes: int
    memory_bytes: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """One message, looked at and not touched.

    `message_id` names it within its queue, as deliveries do (`<queue>:<offset>`); a scheduled one has no
    offset yet (-1). `topic` is the MQTT topic or routing key. `headers` and the fields of `properties`
    (content_type, reply_to, ...) are as an AMQP consumer sees them, whatever it was published by. `time_ms`
    is when a scheduled or delayed message is due, when a claim was made, when a message was done or failed;
    0 for a ready one. `body` is None if payloads were not asked for, or it is not kept any more.
    """

    message_id: str
    offset: int
    topic: str
    state: State
    attempts: int
    received_at_ms: int
    time_ms: int
    persistent: bool
    headers: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    consumer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some messages of a listing, and where the next page begins (`after`); None: this was the last."""

    messages: tuple[MessageView, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What became of a publish: the queues that took it, durably those that are."""

    queues: tuple[str, ...]
