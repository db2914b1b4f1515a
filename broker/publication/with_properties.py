"""Publications with the properties of AMQP 0.9.1: over AMQP itself, HTTP and by administration."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.access.accounts_of_file import ITSELF
from broker.access.login import Identity
from broker.engine.client.message_flow import PublishingClient
from broker.engine.traffic import PublishPlan
from broker.properties import amqp
from broker.publication.publish_addresses import Destination, find_queues
from protocols.amqp091 import content
from queue_manager.errors import PreconditionFailed
from queue_manager.options import PublishOptions
from queue_manager.stage_tags import TAG_NAMES
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_NONE

_USER_ID_FLAG: Final = 0x10


def check_user_id(raw: bytes, identity: Identity) -> None:
    """Raise PreconditionFailed if properties name another user than the publisher."""
    if raw[1] & _USER_ID_FLAG and identity.login.source != ITSELF:
        user_id = content.decode_properties(raw).user_id or ""
        if user_id != identity.user:
            raise PreconditionFailed(
                f"user_id property set to '{user_id}' but authenticated user was '{identity.user}'"
            )


def find_destination(
    publishing: PublishingClient,
    identity: Identity,
    exchange: str,
    key: str,
    raw: bytes,
    now_ms: int,
    *,
    mandatory: bool = False,
) -> Destination:
    """Find the queues of a publication with the AMQP properties `raw`, and of its copies (CC, BCC).

    `mandatory`: that there is no queue is an answer, and no error. Raises NotPermitted, ExchangeNotFound,
    QueueNotFound, InvalidAddress, InvalidArgument.
    """
    copies = amqp.copy_keys(raw) if amqp.may_copy(raw) else []
    headers = partial(amqp.headers_of, raw)
    return find_queues(publishing, identity, exchange, (key, *copies), headers, now_ms, mandatory=mandatory)


def for_consumers(raw: bytes) -> bytes:
    """Return AMQP properties without what consumers are not told (BCC) or could take for the broker's own."""
    return without_blind_copies(amqp.without_shadows(raw))


def take_apart(raw: bytes) -> tuple[bytes, PublishOptions]:
    """Return AMQP properties as consumers are to see them, and what they ask of the broker; raises
    InvalidArgument. Rows of a staged epoch are seen without what says so.
    """
    options = amqp.options_of(raw)
    seen = for_consumers(raw)
    return (seen if options.stage is None else amqp.without_headers(seen, TAG_NAMES)), options


def without_blind_copies(raw: bytes) -> bytes:
    """Return AMQP properties as they are given back to the publisher, without BCC."""
    return amqp.without_headers(raw, (amqp.BLIND_COPIES,)) if amqp.may_copy(raw) else raw


def plan_of(
    publishing: PublishingClient,
    exchange: str,
    key: str,
    raw: bytes,
    options: PublishOptions,
    *,
    persistent: bool,
) -> PublishPlan:
    """Return a plan for publications with these AMQP properties, as consumers are to see them."""
    if raw in (amqp.NONE, amqp.PERSISTENT):
        return publishing.plan(key, PROPERTIES_NONE, b"", persistent, options, exchange)
    return publishing.plan(key, PROPERTIES_AMQP, raw, persistent, options, exchange)


def plan_publication(
    publishing: PublishingClient,
    identity: Identity,
    exchange: str,
    key: str,
    raw: bytes,
    now_ms: int,
    *,
    persistent: bool,
) -> PublishPlan:
    """Return an aimed plan for publications alike, which may lead to no queue; see `find_destination` for
    what it raises.

    Raises PreconditionFailed, too, where the properties name another user.
    """
    found = find_destination(publishing, identity, exchange, key, raw, now_ms, mandatory=True)
    check_user_id(raw, identity)
    seen, options = take_apart(raw)
    plan = plan_of(publishing, found.exchange, found.keys[0], seen, options, persistent=persistent)
    publishing.aim(plan, found.targets, found.keys)
    return plan
