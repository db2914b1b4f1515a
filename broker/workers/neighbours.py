"""The other workers, as the parts of one see them, and which of them decides about a name."""

from __future__ import annotations

from typing import Any, Protocol
from zlib import crc32

from broker.engine.answers import Answer
from broker.workers.asking_link import Link
from broker.workers.placement import Placement
from broker.workers.worker_directory import Directory
from queue_manager.api import OPERATOR


class Neighbours(Protocol):
    """The other workers."""

    number: int
    count: int
    directory: Directory
    placement: Placement

    def link(self, number: int) -> Link:
        """Return the link to a worker; one that is not up fails what is asked of it."""

    def reach(self, number: int) -> Answer[Link]:
        """Return the link to a worker; one that is started again is waited for. Comes to WorkerLost."""

    def links(self) -> list[Link]:
        """Return the links that are up."""


def called(
    neighbours: Neighbours, worker: int, part: str, method: str, *arguments: Any, **named: Any
) -> Answer[Any]:
    """Call a part of another worker, once it can be reached."""
    return neighbours.reach(worker).chain(lambda link: link.call(part, method, *arguments, **named))


def told_caller(neighbours: Neighbours, caller: str) -> str:
    """Return a name for a connection that no connection of another worker has."""
    return caller if caller == OPERATOR else f"worker-{neighbours.number}-{caller}"


def judge_of(name: str, count: int) -> int:
    """Return the worker that decides which makes the queue of a name."""
    return crc32(name.encode()) % count


def reserved(neighbours: Neighbours, name: str, worker: int) -> Answer[int]:
    """Ask which worker is to make a queue: that which is named first to the one that decides about this
    name.
    """
    number, me = judge_of(name, neighbours.count), neighbours.number
    if number == me:
        return Answer.given(neighbours.directory.reserve(name, worker, me))
    return called(neighbours, number, "directory", "reserve", name, worker, me)


def release(neighbours: Neighbours, name: str, worker: int) -> None:
    """Let others make the queue of a name, which this worker was to make and did not."""
    number = judge_of(name, neighbours.count)
    if number == neighbours.number:
        neighbours.directory.release(name, worker)
    else:
        called(neighbours, number, "directory", "release", name, worker)
