"""The cursors that the consumer groups of a queue have in one log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from queue_manager.log.progress import Progress
from queue_manager.log.range_set import RangeSet


class Ahead(Protocol):
    """The messages of this log that a group has yet to be given."""

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`: nothing before it is kept."""

    def pass_to(self, offset: int) -> None:
        """Go on at `offset`, if that is not behind and messages are claimed in order."""


class Stored(Protocol):
    """The state of a group on the store."""

    def write_soon(self) -> None:
        """Have what changed written with the open commit."""


class Member(Protocol):
    """A group's cursor in this log."""

    group_id: str
    progress: Progress

    @property
    def backlog(self) -> Ahead:
        """The messages that the group has yet to be given."""

    @property
    def stored(self) -> Stored:
        """The state of the group on the store."""

    def has_consumers(self) -> bool:
        """Return whether anybody consumes in the group."""


M = TypeVar("M", bound=Member)


Members = dict[str, M]
"""The cursors by group ID."""


def others_than(member: M, members: Members[M]) -> list[M]:
    """Return all but this one."""
    return [other for other in members.values() if other is not member]


def is_failed(offset: int, members: Members[M]) -> bool:
    """Return whether a group keeps the message at `offset` as failed."""
    return any(member.progress.failed.contains(offset) for member in members.values())


def released_by_all(members: Iterable[Member]) -> RangeSet:
    """Return the offsets that all of them, at least one, have let go of."""
    common: RangeSet | None = None
    for member in members:
        released = member.progress.released
        common = released.copy() if common is None else common.intersection(released)
    assert common is not None
    return common
