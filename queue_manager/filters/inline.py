"""Conditions quick enough to write in place: one subject against constants.

A `Test` passes or not for every subject that is not NULL, and never passes for NULL. A negated one is true
for the subjects that are not NULL and do not pass.
"""

from __future__ import annotations

import ast
from typing import Any, Final, NamedTuple, TypeVar, cast

from queue_manager.filters import field_values, like
from queue_manager.filters.tree import Between, Compare, Expression, In, Literal, Signed

Node = TypeVar("Node", bound=ast.AST)


def expression(text: str) -> ast.expr:
    """Return a template of ours; names that `fill` is given are its places."""
    return ast.parse(text, mode="eval").body


def fill(template: Node, parts: dict[str, ast.expr]) -> Node:
    """Return a copy of the template with every name in `parts` replaced; the parts are not copied."""
    return cast(Node, _copied(template, parts))


def _copied(value: object, parts: dict[str, ast.expr]) -> object:
    if isinstance(value, list):
        return [_copied(item, parts) for item in value]
    if not isinstance(value, ast.AST):
        return value
    if isinstance(value, ast.Name) and value.id in parts:
        return parts[value.id]
    copy = type(value)()
    for field, inner in ast.iter_fields(value):
        setattr(copy, field, _copied(inner, parts))
    return copy


_OPERATORS: Final = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# no kind is asked for where only one kind can be equal to the constant
_SAME_TEXT: Final = expression("subject == literal")
_SAME_BOOLEAN: Final = expression("subject is literal")
_NUMBER: Final = "((t := type(v := subject)) is int or t is float) and "
_NUMBERS: Final = {sign: expression(f"{_NUMBER} v {python} literal") for sign, python in _OPERATORS.items()}
_TEXTS: Final = {
    sign: expression(f"type(v := subject) is str and v {python} literal")
    for sign, python in _OPERATORS.items()
}
_BINARIES: Final = {
    sign: expression(f"type(v := subject) is bytes and v {python} literal")
    for sign, python in _OPERATORS.items()
}
_BETWEEN: Final = expression(f"{_NUMBER} low <= v <= high")
_NOT_BETWEEN: Final = expression(f"{_NUMBER} (v < low or v > high)")
_IN: Final = expression("type(v := subject) is str and v in items")

LIKE_TEMPLATES: Final = {
    like.EXACT: expression("v == literal"),
    like.PREFIX: expression("v.startswith(literal)"),
    like.SUFFIX: expression("v.endswith(literal)"),
    like.CONTAINS: expression("literal in v"),
}


class Test(NamedTuple):
    """A template with the places `subject` and those in `constants`; it may bind `v` and `t`."""

    subject: Expression
    template: ast.expr
    constants: dict[str, ast.expr]
    negated: bool = False


def test(node: Expression, is_jms: bool) -> Test | None:
    """The test that a condition comes to, or None when it has to be calculated with values."""
    match node:
        case Compare(operator, left, right):
            left_constant = _constant(left)
            right_constant = _constant(right)
            if left_constant is None and right_constant is not None:
                return _comparison(left, operator, right_constant, is_jms)
            if right_constant is None and left_constant is not None:
                return _comparison(right, _MIRRORED[operator], left_constant, is_jms)
        case Between(subject, low, high, negated):
            bounds = {"low": _constant(low), "high": _constant(high)}
            if all(_is_plain_number(bound, is_jms) for bound in bounds.values()):
                constants: dict[str, ast.expr] = {name: ast.Constant(bound) for name, bound in bounds.items()}
                return Test(subject, _NOT_BETWEEN if negated else _BETWEEN, constants)
        case In(subject, items, negated):
            choices = texts(items)
            if choices is not None:
                return Test(subject, _IN, {"items": ast.Constant(cast(Any, choices))}, negated)
    return None


def texts(items: tuple[Expression, ...]) -> frozenset[str] | None:
    """Return the items of an IN list, if all are texts."""
    found = [item.value for item in items if isinstance(item, Literal) and isinstance(item.value, str)]
    return frozenset(found) if len(found) == len(items) else None


def _constant(node: Expression) -> str | bool | int | float | bytes | None:
    match node:
        case Literal(value):
            return value
        case Signed("-", Literal(int() | float() as value)):
            return field_values.minus(value)
        case Signed("+", Literal(int() | float() as value)) if not isinstance(value, bool):
            return value
    return None


def _is_plain_number(constant: object, is_jms: bool) -> bool:
    """Return whether comparing exactly, as Python does, is what the dialect asks for: beyond it Java
    rounds.
    """
    if type(constant) is not int and type(constant) is not float:
        return False
    return not is_jms or abs(constant) < field_values.DOUBLE_EXACT_MAX


def _comparison(subject: Expression, operator: str, constant: object, is_jms: bool) -> Test | None:
    is_order = operator not in ("=", "<>")
    literal: dict[str, ast.expr] = {"literal": ast.Constant(cast(Any, constant))}
    # unlike kinds are unequal in SQL, while in JMS they are neither equal nor unequal
    if operator == "<>" and not is_jms:
        equal = _comparison(subject, "=", constant, is_jms)
        return None if equal is None else equal._replace(negated=True)
    if isinstance(constant, bool):
        if is_order:
            return None
        wanted = constant if operator == "=" else not constant
        return Test(subject, _SAME_BOOLEAN, {"literal": ast.Constant(wanted)})
    if isinstance(constant, str):
        if is_order and is_jms:
            return None
        return Test(subject, _SAME_TEXT if operator == "=" else _TEXTS[operator], literal)
    if isinstance(constant, bytes):
        return None if is_jms else Test(subject, _BINARIES[operator], literal)
    return Test(subject, _NUMBERS[operator], literal) if _is_plain_number(constant, is_jms) else None
