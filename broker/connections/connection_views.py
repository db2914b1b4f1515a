"""The view of a connection for operators: values, made when they are asked for."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

NODE: Final = f"sluicemq@{socket.gethostname()}"
TOLD_CHARACTERS_MAX: Final = 256
_TOLD: Final = ("connection_name", "product", "version", "platform", "information")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerView:
    """One consumer of a queue: `tag` is its consumer tag, or the topic filter of an MQTT client.

    `prefetch` 0: no bound. `unsettled`: messages it was given and has not settled.
    """

    queue: str
    group: str
    tag: str
    no_ack: bool
    exclusive: bool
    priority: int
    prefetch: int
    unsettled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelView:
    """One AMQP channel. `prefetch` holds for consumers to come, `prefetch_shared` for all together; 0: no
    bound.
    """

    number: int
    prefetch: int
    prefetch_shared: int
    unsettled: int
    confirms: bool
    transactional: bool
    consumers: tuple[ConsumerView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionView:
    """An MQTT client's subscription to plain topics."""

    filter: str
    qos: int
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a client by its front-end. `vhost` "": not let in yet."""

    protocol: str
    user: str
    vhost: str
    client_id: str = ""
    client: dict[str, str] = field(default_factory=dict)
    channels: tuple[ChannelView, ...] = ()
    consumers: tuple[ConsumerView, ...] = ()
    subscriptions: tuple[SubscriptionView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """One client that is connected; `id` is the broker's own number for it.

    `buffered_bytes`: written to it and not taken by it yet. `blocked`: nothing is read from it, for the store
    or the memory of the broker cannot take more. `held_by`: the quota for which it has to wait just now.
    """

    id: int
    peer: str
    local: str
    connected_at_ms: int
    buffered_bytes: int
    blocked: bool
    held_by: str
    description: Description

    @property
    def name(self) -> str:
        """Its name as RabbitMQ has it."""
        return f"{self.peer} -> {self.local}"

    @property
    def pid(self) -> str:
        """What stands for RabbitMQ's process of it, of which no other connection has the same."""
        return f"<{NODE}.{self.id}>"


def told_properties(given: Mapping[Any, Any] | None) -> dict[str, str]:
    """Return what is kept of the properties that a client of AMQP tells of itself: texts for people."""
    said = given or {}
    return {name: value[:TOLD_CHARACTERS_MAX] for name in _TOLD if isinstance(value := said.get(name), str)}
