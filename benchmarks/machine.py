"""What a result depends on: processor, kernel, Python, and what an fsync costs where the brokers store."""

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

SYNC_SAMPLES = 100
SYNC_BYTES = 4_096


def describe(directory: Path) -> dict[str, Any]:
    """Facts for the result file; `directory` is where the brokers keep their data."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "processor": next((line for line in cpus if line.startswith("model name")), platform.machine()),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "fdatasync_ms": round(_sync_ms(directory), 3),
    }


def _sync_ms(directory: Path) -> float:
    """Median milliseconds of appending 4 KB and making it durable."""
    path = directory / "sync-probe"
    samples = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNC_SAMPLES):
            begin = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            os.fdatasync(file.fileno())
            samples.append(time.perf_counter() - begin)
    path.unlink()
    return statistics.median(samples) * 1_000
