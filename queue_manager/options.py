"""The options of one publish, whatever protocol it came by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from config import limits
from queue_manager.errors import InvalidArgument
from queue_manager.stage_tags import NUMBER_MAX, TAG_NAMES, StageTag, number, read_tag

# AMQP headers and MQTT user properties of these names
DELAY: Final = "x-delay"
DELIVER_AT: Final = "deliver-at"
DEDUPLICATION_ID: Final = "x-deduplication-id"
PRODUCER_ID: Final = "x-producer-id"
PRODUCER_SEQUENCE: Final = "x-producer-sequence"
NAMES: Final = (DELAY, DELIVER_AT, DEDUPLICATION_ID, PRODUCER_ID, PRODUCER_SEQUENCE, *TAG_NAMES)

TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """`ttl_ms` None: lives as long as its queue lets it. `delay_ms` counts from the publish, `deliver_at_ms`
    is a time; 0 is at once. `producer_id` with `producer_sequence` (rising) or `deduplication_id` tell a
    publish that was sent again. `stage`: it is not to be seen before its epoch is committed.
    """

    priority: int = 0
    ttl_ms: int | None = None
    delay_ms: int = 0
    deliver_at_ms: int = 0
    deduplication_id: str = ""
    producer_id: str = ""
    producer_sequence: int = 0
    stage: StageTag | None = None

    @property
    def is_identified(self) -> bool:
        """Whether the publish can be told from another."""
        return bool(self.deduplication_id or self.producer_id)

    def due_ms(self, now_ms: int) -> int:
        """When a message published at `now_ms` may be delivered; raises InvalidArgument if too far."""
        due_ms = max(now_ms + self.delay_ms, self.deliver_at_ms)
        if due_ms > TIME_MS_MAX:
            raise InvalidArgument(f"{DELAY} {self.delay_ms} ends after the year 9999")
        return due_ms


PLAIN: Final = PublishOptions()


def read_options(
    values: dict[str, object], *, priority: int = 0, ttl_ms: int | None = None
) -> PublishOptions:
    """Options from those of `NAMES` that a publish has; texts of digits count as numbers.

    Raises InvalidArgument naming the one that is wrong.
    """
    sequence = values.get(PRODUCER_SEQUENCE)
    producer_id = _text(PRODUCER_ID, values.get(PRODUCER_ID))
    if (sequence is None) != (not producer_id):
        raise InvalidArgument(f"{PRODUCER_ID} and {PRODUCER_SEQUENCE} go together")
    return PublishOptions(
        priority=priority,
        ttl_ms=None if ttl_ms is None else min(ttl_ms, limits.DURATION_MS_MAX),
        delay_ms=_number(values, DELAY, TIME_MS_MAX),
        deliver_at_ms=_number(values, DELIVER_AT, TIME_MS_MAX),
        deduplication_id=_text(DEDUPLICATION_ID, values.get(DEDUPLICATION_ID)),
        producer_id=producer_id,
        producer_sequence=_number(values, PRODUCER_SEQUENCE, NUMBER_MAX),
        stage=read_tag(values),
    )


def _number(values: Mapping[str, object], name: str, number_max: int) -> int:
    return 0 if values.get(name) is None else number(values, name, number_max)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not 1 <= len(text.encode()) <= limits.PUBLISH_OPTION_BYTES_MAX:
        raise InvalidArgument(f"{name} must be a text of 1 to {limits.PUBLISH_OPTION_BYTES_MAX} bytes")
    return text
