"""The tag of staged rows: producer, epoch, part, attempt, as a publish or a control call names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from config import limits
from queue_manager.errors import InvalidArgument

# AMQP headers and MQTT user properties of these names
PRODUCER: Final = "x-stage-producer"
EPOCH: Final = "x-stage-epoch"
PART: Final = "x-stage-part"
ATTEMPT: Final = "x-stage-attempt"
CHECKSUM: Final = "x-stage-checksum"
TAG_NAMES: Final = (PRODUCER, EPOCH, PART, ATTEMPT)

NUMBER_MAX: Final = (1 << 63) - 1


class StageTag(NamedTuple):
    """One attempt at one part of an epoch."""

    producer: str
    epoch: int
    part: int
    attempt: str


class EpochPart(NamedTuple):
    """A part of a commit: the attempt that is to count for the part, and how many rows it has."""

    part: int
    attempt: str
    row_count: int


def read_tag(values: Mapping[str, object]) -> StageTag | None:
    """Read the tag of a publish, None if it has none; raises InvalidArgument with what is wrong in it."""
    if not any(name in values for name in TAG_NAMES):
        return None
    return StageTag(
        text(values, PRODUCER), number(values, EPOCH), number(values, PART), text(values, ATTEMPT)
    )


def text(values: Mapping[str, object], name: str) -> str:
    """Read a name of 1 to `limits.PUBLISH_OPTION_BYTES_MAX` bytes; raises InvalidArgument."""
    value = values.get(name)
    bytes_max = limits.PUBLISH_OPTION_BYTES_MAX
    if isinstance(value, str) and 1 <= len(value.encode()) <= bytes_max and "\0" not in value:
        return value
    raise InvalidArgument(f"{name} must be a text of 1 to {bytes_max} bytes without NUL, not {value!r}")


def number(values: Mapping[str, object], name: str, number_max: int = NUMBER_MAX) -> int:
    """Read a whole number, also as text; raises InvalidArgument."""
    value = values.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= number_max:
        raise InvalidArgument(f"{name} must be a whole number from 0 to {number_max}, not {value!r}")
    return value
