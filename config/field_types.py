"""The field types that the settings models share: numbers, durations, sizes, choices with refused values."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)

from config import limits, units

FROM_TEXT: Final = {"from_text": True}
"""Validation context for what a person wrote: there a bare number is no duration (Python callers pass ms)."""


class Section(BaseModel):
    """One mapping of the configuration file. Immutable; unknown keys are errors.

    Python code constructs it by attribute name (units in the name), files use the keys of the documentation.
    """

    unsupported_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that are refused with a reason of their own rather than as unknown."""

    short_key: ClassVar[str] = ""
    """The key that a bare text in place of the section stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _read_duration(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        return units.parse_duration_ms(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a duration, such as 30s")
    if value and info.context == FROM_TEXT:
        return units.parse_duration_ms(str(value))
    if not 0 <= value <= limits.DURATION_MS_MAX:
        raise ValueError(f"must be between 0 and {limits.DURATION_MS_MAX} ms")
    return value


def _read_retention(value: Any, info: ValidationInfo) -> Any:
    if value is None or value == "infinite":
        return None
    return _read_duration(value, info)


def _read_size(value: Any) -> Any:
    if isinstance(value, str):
        return units.parse_size_bytes(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a size, such as 10MiB")
    if not 0 <= value <= limits.SIZE_BYTES_MAX:
        raise ValueError(f"must be between 0 and {units.format_size_bytes(limits.SIZE_BYTES_MAX)}")
    return value


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):  # bool is an int to Python
        raise ValueError("must be a whole number")
    return value


def _refuse_zero(value: int) -> int:
    if value == 0:
        raise ValueError("must be longer than 0")
    return value


def _refuse_no_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def _hidden(value: str) -> str:
    return "***"


SecretText = Annotated[str, PlainSerializer(_hidden, when_used="json")]
"""A secret that stands in the configuration: shown to nobody who looks at the settings."""
Count = Annotated[int, BeforeValidator(_refuse_bool)]
Fraction = Annotated[float, BeforeValidator(_refuse_no_number), Field(allow_inf_nan=False)]
DurationMs = Annotated[int, BeforeValidator(_read_duration)]
PositiveDurationMs = Annotated[int, BeforeValidator(_read_duration), AfterValidator(_refuse_zero)]
RetentionMs = Annotated[int | None, BeforeValidator(_read_retention)]
SizeBytes = Annotated[int, BeforeValidator(_read_size)]
