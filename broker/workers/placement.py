"""Where new queues go: to the worker they are declared at, unless that one is much busier than the others."""

from __future__ import annotations

from config import limits


class Placement:
    """How busy the workers are, as each told last: the share of a core that it takes.

    A queue at the worker of its clients costs no link, so only a worker that has little left gives one away.
    """

    __slots__ = ("_busy", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        self._busy: dict[int, float] = {}

    def note(self, worker: int, busy: float) -> None:
        """Note how busy a worker is."""
        self._busy[worker] = busy

    def forget(self, worker: int) -> None:
        """Give a worker nothing until it tells again: it is gone."""
        self._busy.pop(worker, None)

    def choose(self) -> int:
        """Return the worker for a new queue."""
        busy = self._busy
        own = busy.get(self._number, 0.0)
        others = [(share, worker) for worker, share in busy.items() if worker != self._number]
        if not others or own < limits.WORKER_BUSY_SHARE:
            return self._number
        average = (own + sum(share for share, _ in others)) / (len(others) + 1)
        return min(others)[1] if own > limits.WORKER_BUSY_TIMES * average else self._number
