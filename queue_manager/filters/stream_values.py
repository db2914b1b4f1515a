"""The filter of a stream's consumer by the value that publishers gave each message for that."""

from __future__ import annotations

from typing import Final

from config import limits
from queue_manager.filters.errors import FilterError
from queue_manager.filters.field_access import Fields

FIELD: Final = "x-stream-filter-value"
"""The header, or annotation, that has the value."""


class StreamValues:
    """Matches messages with one of these values; with `takes_unfiltered` those without a value, too.

    Implements `queue_manager.filters.field_access.MessageFilter`. Each message is looked at, so nothing comes
    that was not asked for.
    """

    __slots__ = ("_values", "equality", "names", "needs_delivery_count", "needs_now", "takes_unfiltered")

    def __init__(self, values: object, *, takes_unfiltered: bool) -> None:
        """Take a value or a list of them; raises FilterError."""
        given = [values] if isinstance(values, str) else values
        if not isinstance(given, list) or not given or not all(isinstance(value, str) for value in given):
            raise FilterError("it is a text, or a list of texts")
        if len(given) > limits.STREAM_FILTER_VALUES_MAX:
            raise FilterError(f"it has at most {limits.STREAM_FILTER_VALUES_MAX} values")
        self._values = frozenset(str(value) for value in given)
        self.takes_unfiltered = takes_unfiltered
        self.names = frozenset((FIELD,))
        self.equality: tuple[str, str] | None = None
        self.needs_delivery_count = False
        self.needs_now = False

    @property
    def key(self) -> list[object]:
        """What is the same of filters that say the same."""
        return [FIELD, sorted(self._values), self.takes_unfiltered]

    def matches(self, fields: Fields, /) -> bool:
        """Return whether the message is selected."""
        value = fields.get(FIELD)
        return self.takes_unfiltered if value is None else value in self._values
