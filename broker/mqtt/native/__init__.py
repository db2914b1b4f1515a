"""What is done for each message of many topics, in C where that was compiled, as `storage.native` is.

`Door` takes the place of `Transport.data_received` for publishes like the last one (`lone.c`); None:
everything goes there. `joined` is in Python otherwise. `pass_on_each` takes publishes of one client to many
topics (`each.c`); None: they are events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocols.mqtt.events import LonePublish

if TYPE_CHECKING:
    from broker.mqtt.native._each import PassOnEach
    from broker.mqtt.native._lone import Door as CompiledDoor


def joined_in_python(gathered: list[LonePublish], packet_ids: list[int]) -> bytes:
    """Return publishes, one after the other, with these packet identifiers, one each."""
    ids = iter(packet_ids)
    return b"".join(
        [wire[:at] + next(ids).to_bytes(2, "big") + wire[at + 2 :] for _, wire, at, _ in gathered]
    )


def _compiled_lone() -> Any:
    try:
        from broker.mqtt.native import _lone
    except ImportError:
        return None
    return _lone


def _compiled_each() -> Any:
    try:
        from broker.mqtt.native import _each
    except ImportError:
        return None
    return _each


_lone: Any = _compiled_lone()
_each: Any = _compiled_each()
Door: type[CompiledDoor] | None = None if _lone is None else _lone.Door
joined: Callable[[list[LonePublish], list[int]], bytes] = joined_in_python if _lone is None else _lone.joined
pass_on_each: PassOnEach | None = None if _each is None else _each.pass_on_each
