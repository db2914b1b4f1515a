"""Headers and user properties that the broker acts on: each may be there once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from queue_manager.errors import InvalidArgument


def single_values(
    headers: Iterable[tuple[str, Any]], what: str, names: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the values of these names (None: all).

    Raises InvalidArgument if a name is there twice, since either could be meant. `what` they are is for the
    reason.
    """
    values: dict[str, Any] = {}
    for name, value in headers:
        if names is not None and name not in names:
            continue
        if name in values:
            raise InvalidArgument(f"{what} {name} is there more than once")
        values[name] = value
    return values


def aliased_value(values: dict[str, Any], names: Iterable[str]) -> tuple[str, Any]:
    """Return the value of one of several names for the same thing, with that name; ("", None) if there is
    none.

    Raises InvalidArgument if two say different things.
    """
    given = [name for name in names if name in values]
    if not given:
        return "", None
    name = given[0]
    for other in given[1:]:
        if values[other] != values[name]:
            raise InvalidArgument(f"{name} {values[name]!r} and {other} {values[other]!r} differ")
    return name, values[name]
