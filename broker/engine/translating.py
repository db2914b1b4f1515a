"""A part of a client over another one, with what crosses it translated, as the types of what its calls take
and give say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType, NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from broker.engine.answers import Answer

Translation = Callable[[Any], Any]
Translate = Callable[[Any], Translation | None]
"""From a type to how its values are translated; None: they are not."""

_Part = TypeVar("_Part")
_EMPTY: Final = inspect.Parameter.empty
_BY_NAME_ONLY: Final = 1_000  # beyond what is given by place


def translated(part: _Part, stated: type, inward: Translate, outward: Translate) -> _Part:
    """Return a part like `part`, which is as the class `stated`, but what is given goes through `inward` and
    what comes back through `outward`. A default counts as given. Calls that nothing is translated of are the
    part's own.
    """
    calls = {name: call.over(getattr(part, name), inward, outward) for name, call in _calls(stated).items()}
    return cast("_Part", _Translated(part, calls))


class _Translated:
    """A part with these calls instead of its own."""

    def __init__(self, part: object, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._part = part
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class _Given(NamedTuple):
    """An argument of a call."""

    place: int
    name: str
    default: Any
    hint: Any


class _Call(NamedTuple):
    """How a call is stated."""

    given: tuple[_Given, ...]
    result: Any
    is_awaited: bool

    def over(self, method: Callable[..., Any], inward: Translate, outward: Translate) -> Callable[..., Any]:
        """Return the call, translated, over the one of a part."""
        found = [(each, _translation(each.hint, inward)) for each in self.given]
        wanted = [(each, translation) for each, translation in found if translation is not None]
        back = _translation(self.result, outward)
        if not wanted and back is None:
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            by_place = list(arguments)
            for (place, name, default, _), translation in wanted:
                if place < len(by_place):
                    by_place[place] = translation(by_place[place])
                elif name in named or default is not _EMPTY:
                    named[name] = translation(named.get(name, default))
            result = method(*by_place, **named)
            if back is None:
                return result
            if isinstance(result, Answer):  # of a call that is `answered`
                return result.map(back)
            return _awaited(result, back) if self.is_awaited else back(result)

        return call


async def _awaited(result: Any, back: Translation) -> Any:
    return back(await result)


@cache
def _calls(stated: type) -> dict[str, _Call]:
    return {
        name: _call(function)
        for name, function in vars(stated).items()
        if isinstance(function, FunctionType) and not name.startswith("_")
    }


def _call(function: FunctionType) -> _Call:
    hints = get_type_hints(function, include_extras=True)
    result = hints.pop("return")
    return _Call(tuple(_given(function, hints)), result, inspect.iscoroutinefunction(function))


def _given(function: FunctionType, hints: Mapping[str, Any]) -> Iterator[_Given]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for place, each in enumerate(parameters):
        is_by_name = each.kind is inspect.Parameter.KEYWORD_ONLY
        yield _Given(_BY_NAME_ONLY if is_by_name else place, each.name, each.default, hints[each.name])


def _translation(hint: Any, translate: Translate) -> Translation | None:
    """Return how values of a type are translated: also in an answer, in a sequence, and where there may be
    none.
    """
    own = translate(hint)
    if own is not None:
        return own
    inner = [found for each in get_args(hint) if (found := _translation(each, translate)) is not None]
    if not inner:
        return None
    (call,) = inner
    origin = get_origin(hint)
    if origin is Answer:
        return call
    if origin in (Union, UnionType) and NoneType in get_args(hint):
        return lambda value: None if value is None else call(value)
    if origin in (list, tuple, Sequence):
        return lambda values: [call(value) for value in values]
    raise TypeError(f"nobody knows how to translate what is in {hint}")
