"""Priority levels: each has a log of its own, stored under a name of its own.

The log of level 0 has the queue's name. Offsets of level p begin at p * 2**56: no two messages of a queue
share one.
"""

from __future__ import annotations

from typing import Final

from storage.layout import LEVEL_SEPARATOR

LEVEL_SHIFT: Final = 56


def level_name(queue_name: str, priority: int) -> str:
    """Return the name the log of a priority is stored under."""
    return f"{queue_name}{LEVEL_SEPARATOR}{priority}" if priority else queue_name


def priority_of(offset: int) -> int:
    """Return the priority of the level that has this offset; 0 in queues without priorities."""
    return offset >> LEVEL_SHIFT


def offset_in_level(offset: int) -> int:
    """Return how many offsets of its level come before this one."""
    return offset & ((1 << LEVEL_SHIFT) - 1)


def first_offset(priority: int) -> int:
    """Return the first offset of a level."""
    return priority << LEVEL_SHIFT


def split_level_name(name: str) -> tuple[str, int]:
    """Split the name of a log into a queue's name and a priority."""
    queue_name, separator, priority = name.partition(LEVEL_SEPARATOR)
    return queue_name, int(priority) if separator else 0
