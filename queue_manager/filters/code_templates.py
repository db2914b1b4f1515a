"""Pieces of Python syntax with places to fill, so that the compiler never puts code together as text."""

from __future__ import annotations

import ast
from typing import TypeVar, cast

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
