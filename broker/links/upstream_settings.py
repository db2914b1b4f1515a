"""Where federation fetches from: RabbitMQ's keys of upstreams and of sets of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.links.amqp_uri import AmqpUri, read_uri
from broker.links.haul import ACK_MODES, ON_CONFIRM
from broker.links.shovel_settings import (
    Checks,
    flag,
    number,
    one_of,
    problems_of,
    refuse,
    text,
    uris,
    whole,
)
from config import limits

ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """An upstream by its name. `exchange`, `queue`: what is federated with, where it is called otherwise."""

    name: str
    uris: tuple[AmqpUri, ...]
    shown: tuple[str, ...]
    prefetch: int
    reconnect_s: float
    ack_mode: str
    max_hops: int
    expires_ms: int | None
    message_ttl_ms: int | None
    exchange: str | None
    queue: str | None
    consumer_tag: str
    queue_type: str | None
    keeps_resources: bool


def _never(reason: str) -> Any:
    return lambda value: "" if value is False else reason


_OWN: Final[Checks] = {
    "uri": uris,
    "prefetch-count": whole,
    "reconnect-delay": number,
    "ack-mode": one_of(*ACK_MODES),
    "max-hops": whole,
    "expires": whole,
    "message-ttl": number,
    "exchange": text,
    "queue": text,
    "consumer-tag": text,
    "queue-type": one_of("classic", "quorum"),
    "resource-cleanup-mode": one_of("default", "never"),
    "trust-user-id": _never("a user-id comes as the header x-original-user-id, never as what it was"),
    "bind-nowait": flag,
    "channel-use-mode": one_of("multiple", "single"),
}
_IN_SET: Final[Checks] = {"upstream": text, **_OWN}


def check_upstream(value: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for an upstream that cannot be."""
    problems = problems_of(value, _OWN)
    if "uri" not in value:
        problems.append('Key "uri" not found')
    refuse(problems)


def check_set(value: object) -> None:
    """Raise InvalidArgument for a set of upstreams that cannot be."""
    problems: list[str] = []
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        refuse(['a set is a list of objects, as [{"upstream": "..."}]'])
        return
    for entry in value:
        problems += problems_of(entry, _IN_SET)
        if "upstream" not in entry:
            problems.append('Key "upstream" not found')
    refuse(problems)


def read_upstream(name: str, value: Mapping[str, Any], vhost: str) -> UpstreamSettings:
    """Read an upstream that was checked; raises InvalidArgument."""
    found = value["uri"]
    shown = tuple(found if isinstance(found, list) else [found])
    return UpstreamSettings(
        name=name,
        uris=tuple([read_uri(each, vhost) for each in shown]),
        shown=shown,
        prefetch=min(value.get("prefetch-count", limits.SHOVEL_PREFETCH_MESSAGES), 0xFFFF),
        reconnect_s=value.get("reconnect-delay", limits.SHOVEL_RETRY_S),
        ack_mode=value.get("ack-mode", ON_CONFIRM),
        max_hops=value.get("max-hops", 1),
        expires_ms=value.get("expires"),
        message_ttl_ms=value.get("message-ttl"),
        exchange=value.get("exchange") or None,
        queue=value.get("queue") or None,
        consumer_tag=value.get("consumer-tag", f"federation-link-{name}"),
        queue_type=value.get("queue-type"),
        keeps_resources=value.get("resource-cleanup-mode") == "never",
    )
