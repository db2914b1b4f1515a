"""What a queue was made with: its policy, in the form its spec record keeps."""

from __future__ import annotations

from typing import Final

from storage.layout import BUCKET_EXPONENT_DEFAULT

FOREVER: Final = -1


class QueuePolicy:
    """Limits and behaviour of one queue.

    `attempts_max` 0 = unlimited; `done_retention_ms` FOREVER or >= 0; `depth_max` 0 = unlimited;
    `expires_ms` 0 = never (ephemeral queues only).
    """

    __slots__ = (
        "attempts_max",
        "bucket_size",
        "depth_max",
        "done_retention_ms",
        "expires_ms",
        "message_bytes_max",
        "visibility_timeout_ms",
    )

    def __init__(
        self,
        *,
        visibility_timeout_ms: int,
        message_bytes_max: int,
        done_retention_ms: int = 60_000,
        bucket_size: int = BUCKET_EXPONENT_DEFAULT,
        attempts_max: int = 0,
        depth_max: int = 0,
        expires_ms: int = 0,
    ) -> None:
        self.visibility_timeout_ms = visibility_timeout_ms
        self.message_bytes_max = message_bytes_max
        self.done_retention_ms = done_retention_ms
        self.bucket_size = bucket_size
        self.attempts_max = attempts_max
        self.depth_max = depth_max
        self.expires_ms = expires_ms

    def fields(self) -> dict[str, int]:
        """Everything by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueuePolicy) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(tuple(self.fields().items()))
