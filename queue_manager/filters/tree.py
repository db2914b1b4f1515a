"""The tree of a parsed selector. Parentheses are gone; chains of AND, OR, sums and products stay flat.

`Like.pattern`, `In.items` and so on are as the grammar of the dialect allows them; nothing here checks that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

Comparison: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Numbers have no sign of their own."""

    value: str | bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a field; `field` is a name as in `fields`."""

    field: str


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class Compare:
    operator: Comparison
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between:
    subject: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    subject: Expression
    items: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    subject: Expression
    pattern: str
    escape: str | None
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    subject: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """Operands of one precedence, calculated from left to right: `first`, then each (operator, operand)."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Signed:
    sign: str  # "+" or "-"
    operand: Expression


Expression: TypeAlias = (
    Literal | Name | Or | And | Not | Compare | Between | In | Like | IsNull | Chain | Signed
)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the direct parts of a node, from left to right."""
    match node:
        case Or(operands) | And(operands):
            return operands
        case Not(operand) | Signed(_, operand):
            return (operand,)
        case Compare(_, left, right):
            return (left, right)
        case Between(subject, low, high, _):
            return (subject, low, high)
        case In(subject, items, _):
            return (subject, *items)
        case Like(subject, _, _, _) | IsNull(subject, _):
            return (subject,)
        case Chain(first, rest):
            return (first, *(operand for _, operand in rest))
        case Literal() | Name():
            return ()


def field_names(root: Expression) -> frozenset[str]:
    """Yield every field the expression looks at."""
    names = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Name):
            names.add(node.field)
        waiting.extend(children(node))
    return frozenset(names)


def equality(root: Expression) -> tuple[str, str] | None:
    """Return the first `field = 'text'` that must hold for the whole to be true; None if there is none."""
    match root:
        case Compare("=", Name(field), Literal(str(text))) | Compare("=", Literal(str(text)), Name(field)):
            return field, text
        case And(operands):
            return next((found for operand in operands if (found := equality(operand))), None)
    return None
