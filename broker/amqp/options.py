"""What the properties of a basic.publish ask for: priority, expiration, and headers the broker acts on."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from broker.pairs import read_pairs
from protocols.amqp091 import content
from queue_manager.errors import InvalidArgument
from queue_manager.options import DELIVER_AT, NAMES, PLAIN, PublishOptions, read_options

_NAMES: Final = tuple(name.encode() for name in NAMES)
assert all(b"x-" in name or b"deliver" in name for name in _NAMES)


def may_ask(raw: bytes) -> bool:
    """Whether there may be headers among the properties that the broker acts on."""
    # all their names have one of these in them; most properties do not
    return (b"x-" in raw or b"deliver" in raw) and any(name in raw for name in _NAMES)


def options_of(raw: bytes) -> PublishOptions:
    """The options in a raw content header; raises InvalidArgument."""
    _, priority, expiration = content.peek_fields(raw)
    values: dict[str, object] = {}
    if may_ask(raw):
        values = read_pairs(content.decode_headers(raw), "header", NAMES)
        deliver_at = values.get(DELIVER_AT)
        if isinstance(deliver_at, datetime):
            values[DELIVER_AT] = int(deliver_at.timestamp() * 1000)
    elif not priority and not expiration:
        return PLAIN
    ttl_ms = None
    if expiration:
        if not expiration.isdigit() or len(expiration) > 19:
            raise InvalidArgument(
                f"expiration must be milliseconds, not {expiration.decode(errors='replace')!r}"
            )
        ttl_ms = int(expiration)
    return read_options(values, priority=priority, ttl_ms=ttl_ms)
