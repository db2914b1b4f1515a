"""Virtual hosts: the one place where names of queues and exchanges are made those of the core, and back.

In the core and on the store what is in the virtual host `/` has its plain name, and everything else
`<vhost>` U+001D `<name>`. Clients say and hear plain names only; none of theirs may hold U+001D
(`broker.access` refuses it): it could name what is in another virtual host.

Which texts of a call are names, `broker.engine.client` says by the types of `call_names`; which of
a value, `_FIELDS`. `broker.engine.translating` makes the calls from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin

from broker.engine.call_names import Told
from broker.engine.client import ShardClient
from broker.engine.client.epochs import EpochClient
from broker.engine.client.exchanges import ExchangeClient
from broker.engine.client.federating import FederationClient
from broker.engine.client.groups import GroupClient
from broker.engine.client.message_flow import ConsumingClient, PublishingClient, SettlingClient
from broker.engine.client.messages import MessageClient
from broker.engine.client.queues import QueueClient
from broker.engine.client.streams import StreamClient
from broker.engine.traffic import Source
from broker.engine.translating import Translation, translated
from queue_manager.address import PREFIX, local_name, qualified_name
from queue_manager.api import (
    BindingDefinition,
    ExchangeDeclaration,
    ExchangeView,
    GroupView,
    QueueDeclaration,
    QueuePolicy,
    QueueStatus,
    QueueView,
)

_Part = TypeVar("_Part")


class _Fields(NamedTuple):
    """The fields of a value that are names, and those with several addresses."""

    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()


_FIELDS: Final[Mapping[type, _Fields]] = {
    BindingDefinition: _Fields(("source", "destination")),
    ExchangeDeclaration: _Fields(("name",)),
    ExchangeView: _Fields(("name",)),
    GroupView: _Fields(("queue",)),
    QueueDeclaration: _Fields(("name",), ("topics",)),
    QueueStatus: _Fields(("name",)),
    QueueView: _Fields(("name",), ("topics",)),
}


class VhostClient(ShardClient):
    """The client for one virtual host other than `/`."""

    def __init__(self, client: ShardClient, vhost: str) -> None:
        vars(self).update(vars(client))
        names = _Names(vhost)
        self.queues = names.within(client.queues, QueueClient)
        self.exchanges = names.within(client.exchanges, ExchangeClient)
        self.groups = names.within(client.groups, GroupClient)
        self.messages = names.within(client.messages, MessageClient)
        self.streams = names.within(client.streams, StreamClient)
        self.epochs = names.within(client.epochs, EpochClient)
        self.publishing = names.within(client.publishing, PublishingClient)
        self.consuming = names.within(client.consuming, ConsumingClient)
        self.settling = names.within(client.settling, SettlingClient)
        self.federation = names.within(client.federation, FederationClient)
        self.sessions = client.sessions.within(vhost)
        self.retained = client.retained.within(vhost)
        self.listings = client.listings.within(vhost)
        self.policies = client.policies.within(vhost)


class _Names:
    """Names of one virtual host, and what they are in the core."""

    __slots__ = ("vhost",)

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost

    def inner(self, name: str) -> str:
        """Return the core's name for a queue or exchange."""
        return qualified_name(self.vhost, name)

    def topic(self, topic: str) -> str:
        """Return a name as `inner`, for a `$queue/...` address."""
        if not topic.startswith(PREFIX):
            return topic
        return PREFIX + self.inner(topic[len(PREFIX) :])

    def within(self, part: _Part, of: type) -> _Part:
        """Return a part of a client, with calls as the class `of` has them, for the virtual host."""
        return translated(part, of, self._inward, self._outward)

    def _inward(self, hint: Any) -> Translation | None:
        if hint is Source:
            return _inner_source
        if _told(hint) is Told.VHOST:
            return lambda said: self.vhost
        return _renaming(hint, self.inner, self.topic)

    def _outward(self, hint: Any) -> Translation | None:
        return _VhostSource if hint is Source else _renaming(hint, local_name, _local_topic)


def _renaming(
    hint: Any, name: Callable[[str], str], topic: Callable[[str], str]
) -> Callable[[Any], Any] | None:
    """Return how values of a type get other names and addresses; None: they have none."""
    told = _told(hint)
    if told is not None:
        return topic if told is Told.ADDRESS else name
    fields = _FIELDS.get(hint) if isinstance(hint, type) else None
    if fields is None:
        return None

    def rename(value: Any) -> Any:
        changed: dict[str, Any] = {field: name(getattr(value, field)) for field in fields.names}
        changed |= {field: tuple(map(topic, getattr(value, field))) for field in fields.addresses}
        return replace(value, **changed)

    return rename


def _told(hint: Any) -> Told | None:
    """Return what a text of this type stands for; None: it is no name."""
    return get_args(hint)[1] if get_origin(hint) is Annotated else None


def _local_topic(topic: str) -> str:
    return PREFIX + local_name(topic[len(PREFIX) :]) if topic.startswith(PREFIX) else topic


class _VhostSource:
    """A queue under its name in the virtual host. Implements `Source`."""

    __slots__ = ("inner", "name")

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.name = local_name(inner.name)

    @property
    def policy(self) -> QueuePolicy:
        return self.inner.policy

    @property
    def quota_refusal(self) -> str:
        return self.inner.quota_refusal


def _inner_source(queue: Source) -> Source:
    return queue.inner if isinstance(queue, _VhostSource) else queue
