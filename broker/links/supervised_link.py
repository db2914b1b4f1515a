"""One link: a supervised task that runs, and again after growing pauses."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from broker.vhosts.hub import Hub
from config import limits
from protocols.errors import ProtocolError

_log: Final = structlog.get_logger("sluicemq.link")

STARTING: Final = "starting"
RUNNING: Final = "running"
RETRYING: Final = "retrying"
TERMINATED: Final = "terminated"


class LinkLost(Exception):
    """A link cannot go on as it is: it is tried again after a pause."""


@dataclass(frozen=True, slots=True)
class LinkView:
    """A link as listings show it. `moved`: messages that were passed on and settled; `pending`: those under
    way; `restarts`: how often it began anew.
    """

    component: str
    vhost: str
    name: str
    state: str
    reason: str
    since_ms: int
    moved: int
    pending: int
    restarts: int
    details: Mapping[str, Any]


class Link(ABC):
    """Runs beside everything else until it is stopped, or says that it is done."""

    component = ""
    retry_s: float = limits.LINK_RETRY_S_MIN
    """The first pause; 0: it is not tried again."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.clock = hub.clock
        self.name = name
        self.moved_count = 0
        self._restart_count = 0
        self._state = STARTING
        self._reason = ""
        self._since_ms = hub.clock.now_ms()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    @abstractmethod
    async def serve(self) -> None:
        """Work until there is nothing left to be done. Raises LinkLost, OSError, TimeoutError, ProtocolError
        where it has to begin anew; calls `is_up` once it works.
        """

    @property
    def pending_count(self) -> int:
        """Return how many messages are under way."""
        return 0

    @property
    def details(self) -> dict[str, Any]:
        """Return what there is to tell beside its state, without secrets."""
        return {}

    def start(self, when_done: Callable[[Link], None]) -> None:
        """Begin; `when_done` is called once nothing is left to be done."""
        self.hub.spawn(self._run(when_done))

    def stop(self) -> None:
        """Stop."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    def is_up(self) -> None:
        """Note that it works."""
        self._tell(RUNNING)
        _log.info("link.running", kind=self.component, vhost=self.hub.vhost.name, name=self.name)

    def _tell(self, state: str, reason: str = "") -> None:
        self._state, self._reason = state, reason
        self._since_ms = self.clock.now_ms()

    def has_to_stop(self) -> bool:
        """Return whether it was stopped."""
        return self._is_stopped

    async def _run(self, when_done: Callable[[Link], None]) -> None:
        """Serve, again and again."""
        pause_s = self.retry_s
        while not self.has_to_stop():
            began = self.clock.monotonic()
            try:
                await self._alone(self.serve())
            except Exception as error:
                self._lost(error, pause_s)
            else:
                if not self.has_to_stop():
                    self._tell(TERMINATED, "done")
                    when_done(self)
                return
            if not self.retry_s:
                return
            if self.clock.monotonic() - began > limits.LINK_RETRY_S_MAX:
                pause_s = self.retry_s
            await self._alone(asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, max(limits.LINK_RETRY_S_MAX, self.retry_s))
            self._restart_count += 1
            if self._reason:
                self._tell(STARTING, self._reason)

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it in a task of its own, which `stop` ends and, as all of this, the end of the broker."""
        self._task = asyncio.create_task(work)
        try:
            await self._task
        except asyncio.CancelledError:
            if not self.has_to_stop():
                self._task.cancel()
                raise

    def _lost(self, error: Exception, pause_s: float) -> None:
        reason = str(error) or type(error).__name__
        self._tell(TERMINATED, reason)
        where = {"kind": self.component, "vhost": self.hub.vhost.name, "name": self.name}
        if isinstance(error, LinkLost | OSError | TimeoutError | ProtocolError):
            _log.warning("link.lost", reason=reason, retry_s=pause_s, **where)
        else:
            _log.error("link.internal_error", exc_info=error, **where)

    def view(self) -> LinkView:
        """Return what listings show."""
        return LinkView(
            component=self.component,
            vhost=self.hub.vhost.name,
            name=self.name,
            state=self._state,
            reason=self._reason,
            since_ms=self._since_ms,
            moved=self.moved_count,
            pending=self.pending_count,
            restarts=self._restart_count,
            details=self.details,
        )
