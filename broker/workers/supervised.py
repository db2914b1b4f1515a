"""A worker's side of the channel to its supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from broker.workers.worker_place import WorkerPlace
from config import limits

STOP: Final = b"stop"
RELOAD: Final = b"reload"
SERVING: Final = "serving"
ALIVE: Final = "alive"
RELOADED: Final = "reloaded"
FAILED: Final = "failed"
AWAIT: Final = "await"
OPEN: Final = "open"
CLOSE: Final = "close"
PEERS: Final = "peers"
WISH: Final = "wish"

_EXIT_ALONE: Final = 1


class Supervised:
    """What a worker hears from its supervisor, and reports to it; see `broker.outside.Outside`."""

    def __init__(self, place: WorkerPlace, channel: socket.socket, alive_interval_s: float) -> None:
        self.alive_interval_s = alive_interval_s
        self._place = place
        self._channel = channel
        channel.setblocking(False)
        self._stop: Callable[[], None] = lambda: None
        self._reload: Callable[[], None] = lambda: None
        self._take: Callable[[Mapping[str, Any]], None] = lambda told: None
        if place.node is not None:
            self._take = place.node.take
            place.node.peers.wish = self.wish
        self.turned: Callable[[], float] | None = None
        """When what this worker has last made durable was begun, where others want to know."""

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Have `stop` called for each time that the broker is told to stop, and this process end at once when
        the supervisor has died.
        """
        self._stop = stop
        asyncio.get_running_loop().add_reader(self._channel, self._hear)

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Have `reload` called when settings are to be read anew."""
        self._reload = reload

    def on_told(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Have `take` called with whatever else the supervisor tells."""
        self._take = take

    def tell(self, report: Mapping[str, object]) -> None:
        """Report what only the keeper of a node has to say."""
        self._report(report)

    def reloaded(self) -> None:
        """Have the other workers read their settings anew, too."""
        self._report({"report": RELOADED})

    def serving(self, ports: Mapping[str, int], storage: str) -> None:
        """Report that clients are let in."""
        self._report({"report": SERVING, "ports": dict(ports), "storage": storage})

    def cannot_start(self, reason: str) -> None:
        """Report that this worker fails, and why."""
        self._report({"report": FAILED, "reason": reason[: limits.WORKER_REASON_CHARACTERS_MAX]})

    def alive(self) -> None:
        """Report that the event loop turns, and of a node's worker when it has last committed."""
        if self.turned is None:
            self._report({"report": ALIVE})
        else:
            self._report({"report": ALIVE, "shard": self._place.number, "turned_s": self.turned()})

    def wish(self, wish: Mapping[str, object]) -> None:
        """Report what an operator wants of nodes."""
        self._report({"report": WISH, **wish})

    def stopping(self, status: str) -> None:
        """Say nothing: the supervisor has told us to, or is told by our end."""

    def stopped(self) -> None:
        """Say nothing, as `stopping`."""

    def _report(self, report: Mapping[str, object]) -> None:
        with suppress(OSError):  # it died, which `_hear` sees, or is stopped by a debugger
            self._channel.send(json.dumps(report).encode())

    def _hear(self) -> None:
        try:
            told = self._channel.recv(limits.WORKER_REPORT_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            told = b""
        if not told:
            self._end()
        elif told == STOP:
            self._stop()
        elif told == RELOAD:
            self._reload()
        else:
            self._take(json.loads(told))

    def _end(self) -> None:
        """End as if killed: a broker without its supervisor would hold ports and storage, and nobody could
        stop it.
        """
        shutil.rmtree(self._place.run_directory, ignore_errors=True)
        os._exit(_EXIT_ALONE)
