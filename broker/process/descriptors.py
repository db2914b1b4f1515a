"""The process's limit of open files, and how many connections it leaves room for."""

from __future__ import annotations

import os
import resource
from typing import Final, NamedTuple

from config import limits

_OWN_LISTS: Final = ("/proc/self/fd", "/dev/fd")


class ConnectionRoom(NamedTuple):
    """How many connections fit at a time, and what bounds them, in words."""

    connections_max: int
    reason: str


def raise_limit() -> None:
    """Raise the limit to as many open files as this process may allow itself; leave it where that is
    refused.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, limits.OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # a kernel may hold a process below what it says


def open_files_limit() -> int:
    """Return how many files (sockets count) this process may have open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def connection_room(limit: int, open_count: int) -> ConnectionRoom:
    """Return what fits beside `open_count` open files and those that the store opens for a moment."""
    left = limit - open_count
    fitting = left - min(limits.STORE_OPEN_FILES_MAX, left // 2)
    if fitting >= limits.CONNECTIONS_MAX:
        return ConnectionRoom(
            limits.CONNECTIONS_MAX, f"at most {limits.CONNECTIONS_MAX} connections at a time"
        )
    return ConnectionRoom(
        max(fitting, 0), f"{limit} open files leave room for {fitting} connections (ulimit -n, LimitNOFILE)"
    )


def open_file_count() -> int:
    """Return how many files this process has open now; a guess where the system does not tell."""
    for path in _OWN_LISTS:
        try:
            return len(os.listdir(path)) - 1  # the listing itself is one
        except OSError:
            continue
    return limits.STORE_OPEN_FILES_MAX
