"""Where exchanges and what they are bound to stand in a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config import limits
from queue_manager.api import BindingDefinition

_LEFT_X: Final = 20
_RIGHT_X: Final = 640
_STEP: Final = 44
_MIDDLE: Final = 15
_TITLE_CHARACTERS: Final = 30


@dataclass(frozen=True, slots=True)
class Box:
    """An exchange or a queue."""

    x: int
    y: int
    title: str


@dataclass(frozen=True, slots=True)
class Edge:
    """The bindings between two of them, with their routing keys."""

    from_y: int
    to_y: int
    label_y: int
    key: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of it; `left_out` bindings found no place."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    height: int
    left_out: int


def drawing_of(bindings: Sequence[BindingDefinition]) -> Drawing:
    """Draw sources on the left, destinations on the right, as many as can be read."""
    drawn = bindings[: limits.DRAWN_BINDINGS_MAX]
    sources = {name: index for index, name in enumerate(dict.fromkeys(each.source for each in drawn))}
    targets = {
        key: index
        for index, key in enumerate(
            dict.fromkeys((each.destination_type, each.destination) for each in drawn)
        )
    }
    boxes = [Box(_LEFT_X, _y(index), _short(name)) for name, index in sources.items()]
    boxes += [
        Box(_RIGHT_X, _y(index), _short(name if kind == "queue" else f"{name} (exchange)"))
        for (kind, name), index in targets.items()
    ]
    keys: dict[tuple[int, int], list[str]] = {}
    for each in drawn:
        begin = _y(sources[each.source]) + _MIDDLE
        end = _y(targets[each.destination_type, each.destination]) + _MIDDLE
        keys.setdefault((begin, end), []).append(each.routing_key)
    edges = [
        Edge(begin, end, (begin + end) // 2 - 3, _short(", ".join(found)))
        for (begin, end), found in keys.items()
    ]
    height = _y(max(len(sources), len(targets), 1))
    return Drawing(tuple(boxes), tuple(edges), height, len(bindings) - len(drawn))


def _y(index: int) -> int:
    return 10 + index * _STEP


def _short(text: str) -> str:
    return text if len(text) <= _TITLE_CHARACTERS else text[: _TITLE_CHARACTERS - 1] + "\u2026"
