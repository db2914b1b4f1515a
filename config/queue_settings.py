"""Settings of one queue: an entry of `queues:` in the configuration file."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from config import limits, name_rules, units
from config.field_types import (
    Count,
    DurationMs,
    Fraction,
    PositiveDurationMs,
    RetentionMs,
    Section,
    SizeBytes,
)

_NOT_FOR_STREAMS = (
    "done_retention_ms", "bucket_size", "retry", "dlq", "overflow", "max_priority", "message_groups",
    "unmatched", "last_value",
)  # fmt: skip
_STREAM_LIMITS: Final = {
    "max_depth": "max_length_messages",
    "max_bytes": "max_length_bytes",
    "message_ttl_ms": "max_age",
}
_KEYS = {"done_retention_ms": "done_retention"}

QueueName = Annotated[str, AfterValidator(name_rules.check_queue_name)]
TopicFilter = Annotated[str, AfterValidator(name_rules.check_topic_filter)]


def _off_is_a_word(value: Any) -> Any:
    """Read `False` as `off`, as YAML reads a bare `off` as false."""
    return "off" if value is False else value


class RetrySettings(Section):
    """How often, and after how long, a message is tried again before it counts as failed."""

    max_retries: Count = Field(default=0, ge=0, lt=limits.ATTEMPTS_MAX)
    """Tries after the first; a message failing `max_retries + 1` attempts is failed. 0: tried without end."""
    initial_backoff_ms: DurationMs = Field(default=0, validation_alias="initial_backoff")
    """Wait before the second attempt, in ms; 0: messages return at once."""
    max_backoff_ms: PositiveDurationMs = Field(default=300_000, validation_alias="max_backoff")
    """Longest wait in ms."""
    multiplier: Fraction = Field(default=2.0, ge=1, le=limits.RETRY_MULTIPLIER_MAX)
    """The factor between each wait and the one before."""
    jitter: Fraction = Field(default=0.0, ge=0, le=1)
    """The part of a wait by which it may be longer or shorter."""

    @model_validator(mode="after")
    def _back_off_makes_sense(self) -> "RetrySettings":
        others = self.model_fields_set & {"max_backoff_ms", "multiplier", "jitter"}
        if not self.initial_backoff_ms:
            if others:
                raise ValueError("max_backoff, multiplier and jitter need an initial_backoff")
        elif self.initial_backoff_ms > self.max_backoff_ms:
            raise ValueError("initial_backoff is longer than max_backoff")
        return self


class DlqSettings(Section):
    """Where messages go that a queue gives up."""

    short_key: ClassVar[str] = "topic"

    enabled: bool = True
    """Whether they go anywhere; otherwise they stay, as failed ones."""
    topic: str = ""
    """The dead-letter queue: its name or `$queue/<name>`; "" is the queue's own name with `.dlq`."""

    @field_validator("topic")
    @classmethod
    def _topic_is_a_queue(cls, value: str) -> str:
        name = value
        if value.startswith("$queue/"):
            name = name_rules.queue_of_level(value.removeprefix("$queue/"))
        elif value.startswith("$"):
            raise ValueError("is neither the name of a queue nor $queue/<name>")
        return name_rules.check_queue_name(name) if name or value else ""


class QueueLimitsSettings(Section):
    """How much a queue takes, and for how long."""

    unsupported_keys: ClassVar[Mapping[str, str]] = {
        "overflow": "overflow belongs to the queue itself, beside limits",
    }

    max_message_size_bytes: SizeBytes = Field(
        default=limits.MESSAGE_BYTES_DEFAULT_MAX, validation_alias="max_message_size"
    )
    """Largest payload in bytes."""
    max_depth: Count = Field(default=0, ge=0, le=limits.QUEUE_DEPTH_MESSAGES_MAX)
    """Most messages that wait at once; 0: no limit."""
    max_bytes: SizeBytes = 0
    """Most payload of messages that wait, in bytes; 0: no limit."""
    message_ttl_ms: DurationMs = Field(default=0, validation_alias="message_ttl")
    """How long a message may wait, in ms; 0: without end. A publisher may ask for less."""

    @field_validator("max_message_size_bytes")
    @classmethod
    def _message_size_in_range(cls, value: int) -> int:
        if not 1 <= value <= limits.MESSAGE_BYTES_MAX:
            raise ValueError(f"must be between 1B and {units.format_size_bytes(limits.MESSAGE_BYTES_MAX)}")
        return value


PRIORITY_MAX: Final = limits.PRIORITY_MAX
GROUPS_MAX: Final = limits.GROUPS_PER_QUEUE_MAX
DEDUPLICATION_WINDOW_MS_MAX: Final = limits.DEDUPLICATION_WINDOW_MS_MAX
LAST_VALUE_BYTES_MAX: Final = limits.LAST_VALUE_BYTES_MAX


class RetentionSettings(Section):
    """How much is kept: of a stream; of another queue while it has no consumer group.

    Of a stream whole stretches go, each about a 16th of the limit.
    """

    max_age_ms: DurationMs = Field(default=0, validation_alias="max_age")
    """Messages older than this go, in ms; 0: never for that reason."""
    max_length_bytes: SizeBytes = 0
    """Payload bytes kept; 0: no limit."""
    max_length_messages: Count = Field(default=0, ge=0, le=limits.QUEUE_DEPTH_MESSAGES_MAX)
    """Messages kept; 0: no limit."""


class GroupSettings(Section):
    """A consumer group that exists from the start."""

    short_key: ClassVar[str] = "name"

    name: str
    """1 to 255 bytes of UTF-8 without `@`."""
    pattern: str = "#"
    """The pattern of the part of the topic below the queue, with MQTT's `+` and `#`."""
    selector: str = ""
    """A JMS message selector; "" is none. It cannot change later."""
    start: str | int = "earliest"
    """Where the group begins, if it has to be made: `earliest`, `latest`, an offset, `timestamp=<ms>`."""

    @field_validator("name")
    @classmethod
    def _name_is_allowed(cls, value: str) -> str:
        return name_rules.check_group_name(value)

    @property
    def group_id(self) -> str:
        """The name, with `@` and the pattern unless that is `#`."""
        return self.name if self.pattern == "#" else f"{self.name}@{self.pattern}"


class QueueSettings(Section):
    """One queue that exists from the start."""

    unsupported_keys: ClassVar[Mapping[str, str]] = {
        "replication": "replication is not supported by this version: one broker keeps a queue; leave it out",
    }

    name: QueueName
    """1 to 255 bytes of UTF-8, one topic level."""
    topics: tuple[TopicFilter, ...] = ()
    capture: bool = False
    """Whether `topics` may be ordinary ones: what devices publish there goes into the queue, too."""
    """MQTT topic filters whose publishes the queue takes; never empty (default `$queue/<name>/#`)."""
    description: Annotated[str, AfterValidator(name_rules.check_description)] = ""
    """The purpose of the queue, in words."""
    type: Literal["classic", "ephemeral", "stream"] = "classic"
    visibility_timeout_ms: PositiveDurationMs | None = Field(
        default=None, validation_alias="visibility_timeout"
    )
    """Lease of a delivery in ms; None: as `queue_manager.visibility_timeout`."""
    done_retention_ms: RetentionMs = Field(default=60_000, validation_alias="done_retention")
    """How long done records and their payloads are kept, in ms; 0: not at all; None: for ever."""
    bucket_size: Count = Field(default=2, ge=0, le=4)
    """Exponent e of the active bucket: 10**e messages share one record."""
    retry: RetrySettings = RetrySettings()
    dlq: DlqSettings | None = None
    """None: messages that are given up stay, as failed ones. A bare name means `topic`."""
    limits: QueueLimitsSettings = QueueLimitsSettings()
    single_active_consumer: bool = False
    """One consumer of each group at a time is given messages; the next takes over when it goes."""
    max_priority: Count = Field(default=0, ge=0, le=PRIORITY_MAX)
    """Messages have priorities from 0 to this one, the highest goes first; 0: they have none."""
    message_groups: Annotated[Literal["off", "sticky", "rebalance"], BeforeValidator(_off_is_a_word)] = "off"
    """Messages of one key go to one consumer of each group; `rebalance` shares keys out when one joins."""
    last_value: str = Field(default="", max_length=LAST_VALUE_BYTES_MAX)
    """A header: of each of its values only the newest message is kept."""
    deduplication_window_ms: PositiveDurationMs = Field(
        default=300_000, le=DEDUPLICATION_WINDOW_MS_MAX, validation_alias="deduplication_window"
    )
    """How long in ms a deduplication ID is remembered."""
    groups: tuple[GroupSettings, ...] = Field(default=(), max_length=GROUPS_MAX)
    """Consumer groups, made if they are not there; others come with their first consumer."""
    group_expires_ms: DurationMs = Field(default=0, validation_alias="group_expires")
    """A group that has a name and is not in use goes after so long, in ms; 0: only one that was made up."""
    retention: RetentionSettings = RetentionSettings()
    primary_group: str = ""
    """Only for streams: the group whose progress the readers of all groups are told; "" is none."""
    overflow: Literal["reject-publish", "reject-publish-dlx", "drop-head"] = "reject-publish"
    """Beyond `max_depth` or `max_bytes`: the publish is refused, and dead-lettered, or the oldest go."""
    unmatched: Literal["keep", "dead_letter", "drop"] = "keep"
    """The treatment of messages that no group wants: kept for groups to come, or not."""

    @field_validator("dlq", mode="before")
    @classmethod
    def _dlq_by_name(cls, value: Any) -> Any:
        return {"topic": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _stream_or_not(self) -> "QueueSettings":
        if self.type == "stream":
            refused = [key for key in _NOT_FOR_STREAMS if key in self.model_fields_set]
            if refused:
                raise ValueError(f"{_KEYS.get(refused[0], refused[0])} means nothing for a stream")
            for name, instead in _STREAM_LIMITS.items():
                if getattr(self.limits, name):
                    raise ValueError(
                        f"a stream has no limits.{name.removesuffix('_ms')}: use retention.{instead}"
                    )
            if self.primary_group:
                name_rules.check_group_name(self.primary_group)
        elif self.primary_group:
            raise ValueError("primary_group is only for type stream")
        return self

    @model_validator(mode="after")
    def _last_values_have_one_log(self) -> "QueueSettings":
        if self.last_value and (self.max_priority or self.message_groups != "off"):
            raise ValueError("last_value is not for queues with max_priority or message_groups")
        return self

    @field_validator("groups")
    @classmethod
    def _groups_are_a_set(cls, value: tuple[GroupSettings, ...]) -> tuple[GroupSettings, ...]:
        ids = [group.group_id for group in value]
        for position, group_id in enumerate(ids):
            if group_id in ids[:position]:
                raise ValueError(f"names {group_id!r} twice")
        return value

    @property
    def dead_letter(self) -> str:
        """The name of the dead-letter queue; "" if there is none."""
        if self.dlq is None or not self.dlq.enabled:
            return ""
        return self.dlq.topic or f"{self.name}.dlq"

    @model_validator(mode="after")
    def _dead_letters_leave(self) -> "QueueSettings":
        if self.dead_letter:
            name_rules.check_queue_name(self.dead_letter)
            if self.dead_letter == self.name:
                raise ValueError("dlq must be another queue")
        elif self.unmatched == "dead_letter":
            raise ValueError("unmatched: dead_letter needs a dlq")
        return self

    @model_validator(mode="after")
    def _ordinary_topics_are_captured(self) -> "QueueSettings":
        for topic in self.topics:
            if topic.startswith("$queue/"):
                continue
            if not self.capture:
                raise ValueError(f"{topic!r} is outside $queue/: set capture to have the queue take it, too")
            if topic.startswith("$"):
                raise ValueError(f"{topic!r} belongs to the broker")
            if "*" in topic.split("/"):
                raise ValueError(f"{topic!r}: a level '*' cannot be captured")
        return self

    @model_validator(mode="before")
    @classmethod
    def _bind_to_own_address(cls, data: Any) -> Any:
        if isinstance(data, dict) and "topics" not in data and isinstance(data.get("name"), str):
            return {**data, "topics": (f"$queue/{name_rules.queue_level(data['name'])}/#",)}
        return data

    @field_validator("topics")
    @classmethod
    def _topics_are_a_set(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("must name a topic; leave it out to bind $queue/<name>/#")
        if len(value) > limits.QUEUE_TOPICS_MAX:
            raise ValueError(f"at most {limits.QUEUE_TOPICS_MAX} topics, not {len(value)}")
        for position, topic in enumerate(value):
            if topic in value[:position]:
                raise ValueError(f"names {topic!r} twice")
        return value
