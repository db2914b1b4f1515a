"""The policy that a queue was made with, in the form its spec record keeps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from storage.layout import BUCKET_EXPONENT_DEFAULT

FOREVER: Final = -1

NOTHING: Final = -1  # a bound of 0, which stands for none
REJECT: Final = ""  # overflow: what is too much is refused
REJECT_DLX: Final = "reject-publish-dlx"  # and dead-lettered
DROP_HEAD: Final = "drop-head"  # the oldest goes instead

KEEP_UNMATCHED: Final = ""  # unmatched: what no group wants is kept for groups to come
DEAD_LETTER_UNMATCHED: Final = "dead_letter"  # it is dead-lettered
DROP_UNMATCHED: Final = "drop"  # it is let go of, and its publisher told so

RETRY_ALL: Final = "all"  # retry_kind: whatever comes back waits
RETRY_FAILED: Final = "failed"  # only what counts as an attempt
RETRY_RETURNED: Final = "returned"  # only what does not


@dataclass(frozen=True, slots=True)
class Pause:
    """The halves of a queue that an operator has stopped: taking from publishers, giving to consumers."""

    publish: bool = False
    deliver: bool = False

    def joined(self, other: Pause) -> Pause:
        """Both of them."""
        return Pause(self.publish or other.publish, self.deliver or other.deliver)

    def without(self, other: Pause) -> Pause:
        """Return the pause that is left when the other ends."""
        return Pause(self.publish and not other.publish, self.deliver and not other.deliver)


NOT_PAUSED: Final = Pause()
PAUSED: Final = Pause(publish=True, deliver=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """Limits and behaviour of one queue. Everything but `done_retention_ms` is 0 or "" for "not set".

    `attempts_max` 0 = unlimited; `done_retention_ms` FOREVER or >= 0; `depth_max` 0 = unlimited, NOTHING =
    what no consumer takes at once is too much, and so for `bytes_max`;
    `single_active`: one consumer of each group at a time is given messages.
    `dead_letter` is the queue that takes what is given up, or with `dead_letter_exchange` the routing key it
    is published there with; with `dead_letter_by_key` each message keeps its own routing key.
    `retry_initial_ms` 0: what comes back does so at once; else the waits begin there and grow by
    `retry_multiplier` (at least 1) up to `retry_max_ms`, give or take the fraction `retry_jitter` (0 to 1) of
    each. Deduplication IDs are remembered for `deduplication_window_ms`. With `priority_max` messages of
    higher priority, up to that one, go first. A `stream` keeps what it holds until
    it is older than `retention_age_ms`, or there is more of it than `retention_bytes` of payload or
    `retention_count` messages, and so does any other queue while it has no group; readers of a stream are
    told how far `primary_group` is. With `message_groups`
    ("sticky", or "rebalance") the messages of one key go to one consumer of a group at a time. Nobody is
    given a message `message_ttl_ms` after it was appended. `overflow` says what happens beyond `depth_max`
    messages or `bytes_max` of payload that wait. `expires_ms` is for queues in memory, `unused_max_ms` for
    durable ones: how long they stay without consumers. Leases are `visibility_timeout_ms` for MQTT consumers,
    `consumer_timeout_ms` for AMQP ones if it is set. `unmatched` says what becomes of messages that none
    of the groups there are wants. A `quorum` queue counts as attempts what RabbitMQ's count: not what a
    consumer requeues with nack or recover, nor what its lease took; and it cancels the AMQP consumer whose
    lease ended. `retry_kind`: the waits grow by `retry_initial_ms` each, and only some wait. It takes nothing
    from the publisher `not_from` ("": from all). A consumer group with a name goes when it has not been in
    use for `group_expires_ms`. Of each value of the header `last_value` ("": none) only the newest message is
    kept, but for those that consumers hold.
    """

    visibility_timeout_ms: int
    message_bytes_max: int
    done_retention_ms: int = 60_000
    bucket_size: int = BUCKET_EXPONENT_DEFAULT
    attempts_max: int = 0
    depth_max: int = 0
    expires_ms: int = 0
    dead_letter: str = ""
    dead_letter_exchange: str = ""
    single_active: bool = False
    dead_letter_by_key: bool = False
    retry_initial_ms: int = 0
    retry_max_ms: int = 0
    retry_multiplier: float = 0.0
    retry_jitter: float = 0.0
    priority_max: int = 0
    deduplication_window_ms: int = 300_000
    stream: bool = False
    retention_age_ms: int = 0
    retention_bytes: int = 0
    retention_count: int = 0
    primary_group: str = ""
    message_groups: str = ""
    message_ttl_ms: int = 0
    bytes_max: int = 0
    overflow: str = ""
    unused_max_ms: int = 0
    consumer_timeout_ms: int = 0
    unmatched: str = ""
    quorum: bool = False
    retry_kind: str = ""
    not_from: str = ""
    group_expires_ms: int = 0
    last_value: str = ""

    def binds_keys(self) -> bool:
        """Whether keys are bound to consumers; a single active consumer has all of them anyway."""
        return self.message_groups != "" and not self.single_active

    def retains(self) -> bool:
        """Whether a queue that is no stream lets go of messages while it has no group."""
        limited = self.retention_age_ms or self.retention_bytes or self.retention_count
        return not self.stream and limited > 0

    def counts_bytes(self) -> bool:
        """Whether it matters how many bytes wait in the queue."""
        return self.bytes_max != 0 or self.retention_bytes > 0

    def keeps_nothing(self) -> bool:
        """Whether what waits is too much, however little it is."""
        return NOTHING in (self.depth_max, self.bytes_max)

    def fields(self) -> dict[str, Any]:
        """Everything by name."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES: Final = tuple(field.name for field in fields(QueuePolicy))
