"""`$nack` with a delay of its own and `$extend`, of a delivery that the channel holds.

Headers: `delivery-tag`, of the channel that publishes the call; for `$nack` `delay` in ms; for `$extend`
`lease` in ms, else that of the consumer anew.
"""

from __future__ import annotations

from typing import Any, Final

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.settling.unacked import Unacked
from broker.clients import claim_controls
from queue_manager.errors import InvalidArgument

NACK: Final = "$nack"
EXTEND: Final = "$extend"
VERBS: Final = frozenset((NACK, EXTEND))
TAG: Final = "delivery-tag"


def settle(
    channel: AmqpChannel, unacked: Unacked, name: str, verb: str, headers: dict[str, Any], now_ms: int
) -> dict[str, object]:
    """Do what the call asks; gives its answer, true once the open commit is durable.

    Raises QueueNotFound, InvalidArgument; the channel holds the delivery then as before.
    """
    shard = channel.core
    settling = shard.settling
    queue = shard.consuming.find(name, channel.client.caller)
    tag = headers.get(TAG)
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise InvalidArgument(f"{verb} needs the header {TAG}, an integer, not {tag!r}")
    claim = unacked.claim(tag)
    holder = None if claim is None else settling.holder(claim)
    if claim is None or holder is None or not claim.is_in_flight:
        ended = claim is not None or unacked.is_late(tag)
        raise InvalidArgument(f"the lease of delivery tag {tag} ended" if ended else f"unknown {TAG} {tag}")
    if not settling.is_claim_of(claim, queue):
        raise InvalidArgument(f"{TAG} {tag} is not of queue {queue.name!r}")
    group = settling.durable_group_of(claim)
    claim_controls.check_delay(headers, verb, stream=queue.policy.stream)
    if verb == NACK:
        claim_controls.hand_back(settling, claim, headers, now_ms)
        unacked.release(tag)
    else:
        claim_controls.extend(settling, claim, headers, holder.lease_ms, now_ms)
    if group is not None:
        settling.write_soon(group)
    return {"status": "ok"}
