"""From the tree of a selector to two Python functions.

Every node has three forms: what is true when the node is true, what is true when it is false, and its value
(None: unknown). `matches` is the true form of the root, so that in most selectors three-valued logic costs
nothing: true(a AND b) is true(a) and true(b), true(NOT a) is false(a), and so on down. `evaluate` is the
value form, made of the helpers in `values`.

The code is put together as syntax nodes from our own templates; names and texts of the user enter it as
constants only, and no part of the selector's text is ever compiled. Each subexpression stands once in a form, so code
and time are linear in the selector.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final, NamedTuple

from queue_manager.filters import like, templates, values
from queue_manager.filters.fields import Fields
from queue_manager.filters.tree import (
    And,
    Between,
    Chain,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Or,
    Signed,
)


class Compiled(NamedTuple):
    """The functions of one selector."""

    matches: Callable[[Fields], bool]
    evaluate: Callable[[Fields], bool | None]


_HELPERS: Final[dict[str, object]] = {
    "type": type,
    "str": str,
    "int": int,
    "float": float,
    "bytes": bytes,
    "conjunction": values.conjunction,
    "disjunction": values.disjunction,
    "negation": values.negation,
    "truth": values.truth,
    "plus": values.plus,
    "minus": values.minus,
    "calculate_0": values.ARITHMETIC["+"],
    "calculate_1": values.ARITHMETIC["-"],
    "calculate_2": values.ARITHMETIC["*"],
    "is_like": lambda value, test: test(value) if type(value) is str else None,
    "__builtins__": {},
}
_COMPARISON_NAMES: Final = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_CALCULATION_NAMES: Final = {"+": "calculate_0", "-": "calculate_1", "*": "calculate_2", "/": "divide", "%": "mod"}
