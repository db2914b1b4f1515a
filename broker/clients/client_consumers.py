"""The consumers of one client: subscribed, paused and ended, whatever protocol it speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.clients.consumer_filters import Filters
from broker.connections.connection_views import ConsumerView
from broker.engine.traffic import UNLIMITED, Claim, Consumer, Credit, Places, Sink, Source
from broker.vhosts.hub import Hub
from queue_manager.errors import QueueNotFound
from queue_manager.log.stream_start import StreamStart


def find_or_create(hub: Hub, identity: Identity, name: str, caller: str) -> Source:
    """Return the queue that an address names; one in memory where there is none, if the client may make it.

    Raises QueueManagerError.
    """
    consuming = hub.client.consuming
    try:
        return consuming.find(name, caller)
    except QueueNotFound:
        identity.check(Action.CONFIGURE, Kind.QUEUE, name)
        return consuming.find_or_create(name, caller, hub.clock.now_ms())


class ConsumerSink(Sink, Protocol):
    """A sink that is told whose it is."""

    def attach(self, consumer: Consumer) -> None:
        """Take what consumers need; to be called once, before the first delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRequest:
    """The request of a client that subscribes to a queue; `start` and `auto_commit` are for streams."""

    queue: Source
    group: str
    pattern: str
    consumer_id: str
    credit_max: int
    no_ack: bool
    exclusive: bool
    lease_ms: int
    pool: Credit | Places | None
    priority: int
    filters: Filters
    start: StreamStart | None = None
    auto_commit: bool = True
    is_told_offsets: bool = False


class Consumers:
    """By name: what the client calls them."""

    __slots__ = ("_by_name", "_hub", "_is_paused")

    def __init__(self, hub: Hub, *, is_paused: bool = False) -> None:
        self._hub = hub
        self._is_paused = is_paused
        self._by_name: dict[str, Consumer] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._by_name.values())

    def views(self) -> tuple[ConsumerView, ...]:
        """Return what there is to tell of them."""
        return tuple([_view(name, consumer) for name, consumer in self._by_name.items()])

    def find(self, name: str) -> Consumer | None:
        """Return the consumer of that name."""
        return self._by_name.get(name)

    def holds(self, claim: Claim) -> bool:
        """Return whether the claim is that of one of them."""
        return self._hub.client.settling.holder(claim) in self._by_name.values()

    def subscribe(self, name: str, request: ConsumerRequest, sink: ConsumerSink) -> None:
        """Make a consumer, in the place of another of that name; raises QueueManagerError."""
        consumer = self._hub.client.consuming.subscribe(
            request.queue,
            request.group,
            request.pattern,
            sink,
            consumer_id=request.consumer_id,
            credit_max=request.credit_max,
            no_ack=request.no_ack,
            exclusive=request.exclusive,
            lease_ms=request.lease_ms,
            pool=request.pool,
            priority=request.priority,
            start=request.start,
            auto_commit=request.auto_commit,
            is_told_offsets=request.is_told_offsets,
            **request.filters.options(),
        )
        sink.attach(consumer)
        self.end(name)
        self.add(name, consumer)

    def add(self, name: str, consumer: Consumer) -> None:
        """Take one that was made elsewhere."""
        if self._is_paused:
            consumer.pause()
        self._by_name[name] = consumer

    def end(self, name: str, *, keep_claims: bool = False) -> bool:
        """End the consumer of that name, whether there is one; its claims return or stay with the client."""
        consumer = self._by_name.pop(name, None)
        if consumer is None:
            return False
        hub = self._hub
        hub.client.consuming.unsubscribe(consumer, hub.clock.now_ms(), keep_claims=keep_claims)
        return True

    def forget(self, name: str) -> None:
        """Forget the consumer of that name, which ended by itself."""
        self._by_name.pop(name, None)

    def pause(self) -> None:
        """Give nothing more to any of them, nor to those to come."""
        self._is_paused = True
        for consumer in self:
            consumer.pause()

    def resume(self) -> None:
        """Let them be given something again."""
        self._is_paused = False
        for consumer in self:
            consumer.resume()
        self.wake()

    def wake(self) -> None:
        """Deliver to them again: their credit may have grown."""
        for consumer in self:
            self._hub.client.consuming.wake(consumer)

    def end_all(self) -> None:
        """End them all; what one returns goes to none of the others."""
        self.pause()
        hub = self._hub
        now_ms = hub.clock.now_ms()
        ended = list(self)
        self._by_name.clear()
        for consumer in ended:
            hub.client.consuming.unsubscribe(consumer, now_ms)


def _view(name: str, consumer: Consumer) -> ConsumerView:
    return ConsumerView(
        queue=consumer.group.queue_name,
        group=consumer.group.group_id,
        tag=name,
        no_ack=consumer.no_ack,
        exclusive=consumer.exclusive,
        priority=consumer.priority,
        prefetch=0 if consumer.credit_max >= UNLIMITED else consumer.credit_max,
        unsettled=consumer.held_count,
    )
