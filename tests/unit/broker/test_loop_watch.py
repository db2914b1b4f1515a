import asyncio
import sys
import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.logs.log_pace import LogPace
from broker.process.loop_watch import LoopWatch, where
from config import limits
from tests.waiting import hold_up, until_so


@pytest.fixture
async def watch():
    made = LoopWatch()
    made.start()
    yield made
    made.stop()


def stall(seconds: float) -> None:
    """Hold the loop up without using the processor, as a machine does that is busy elsewhere."""
    hold_up(seconds)


async def noticed(watch: LoopWatch, ms: int) -> None:
    """Wait until the watch has counted stalls of so much together, and so logged those that it logs."""
    await until_so(lambda: watch.lag.stalled_ms >= ms)


async def test_short_stall_is_counted_and_not_logged(watch, monkeypatch):
    monkeypatch.setattr(limits, "LOOP_STALL_LOG_MS", 10_000)
    monkeypatch.setattr(limits, "LOOP_WATCH_IDLE_INTERVAL_MS", limits.LOOP_WATCH_INTERVAL_MS)
    with capture_logs() as logged:
        stall(0.12)
        await until_so(lambda: watch.lag.longest_ms >= 60)  # a busy machine may stall the loop, too
    assert watch.lag.stall_count >= 1
    assert watch.lag.stalled_ms >= watch.lag.longest_ms
    assert logged == []


async def test_long_stall_is_logged_with_what_the_loop_did(watch):
    pace = LogPace(0)

    def busy() -> None:
        began, cpu_s = time.monotonic(), time.thread_time()
        while time.monotonic() - began < 0.6 or time.thread_time() - cpu_s < 0.2:
            pace.turn(0)

    with capture_logs() as logged:
        asyncio.get_running_loop().call_soon(busy)
        await noticed(watch, 400)
    (line,) = [line for line in logged if line["event"] == "loop.stalled" and line["ms"] >= 400]
    assert line["log_level"] == "warning"
    assert line["cpu_ms"] > 100
    assert "log_pace.LogPace.turn" in line["doing"] or line["doing"] == "not seen", (
        "busy is no module of ours"
    )


async def test_stalls_of_a_second_share_a_line(watch, monkeypatch):
    monkeypatch.setattr(limits, "LOOP_WATCH_IDLE_INTERVAL_MS", limits.LOOP_WATCH_INTERVAL_MS)
    with capture_logs() as logged:
        for number in range(3):
            stall(2.5 * limits.LOOP_STALL_LOG_MS / 1000)
            await noticed(watch, 2 * limits.LOOP_STALL_LOG_MS * (number + 1))
    assert 1 <= len(logged) <= 2
    assert watch.lag.stall_count >= 3


def test_running_functions_are_named_innermost_first():
    told: list[str] = []

    class Pace(LogPace):
        def turn(self, now_ms: int, count: int = 1) -> int:
            told.append(where(sys._getframe()))
            return super().turn(now_ms, count)

    code = compile("def outer(pace):\n    return pace.turn(0)\n", "outer.py", "exec")
    namespace: dict[str, Any] = {"__name__": "sluicemq.queue_manager.group"}
    exec(code, namespace)
    namespace["outer"](Pace(0))
    assert told == ["group.outer:2"]
