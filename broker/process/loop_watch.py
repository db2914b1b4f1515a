"""How late the event loop is, counted, and logged with what held it up.

While a step runs, nobody else is served. A timer of the loop notices how late it comes; a thread looks, once
it is overdue, where the loop's thread is: so no step pays for being watched. Both wake seldom while the loop
has next to nothing to do: of stalls that end such a time, those shorter than the timer's interval may be
missed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from types import FrameType
from typing import Final, NamedTuple

import structlog

from broker.clock import until_beat_s
from broker.logs.log_pace import LogPace
from config import limits

_log: Final = structlog.get_logger("sluicemq")

_FUNCTIONS_TOLD: Final = 4
_OURS: Final = ("broker", "protocols", "queue_manager", "storage")


class Lag(NamedTuple):
    """The lag of the loop: steps over `limits.LOOP_STALL_MS`, all of them together, the longest."""

    stall_count: int
    stalled_ms: int
    longest_ms: int


class LoopWatch:
    """Watches the loop it is started in, from `start` to `stop`."""

    def __init__(self) -> None:
        self.lag = Lag(0, 0, 0)
        self._loop: asyncio.AbstractEventLoop
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._due = 0.0
        self._cpu_s = 0.0
        self._seen = ""
        self._runs = threading.Lock()  # held until the end
        self._pace = LogPace(limits.LOOP_STALL_LOG_INTERVAL_MS)

    def start(self) -> None:
        """Begin; in the loop's thread."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._runs.acquire()
        self._cpu_s = time.thread_time()
        self._wait(limits.LOOP_WATCH_INTERVAL_MS)
        threading.Thread(target=self._look, name="loop-watch", daemon=True).start()

    def stop(self) -> None:
        """End."""
        self._runs.release()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, interval_ms: int) -> None:
        wait_s = until_beat_s(interval_ms)
        self._began = time.monotonic()
        self._due = self._began + wait_s
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        late_ms = round((now - self._due) * 1000)
        cpu_s = time.thread_time()
        spent_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        cpu_ms = round(spent_s * 1000)
        seen, self._seen = self._seen, ""
        is_idle = spent_s < (now - self._began) * limits.LOOP_IDLE_CPU_SHARE
        self._wait(limits.LOOP_WATCH_IDLE_INTERVAL_MS if is_idle else limits.LOOP_WATCH_INTERVAL_MS)
        if late_ms < limits.LOOP_STALL_MS:
            return
        count, total_ms, longest_ms = self.lag
        self.lag = Lag(count + 1, total_ms + late_ms, max(longest_ms, late_ms))
        if late_ms >= limits.LOOP_STALL_LOG_MS:
            told = self._pace.turn(round(self._due * 1000))
            if told:
                _log.warning("loop.stalled", ms=late_ms, cpu_ms=cpu_ms, doing=seen or "not seen", count=told)

    def _look(self) -> None:
        """Note, in a thread, where the loop is, once for each stall."""
        patience_s = limits.LOOP_STALL_LOG_MS / 2000
        wait_s = patience_s
        while not self._runs.acquire(timeout=wait_s):
            wait_s = self._due + patience_s - time.monotonic()
            if wait_s > 0:
                continue
            wait_s = patience_s / 2
            if not self._seen:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None:
                    self._seen = where(frame)


def where(frame: FrameType | None) -> str:
    """Return the functions of ours that are running, innermost first."""
    found: list[str] = []
    while frame is not None and len(found) < _FUNCTIONS_TOLD:
        module = str(frame.f_globals.get("__name__", ""))
        if _is_ours(module):
            found.append(f"{module.rpartition('.')[2]}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found)


def _is_ours(module: str) -> bool:
    return module.removeprefix("sluicemq.").partition(".")[0] in _OURS
