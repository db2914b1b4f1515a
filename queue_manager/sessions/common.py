"""The objects that the sessions of all virtual hosts share, and how much may wait for a session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from config import limits
from queue_manager.effective_policy import SESSION, Policies, session_bounds
from queue_manager.errors import LimitReached
from queue_manager.sessions.blocks import Blocks
from queue_manager.shard.context import Context

OLDEST: Final = "oldest"
NEWEST: Final = "newest"
REJECT: Final = "reject"


class Bounds(NamedTuple):
    """At most so many messages, and bytes of body, wait for each session; 0 is no bound.

    `drop`: beyond that the oldest go, or the newest do not come in, or publishers are refused.
    """

    messages_max: int = 0
    bytes_max: int = 0
    drop: str = OLDEST

    def excess(self, count: int, body_bytes: int) -> bool:
        """Return whether so much is too much."""
        return bool(
            (self.messages_max and count > self.messages_max)
            or (self.bytes_max and body_bytes > self.bytes_max)
        )

    def is_full(self, count: int, body_bytes: int) -> bool:
        """Return whether there is no room for one more."""
        return self.excess(count + 1, body_bytes + 1)

    def is_far_beyond(self, count: int, body_bytes: int) -> bool:
        """Return whether so much lies on the store that the oldest are to be looked for."""
        slack_messages = self.messages_max // 8 + limits.SESSION_TRIM_SLACK_MESSAGES
        slack_bytes = self.bytes_max // 8 + limits.SESSION_TRIM_SLACK_BYTES
        return self.excess(count - slack_messages, body_bytes - slack_bytes)


def widest(several: Iterable[Bounds]) -> Bounds:
    """Return the bounds beyond which what waits is too much for each of these; there is at least one."""
    messages_max, bytes_max, drops = zip(*several, strict=True)
    return Bounds(
        0 if 0 in messages_max else max(messages_max), 0 if 0 in bytes_max else max(bytes_max), drops[0]
    )


class Losses:
    """Counts of messages that sessions which outlive their connection never got, all of them together.

    Messages since the start: `dropped` had no room, `expired` waited for too long.
    """

    __slots__ = ("dropped", "expired")

    def __init__(self) -> None:
        self.dropped = 0
        self.expired = 0

    def drop(self, count: int) -> None:
        """Count so many that had no room."""
        self.dropped += count

    def expire(self, count: int) -> None:
        """Count so many that had expired."""
        self.expired += count


class Common:
    """Where they are written, what was read back for them, what may wait for each, and how many there are.

    `bounds` hold for every session, `policies` bound some more. `bounds_version` changes with either:
    `Session.bounds` is worked out again then.
    """

    __slots__ = (
        "_count",
        "blocks",
        "bounds",
        "bounds_version",
        "context",
        "has_policies",
        "losses",
        "policies",
    )

    def __init__(self, context: Context, policies: Policies) -> None:
        self.context = context
        self.policies = policies
        self.has_policies = False
        self.bounds_version = 0
        self.blocks = Blocks()
        self.bounds = Bounds()
        self.losses = Losses()
        self._count = 0

    def limit(self, bounds: Bounds) -> None:
        """Let so much wait for each session."""
        self.bounds = bounds
        self.bounds_version += 1

    def follow_policies(self) -> None:
        """Note that policies changed."""
        self.has_policies = self.policies.are_for(SESSION)
        self.bounds_version += 1

    def bounds_of(self, vhost: str, client_id: str) -> Bounds:
        """Return how much may wait for a session, by its policies, too."""
        bounds = self.bounds
        if not self.has_policies:
            return bounds
        effective = self.policies.of_local(vhost, client_id, SESSION)
        return Bounds(*session_bounds(bounds.messages_max, bounds.bytes_max, effective), bounds.drop)

    def check_room(self) -> None:
        """Raise LimitReached if there may be no session more."""
        if self._count >= limits.MQTT_SESSIONS_MAX:
            raise LimitReached(f"there are {limits.MQTT_SESSIONS_MAX} sessions already")

    def begun(self) -> None:
        """Count one session more."""
        self._count += 1

    def ended(self) -> None:
        """Count one session less."""
        self._count -= 1
