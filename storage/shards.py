"""The storages of a broker with several workers: the first one's, and beside it one for each other worker.

Shard 0 is the storage that the settings name, shard K lies in `shard-K` within that directory, or below that
URL. In memory each process has its own.
"""

from __future__ import annotations


def shard_url(url: str, number: int) -> str:
    """Return the URL or path of a shard of the storage at `url`."""
    return url if url == "memory:" else shard_path(url, number)


def shard_path(path: str, number: int) -> str:
    """Return what is to a shard as `path` is to the first one."""
    return f"{path.rstrip('/')}/shard-{number}" if number else path
