"""Text that others chose, for a terminal: no character of it moves the cursor, or hides what stands there."""

from __future__ import annotations

from typing import Final

import structlog

_TRACEBACK: Final = "exception"


def printable(text: str) -> str:
    """Return the text with escapes, as Python writes them, in the place of characters that cannot be seen."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def make_printable(
    logger: object, method_name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Make the values of a line printable, as a processor of structlog; a traceback keeps its lines."""
    for name, value in event.items():
        if not isinstance(value, str):
            continue
        if name == _TRACEBACK:
            event[name] = "\n".join(map(printable, value.split("\n")))
        else:
            event[name] = printable(value)
    return event


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
