"""Values of messages as JSON has them: payloads as text or base64, headers without bytes."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

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
