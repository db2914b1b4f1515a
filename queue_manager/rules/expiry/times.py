"""When a message expires: by itself, or as its queue lets it."""

from __future__ import annotations

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
