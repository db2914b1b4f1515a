"""Publishing a task's rows: windowed confirms, and going on after the broker went away for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from spark_bridge.client import Connection
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.settings import ConnectionSettings

TRIES_WITHOUT_PROGRESS_MAX: Final = 5
SLICE_ROWS: Final = 500


class Publisher:
    """Rows in order over one connection at a time.

    When a connection is lost the next one goes on behind the last row that is known to have arrived, which
    `resume(connection, confirmed)` tells; None: behind the last confirmed one, so that some may arrive twice.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        window: int,
        resume: Callable[[Connection], int] | None = None,
    ) -> None:
        self._settings = settings
        self._window = window
        self._resume = resume
        self._waiting: deque[list[bytes]] = deque()
        self._done = 0  # rows that are confirmed and forgotten here
        self._base = 0  # of them, before this connection
        self._tries = 0
        self._connection = self._open()

    @property
    def connection(self) -> Connection:
        """The connection of the moment."""
        return self._connection

    def begin(self) -> None:
        """Begin with the rows: what was published on the connection until now are none."""
        self._base = -self._connection.published

    def send(self, rows: list[bytes]) -> None:
        """Publish rows, given as their frames; at most a window of them is unconfirmed afterwards."""
        for start in range(0, len(rows), SLICE_ROWS):
            part = rows[start : start + SLICE_ROWS]
            self._waiting.append(part)
            self._attempt(part, self._window)

    def finish(self) -> None:
        """Wait until everything is confirmed, and close."""
        self._attempt([], 0)
        self._connection.close()

    def close(self) -> None:
        """Give up."""
        self._connection.close()

    def _open(self) -> Connection:
        connection = Connection(self._settings)
        try:
            connection.confirm_select()
        except BaseException:
            connection.close()
            raise
        return connection

    def _attempt(self, rows: list[bytes], unconfirmed_max: int) -> None:
        try:
            if rows:
                self._connection.send(rows, len(rows))
            self._connection.wait_confirmed(unconfirmed_max)
        except BrokerUnreachable as error:
            self._recover(error, unconfirmed_max)
        self._forget_confirmed()

    def _forget_confirmed(self) -> None:
        confirmed = self._base + self._connection.published - self._connection.unconfirmed
        while self._waiting and self._done + len(self._waiting[0]) <= confirmed:
            self._done += len(self._waiting.popleft())
            self._tries = 0

    def _recover(self, error: BrokerUnreachable, unconfirmed_max: int) -> None:
        while True:
            self._forget_confirmed()
            self._tries += 1
            if self._tries > TRIES_WITHOUT_PROGRESS_MAX:
                raise error
            self._connection.close()
            self._connection = self._open()
            try:
                arrived = self._done if self._resume is None else self._resume(self._connection)
                self._resend(arrived)
                self._connection.wait_confirmed(unconfirmed_max)
                return
            except BrokerUnreachable as again:
                error = again

    def _resend(self, arrived: int) -> None:
        rows = [row for part in self._waiting for row in part]
        if not self._done <= arrived <= self._done + len(rows):
            raise Refused(
                f"the broker has {arrived} rows of this attempt, but {self._done} were confirmed and"
                f" {self._done + len(rows)} sent: it cannot go on"
            )
        del rows[: arrived - self._done]
        self._waiting = deque(rows[i : i + SLICE_ROWS] for i in range(0, len(rows), SLICE_ROWS))
        self._done = arrived
        self._base = arrived - self._connection.published  # what `resume` published does not count
        for part in self._waiting:
            self._connection.send(part, len(part))
