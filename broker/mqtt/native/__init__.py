"""What is done for each lone packet, in C (`lone.c`) where that was compiled, as `storage.native` is.

`Door` takes the place of `Transport.data_received` for publishes like the last one; None: everything goes
there. `joined` is in Python otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocols.mqtt.events import LonePublish

if TYPE_CHECKING:
    from broker.mqtt.native._lone import Door as CompiledDoor


def joined_in_python(gathered: list[LonePublish], packet_ids: list[int]) -> bytes:
    """Return publishes, one after the other, with these packet identifiers, one each."""
    ids = iter(packet_ids)
    return b"".join(
        [wire[:at] + next(ids).to_bytes(2, "big") + wire[at + 2 :] for _, wire, at, _ in gathered]
    )


def _compiled_module() -> Any:
    try:
        from broker.mqtt.native import _lone
    except ImportError:
        return None
    return _lone


_lone: Any = _compiled_module()
Door: type[CompiledDoor] | None = None if _lone is None else _lone.Door
joined: Callable[[list[LonePublish], list[int]], bytes] = joined_in_python if _lone is None else _lone.joined
