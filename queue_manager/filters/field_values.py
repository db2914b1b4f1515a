"""Comparing and calculating with field values. None is NULL, and as a truth value unknown.

Kinds come before values: `True` is not 1, `"2"` is not 2. Both dialects share the arithmetic except division.
Integers have 64 bits; what leaves them is unknown, and so is a division by zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Operation: TypeAlias = Callable[[Any, Any], Any]

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
# below this an int and its double are the same number, so it does not matter which of them is compared
DOUBLE_EXACT_MAX: Final = 2**53


def _double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _jms_comparison(test: Operation, kinds: frozenset[type]) -> Operation:
    """Compare numbers as Java promotes them, `kinds` among themselves; any other pair is false (3.8.1.2)."""

    def compare(left: object, right: object) -> bool | None:
        if left is None or right is None:
            return None
        left_type = type(left)
        right_type = type(right)
        if left_type is int and right_type is float:
            return bool(test(_double(left), right))  # type: ignore[arg-type]
        if left_type is float and right_type is int:
            return bool(test(left, _double(right)))  # type: ignore[arg-type]
        return left_type is right_type and left_type in kinds and bool(test(left, right))

    return compare


def _sql_comparison(test: Operation, kinds: frozenset[type], unlike: bool) -> Operation:
    """Compare numbers exactly, `kinds` among themselves; any other pair gives `unlike`."""

    def compare(left: object, right: object) -> bool | None:
        if left is None or right is None:
            return None
        left_type = type(left)
        right_type = type(right)
        if (left_type is right_type and left_type in kinds) or (
            (left_type is int or left_type is float) and (right_type is int or right_type is float)
        ):
            return bool(test(left, right))
        return unlike

    return compare


_NUMBERS: Final = frozenset({int, float})
_JMS_EQUAL: Final = _NUMBERS | {str, bool}
_SQL_EQUAL: Final = _NUMBERS | {str, bool, bytes}
_SQL_ORDERED: Final = _NUMBERS | {str, bytes}

JMS_COMPARISONS: Final[dict[str, Operation]] = {
    "=": _jms_comparison(operator.eq, _JMS_EQUAL),
    "<>": _jms_comparison(operator.ne, _JMS_EQUAL),
    "<": _jms_comparison(operator.lt, _NUMBERS),
    "<=": _jms_comparison(operator.le, _NUMBERS),
    ">": _jms_comparison(operator.gt, _NUMBERS),
    ">=": _jms_comparison(operator.ge, _NUMBERS),
}
SQL_COMPARISONS: Final[dict[str, Operation]] = {
    "=": _sql_comparison(operator.eq, _SQL_EQUAL, False),
    "<>": _sql_comparison(operator.ne, _SQL_EQUAL, True),
    "<": _sql_comparison(operator.lt, _SQL_ORDERED, False),
    "<=": _sql_comparison(operator.le, _SQL_ORDERED, False),
    ">": _sql_comparison(operator.gt, _SQL_ORDERED, False),
    ">=": _sql_comparison(operator.ge, _SQL_ORDERED, False),
}


def _arithmetic(calculate: Operation) -> Operation:
    def result(left: object, right: object) -> int | float | None:
        if type(left) is int and type(right) is int:
            return bounded(calculate(left, right))
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return float(calculate(_double(left), _double(right)))  # type: ignore[arg-type]
        return None

    return result


def bounded(value: int | None) -> int | None:
    """Return the integer, or unknown when it does not fit 64 bits."""
    return value if value is not None and INTEGER_MIN <= value <= INTEGER_MAX else None


def jms_divide(left: object, right: object) -> int | float | None:
    """Divide as Java does: two integers give an integer, rounded towards zero."""
    if right == 0:
        return None
    if type(left) is int and type(right) is int:
        quotient = abs(left) // abs(right)
        return bounded(quotient if (left < 0) == (right < 0) else -quotient)
    return sql_divide(left, right)


def sql_divide(left: object, right: object) -> float | None:
    """Divide; the result is always a double."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS and right != 0:
        return _double(left) / _double(right)  # type: ignore[arg-type]
    return None


def sql_remainder(left: object, right: object) -> int | None:
    """Calculate the remainder of two integers, with the sign of the first."""
    if type(left) is int and type(right) is int and right != 0:
        remainder = abs(left) % abs(right)
        return bounded(remainder if left >= 0 else -remainder)
    return None


ARITHMETIC: Final[dict[str, Operation]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
}


def plus(value: object) -> object:
    """Calculate unary plus: any number as it is, unknown for all else."""
    return value if type(value) in _NUMBERS else None


def minus(value: object) -> int | float | None:
    """Calculate unary minus; unknown for what is no number."""
    if type(value) is int:
        return bounded(-value)
    return -value if type(value) is float else None


def negation(value: object) -> bool | None:
    """Calculate NOT."""
    return not value if value is True or value is False else None


def conjunction(*values: object) -> bool | None:
    """Calculate AND: one false makes it false, else one unknown makes it unknown."""
    result: bool | None = True
    for value in values:
        if value is False:
            return False
        if value is not True:
            result = None
    return result


def disjunction(*values: object) -> bool | None:
    """Calculate OR: one true makes it true, else one unknown makes it unknown."""
    result: bool | None = False
    for value in values:
        if value is True:
            return True
        if value is not False:
            result = None
    return result


def in_texts(value: object, texts: frozenset[str]) -> bool | None:
    """Calculate IN a list of texts."""
    return None if value is None else type(value) is str and value in texts


def in_values(value: object, *items: object) -> bool | None:
    """Calculate IN a list of any expressions; a NULL among them equals nothing."""
    if value is None:
        return None
    return any(_SQL_EQUAL_TO(value, item) is True for item in items)


_SQL_EQUAL_TO: Final = SQL_COMPARISONS["="]


def between(value: object, low: object, high: object) -> bool | None:
    """Calculate value >= low AND value <= high."""
    return conjunction(JMS_COMPARISONS[">="](value, low), JMS_COMPARISONS["<="](value, high))


def not_between(value: object, low: object, high: object) -> bool | None:
    """Calculate value < low OR value > high, which is not the opposite of `between` when kinds differ."""
    return disjunction(JMS_COMPARISONS["<"](value, low), JMS_COMPARISONS[">"](value, high))


def is_like(value: object, test: Callable[[str], bool]) -> bool | None:
    """Calculate LIKE: unknown for what is no text."""
    return test(value) if type(value) is str else None
