"""`$queue/...` addresses, whose first level is a queue's name."""

from __future__ import annotations

import re
from typing import Final

_READ_AS_CODE: Final = re.compile("%(?=2[345BFbf])")
_PREFIX: Final = "$queue/"
_TO_CODE: Final = str.maketrans({"/": "%2F", "#": "%23", "+": "%2B"})


def queue_address(queue: str) -> str:
    """Return the address of a queue: what one level of a topic cannot hold is written as `%` and its code."""
    level = _READ_AS_CODE.sub("%25", queue).translate(_TO_CODE)
    return f"$queue/%24{level[1:]}" if level.startswith("$") else f"$queue/{level}"


def key_in_address(routing_key: str) -> str:
    """Return what follows the queue's name in an address; other routing keys as they are."""
    if not routing_key.startswith(_PREFIX):
        return routing_key
    return routing_key[len(_PREFIX) :].partition("/")[2]


def key_in_queue(queue: str, exchange: str, routing_key: str) -> str | None:
    """Return the routing key of a message as a write into a queue takes it: without the queue's own address.

    None for a message that was published to the queue itself.
    """
    if not exchange:
        if routing_key == queue:
            return None
        address = queue_address(queue)
        if routing_key == address or routing_key.startswith(f"{address}/"):
            return routing_key[len(address) + 1 :] or None
    return routing_key
