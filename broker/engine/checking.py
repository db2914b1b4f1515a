"""Checks before a call of administration: that the broker works, and the types of arguments, so that
`limit="5"` is told there, not somewhere deep inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine
from functools import wraps
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from queue_manager.errors import InvalidArgument

C = TypeVar("C", bound=type)


def checks_calls(cls: C) -> C:
    """Have the public coroutine methods of a class call its `check` first, and raise InvalidArgument, naming
    the argument, for values that are not what the annotations say.
    """
    for name, method in list(vars(cls).items()):
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    signature = inspect.signature(method)
    hints = get_type_hints(method)
    expected = {name: _kinds(hints[name]) for name in signature.parameters if hints.get(name, Any) is not Any}

    @wraps(method)
    async def call(*arguments: Any, **named: Any) -> Any:
        arguments[0].check()
        for name, value in signature.bind(*arguments, **named).arguments.items():
            kinds = expected.get(name)
            if kinds is None or (type(value), None) in kinds:
                continue
            if not any(_is_a(value, kind, items) for kind, items in kinds):
                wanted = " or ".join(_title(kind, items) for kind, items in kinds)
                raise InvalidArgument(f"{name} must be {wanted}, not {type(value).__name__}")
        return await method(*arguments, **named)

    return call


def _kinds(hint: Any) -> list[tuple[type, type | None]]:
    """Return the classes a value may have, each with that of its items (None: not looked at)."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    if origin is Literal:
        return [(str, None)]
    if origin is Collection:
        return [(Collection, get_args(hint)[0])]
    return [(origin or hint, None)]


def _is_a(value: object, kind: type, items: type | None) -> bool:
    if isinstance(value, bool):  # an int to Python
        return kind is bool
    if items is not None:
        return (
            isinstance(value, kind)
            and not isinstance(value, str | bytes)
            and all(_is_a(item, items, None) for item in value)  # type: ignore[attr-defined]
        )
    return isinstance(value, int | float if kind is float else kind)


def _title(kind: type, items: type | None) -> str:
    name = "None" if kind is NoneType else kind.__name__
    return name if items is None else f"{name} of {items.__name__}"
