"""Unix sockets to listen at: files that a broker leaves behind when it is killed."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress


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
