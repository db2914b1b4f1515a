"""A selector, parsed, compiled and kept by its text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal as OneOf
from typing import TypeAlias, get_args

from config import limits
from queue_manager.filters import compile as compiling
from queue_manager.filters import tree
from queue_manager.filters.field_access import DELIVERY_COUNT, NOW, Fields
from queue_manager.filters.grammar import parse

Dialect: TypeAlias = OneOf["jms", "amqp-sql"]

BLANK = " \t\f\r\n"


class Selector:
    """A condition on messages. Selectors of one text and dialect are one object while the cache keeps it.

    `matches(fields) -> bool` is true only when the condition is true, not when that is unknown; it never
    raises, whatever the fields hold. `names` are the fields it looks at, `equality` a field and the text it
    must have for a match (None if there is no such pair), `expression` the tree.
    """

    __slots__ = (
        "dialect",
        "equality",
        "expression",
        "matches",
        "names",
        "needs_delivery_count",
        "needs_now",
        "text",
    )

    def __init__(self, text: str, dialect: Dialect) -> None:
        """Parse and compile; raises SelectorError. Text that may be blank goes to `parse_selector`."""
        self.text = text
        self.dialect = dialect
        self.expression = parse(text, dialect)
        self.names = tree.field_names(self.expression)
        self.equality = tree.equality(self.expression)
        self.needs_delivery_count = DELIVERY_COUNT in self.names
        self.needs_now = NOW in self.names
        self.matches: Callable[[Fields], bool] = compiling.compile_expression(self.expression, dialect)

    def __repr__(self) -> str:
        return f"Selector({self.text!r}, {self.dialect!r})"


def parse_selector(text: str, dialect: Dialect = "jms") -> Selector | None:
    """Return the selector, None when the text is blank (no selector). Raises SelectorError: where and why."""
    if dialect not in get_args(Dialect):
        raise ValueError(f"unknown selector dialect {dialect!r}")
    if not text.strip(BLANK):
        return None
    return _cached(text, dialect)


_cached = lru_cache(maxsize=limits.SELECTOR_CACHE_ENTRIES_MAX)(Selector)
