"""Bodies of requests, read whole."""

from __future__ import annotations

from starlette.requests import Request

from broker.http.problems import Problem, unavailable
from config import limits


class UnfinishedBodies:
    """Counts what has come of the bodies of many requests in part."""

    def __init__(self) -> None:
        self._byte_count = 0

    def add(self, byte_count: int) -> None:
        """Count so much more that has come; below 0: is finished. Raises Problem (503) where that is too
        much.
        """
        self._byte_count += byte_count
        if byte_count > 0 and self._byte_count > limits.UNFINISHED_BYTES_MAX:
            raise unavailable("too many bodies are on their way")


async def body_of(request: Request, bytes_max: int, unfinished: UnfinishedBodies | None = None) -> bytes:
    """Return all of a request's body; raises Problem when it is larger, ends early, or there is no room
    for it.
    """
    parts: list[bytes] = []
    byte_count = unfinished_count = 0
    is_whole = False
    try:
        while not is_whole:
            event = await request.receive()
            if event["type"] == "http.disconnect":
                raise Problem(400, "bad_request", "the body ended early")
            is_whole = not event.get("more_body", False)
            part = event.get("body", b"")
            byte_count += len(part)
            if byte_count > bytes_max:
                raise Problem(413, "too_large", f"the body is larger than {bytes_max} bytes")
            if unfinished is not None and not is_whole:
                unfinished_count = byte_count
                unfinished.add(len(part))
            parts.append(part)
    finally:
        if unfinished is not None:
            unfinished.add(-unfinished_count)
    return b"".join(parts)
