"""What Linux says about a broker's processes: memory and CPU, its children included."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2


def process_tree(pid: int) -> list[int]:
    """`pid` and all its descendants that are alive now."""
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        tasks = Path(f"/proc/{current}/task")
        if not tasks.exists():
            continue
        found.append(current)
        for children in tasks.glob("*/children"):
            try:
                waiting.extend(int(child) for child in children.read_text().split())
            except OSError:
                continue
    return found


def _sum(pid: int, file: str, value: Callable[[str], int]) -> int:
    """Add up what the files of this name tell of the process tree."""
    total = 0
    for each in process_tree(pid):
        try:
            total += value(Path(f"/proc/{each}/{file}").read_text())
        except OSError:
            continue
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory of the process tree, in bytes."""
    return _sum(pid, "statm", lambda text: int(text.split()[1])) * os.sysconf("SC_PAGE_SIZE")


def machine_cpu_s() -> float:
    """CPU seconds the whole machine has been busy with since it started."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = Path("/proc/stat").read_text().split()[1:9]
    return sum(int(ticks) for ticks in (user, nice, system, irq, softirq)) / _TICKS_PER_S


def cpu_s(pid: int) -> float:
    """CPU seconds used so far by the process tree."""
    ticks = _sum(pid, "stat", lambda text: sum(map(int, text.rsplit(")", 1)[1].split()[11:13])))
    return ticks / _TICKS_PER_S


def process_cpu_ns(pid: int) -> int:
    """CPU nanoseconds used so far by one process, threads that have ended included.

    By the clock that Linux has for each process (`clock_getcpuclockid`), for `/proc` counts in ticks.
    """
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)


def thread_cpu_ns(pid: int, thread: int) -> int:
    """CPU nanoseconds used so far by one thread; the thread of a process's number is its first."""
    return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
