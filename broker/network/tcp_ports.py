"""Whether a process has a TCP port, as the kernel tells it (Linux)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LISTEN: Final = "0A"


def has_port(pid: int, port: int) -> bool | None:
    """Return whether the process listens on the port, of whatever address; None: that cannot be told."""
    try:
        inodes = _listening(port)
        descriptors = list(os.scandir(_PROC / str(pid) / "fd"))
        return any(_target(descriptor.path) in inodes for descriptor in descriptors)
    except OSError:  # another system, or another user's process
        return None


def _listening(port: int) -> set[str]:
    """Return the sockets that listen on a port, as the links in `/proc/<pid>/fd` name them."""
    found = set()
    for table in ("tcp", "tcp6"):
        path = _PROC / "net" / table
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
