"""Values of messages as JSON has them: payloads as text or base64, headers without bytes."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from starlette.requests import Request

from broker.http.problems import Problem, unavailable
from config import limits
from queue_manager.errors import InvalidArgument

TEXT: Final = "text"
BASE64: Final = "base64"


def shown(body: bytes) -> tuple[str, str]:
    """Return a payload and its encoding: text where it is UTF-8, else base64."""
    try:
        return body.decode("utf-8"), TEXT
    except UnicodeDecodeError:
        return as_base64(body)


def as_base64(body: bytes) -> tuple[str, str]:
    """Return a payload as base64, and that it is so."""
    return base64.b64encode(body).decode(), BASE64


def payload(body: str, encoding: str) -> bytes:
    """Return the bytes that `shown` shows; raises InvalidArgument."""
    if encoding == TEXT:
        return body.encode("utf-8", "surrogatepass")
    if encoding != BASE64:
        raise InvalidArgument(f"encoding is {TEXT} or {BASE64}, not {encoding!r}")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("a body is not base64") from None


def plain(value: Any) -> Any:
    """Return a header's value as JSON can have it."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    timestamp = getattr(value, "timestamp", None)
    return int(timestamp()) if timestamp is not None else str(value)


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
