"""How long a message that comes back has to wait, as its queue's retry policy says.

Deterministic: the jitter comes from the message and its attempt, so that messages failing together come back
apart, and the same after a restart.
"""

from __future__ import annotations

from typing import Final

from config import limits
from queue_manager.policy import RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, QueuePolicy

_MASK: Final = (1 << 64) - 1


def applies(policy: QueuePolicy, *, is_spared: bool) -> bool:
    """Return whether messages wait that come back so; `is_spared`: by a return that is no attempt."""
    if not policy.retry_initial_ms:
        return False
    return policy.retry_kind in ("", RETRY_ALL, RETRY_RETURNED if is_spared else RETRY_FAILED)


def delay_ms(policy: QueuePolicy, message_id: int, attempts: int) -> int:
    """Return milliseconds until the next attempt, after `attempts` (at least 1) of them; 0: at once."""
    initial_ms = policy.retry_initial_ms
    if not initial_ms:
        return 0
    high_ms = policy.retry_max_ms or limits.DURATION_MS_MAX
    if policy.retry_kind:
        return min(initial_ms * max(1, attempts), high_ms)
    try:
        wait_ms = min(initial_ms * max(1.0, policy.retry_multiplier) ** max(0, attempts - 1), high_ms)
    except OverflowError:
        wait_ms = high_ms
    if policy.retry_jitter:
        wait_ms *= 1 + policy.retry_jitter * (2 * _fraction(message_id, attempts) - 1)
    return max(1, round(wait_ms))


def _fraction(message_id: int, attempts: int) -> float:
    """Return a number in [0, 1) that looks random: the pair mixed as splitmix64 does."""
    x = (message_id * 0x9E3779B97F4A7C15 + attempts * 0xD1B54A32D192ED03) & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return (x ^ x >> 31) / (_MASK + 1)
