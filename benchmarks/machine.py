"""What a result depends on: processor, kernel, Python, and what an fsync costs where the brokers store."""

import os
import platform
from pathlib import Path
from typing import Any

from broker.commands.bench_measures import sync_times

SYNC_S = 0.5


def describe(directory: Path) -> dict[str, Any]:
    """Facts for the result file; `directory` is where the brokers keep their data."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "processor": next((line for line in cpus if line.startswith("model name")), platform.machine()),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "fdatasync_ms": sync_times(directory, SYNC_S).p50_ms,
    }
