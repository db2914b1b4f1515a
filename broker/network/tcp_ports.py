"""Whether a process has a TCP port, as the kernel tells it (Linux)."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
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


def bind_unix(path: str) -> socket.socket:
    """Bind a socket at `path`, in the place of one that nobody listens at any more. Raises OSError."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        try:
            bound.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or _is_listened_at(path):
                raise
            os.unlink(path)
            bound.bind(path)
    except BaseException:
        bound.close()
        raise
    return bound


def unlink_unix(bound: socket.socket) -> None:
    """Take the file of a socket away, unless another broker has put its own there. Call it before `close`."""
    if bound.family == socket.AF_UNIX:
        with suppress(OSError):
            path = bound.getsockname()
            if not _is_listened_at(path, besides=bound):
                os.unlink(path)


def _is_listened_at(path: str, besides: socket.socket | None = None) -> bool:
    """Return whether anybody listens there; `besides` stops to listen first."""
    if besides is not None:
        with suppress(OSError):
            besides.shutdown(socket.SHUT_RDWR)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) in (0, errno.EAGAIN)
