"""How much may wait for a session, and what gives way then."""

from __future__ import annotations

from typing import Final, NamedTuple

from config import limits

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
