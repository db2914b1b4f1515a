"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")


def usable_cores(own_group: Path = _OWN_GROUP, groups: Path = _GROUPS) -> int:
    """Return the cores that the process may run on, no more than its control group (version 2) has time for;
    at least 1.
    """
    cores = len(os.sched_getaffinity(0))
    for path in _quota_files(own_group, groups):
        try:
            quota, period = path.read_text().split()
            cores = min(cores, max(int(quota) // int(period), 1))
        except (OSError, ValueError):  # no group of its own, or no bound ("max")
            continue
    return cores


def _quota_files(own_group: Path, groups: Path) -> list[Path]:
    """Return the files that may bound the time of this process: those of its group, and of all around it."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        return []
    name = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    group = groups / name
    return [
        group / "cpu.max",
        *(parent / "cpu.max" for parent in group.parents if groups in (parent, *parent.parents)),
    ]
