"""Why a filter is refused. All of it happens when a consumer subscribes, never while messages flow."""

from typing import Final

SHOWN_CHARS_MAX: Final = 40  # of the peer's text in a reason


def shown(text: str) -> str:
    """Return a piece of the peer's text, as a reason may quote it."""
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."


class FilterError(Exception):
    """Base of every refusal. `reason` says what is wrong and where, fit for the peer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SelectorError(FilterError):
    """The selector text is not usable. `position` is the column, from 1, in characters of the whole text."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"selector, column {position}: {reason}")
        self.position = position


class PropertyFilterError(FilterError):
    """A property filter is malformed. `key` is the entry at fault, "" when it is the filter as a whole."""

    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(
            f"property filter, {shown(key)!r}: {reason}" if key else f"property filter: {reason}"
        )
        self.key = key
