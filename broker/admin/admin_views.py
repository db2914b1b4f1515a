"""The views of administration: immutable, made at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from queue_manager.api import GroupView, QueueView, State

T = TypeVar("T")
K = TypeVar("K")

__all__ = ["GroupView", "QueueView", "State"]  # of the core's values, beside its own


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """A message that was looked at and not touched, without its body.

    `message_id` names it within its queue, as deliveries do (`<queue>:<offset>`); a scheduled one has no
    offset yet (-1). `topic` is the MQTT topic or routing key. `headers` and the fields of `properties`
    (content_type, reply_to, ...) are as an AMQP consumer sees them, whatever it was published by. `time_ms`
    is when a scheduled or delayed message is due, when a claim was made, when a message was done or failed;
    0 for a ready one.
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
    consumer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView(LookedAt):
    """One message; `body` is None if payloads were not asked for, or it is not kept any more."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some messages of a listing, and where the next page begins (`after`); None: this was the last."""

    messages: tuple[MessageView, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T, K]):
    """Some things of a listing in its order, how many there are in all, and behind which one the next page
    begins; None: this was the last.
    """

    items: Sequence[T]
    total: int
    next: K | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The value of a setting before and now; as the configuration file says it."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInFull(QueueView):
    """One queue with the `settings` in force, by their keys in the configuration file, sections and keys
    joined by dots.
    """

    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedQueue(QueueInFull):
    """A queue that was made (`is_new`) or changed: `changed` has the settings of an existing one that are
    others now.
    """

    is_new: bool
    changed: Mapping[str, Difference]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a publish: the queues that took it, durably those that are."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedThrough(Published):
    """The same through an exchange; `is_routed`: a queue, or a subscriber of the topic, took it."""

    is_routed: bool
