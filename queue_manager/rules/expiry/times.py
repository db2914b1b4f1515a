"""When a message expires: by itself, or as its queue lets it."""

from __future__ import annotations

from config import limits
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from storage.envelope import expires_at_ms


def expires_at(policy: QueuePolicy, message: Message) -> int:
    """Return when a message of the queue expires, in ms; 0: never."""
    own_ms = expires_at_ms(message.template, message.received_at_ms)
    ttl_ms = policy.message_ttl_ms
    if not ttl_ms:
        return own_ms
    end_ms = message.received_at_ms + ttl_ms
    return min(own_ms, end_ms) if own_ms else end_ms


def has_expired(policy: QueuePolicy, message: Message, now_ms: int) -> bool:
    """Return whether the message may not be handed out any more."""
    return 0 < expires_at(policy, message) <= now_ms


def is_too_late(policy: QueuePolicy, message: Message, now_ms: int) -> bool:
    """Return whether a message that was not given to anybody yet may not be any more.

    One with the least lifetime (`expiration: "0"`) is for a consumer that is ready when it comes: it may be
    taken until the timers let go of it, which run after the consumers had their turn.
    """
    end_ms = expires_at(policy, message)
    if end_ms == message.received_at_ms + limits.LIFETIME_MS_MIN:
        end_ms += limits.IMMEDIATE_TURN_MS
    return 0 < end_ms <= now_ms
