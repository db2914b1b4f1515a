"""The consumers of one client: subscribed, paused and ended, whatever protocol it speaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.connections.connection_views import ConsumerView
from broker.engine.traffic import UNLIMITED, Claim, Consumer, Sink, Source
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from queue_manager.errors import QueueNotFound
from queue_manager.quota_accounts import CONSUMERS, MESSAGES_OUT


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


class Consumers:
    """By name: what the client calls them. They count for the client's quotas, unless they only pull."""

    __slots__ = ("_by_name", "_consuming", "_is_counted", "_is_paused", "_now_ms", "_settling", "_transport")

    def __init__(self, hub: Hub, transport: Transport, *, are_pullers: bool = False) -> None:
        self._transport = transport
        self._is_counted = not are_pullers
        self._consuming = hub.client.consuming
        self._settling = hub.client.settling
        self._now_ms = hub.clock.now_ms
        self._is_paused = transport.paused and not are_pullers
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
        return self._settling.holder(claim) in self._by_name.values()

    def check_room(self) -> None:
        """Raise LimitReached if there may be no consumer more."""
        self._transport.share.check(CONSUMERS)

    def _count(self, change: int) -> None:
        if self._is_counted:
            self._transport.share.add(CONSUMERS, change)

    def take(self, name: str, consumer: Consumer, sink: ConsumerSink) -> None:
        """Take a consumer that was made with this sink, in the place of another of that name."""
        sink.attach(consumer)
        self.end(name)
        share = self._transport.share
        if share.is_paced:
            consumer.pace(share.per_s(MESSAGES_OUT))
        if self._is_paused:
            consumer.pause()
        self._by_name[name] = consumer
        self._count(1)

    def end(self, name: str, *, keep_claims: bool = False) -> bool:
        """End the consumer of that name, whether there is one; its claims return or stay with the client."""
        consumer = self._by_name.pop(name, None)
        if consumer is None:
            return False
        self._count(-1)
        self._consuming.unsubscribe(consumer, self._now_ms(), keep_claims=keep_claims)
        return True

    def forget(self, name: str) -> None:
        """Forget the consumer of that name, which ended by itself."""
        if self._by_name.pop(name, None) is not None:
            self._count(-1)

    def pause(self) -> None:
        """Give nothing more to any of them, nor to those to come."""
        self._is_paused = True
        for consumer in self:
            consumer.pause()

    def resume(self) -> None:
        """Let them be given something again."""
        self._is_paused = False
        per_s = self._transport.share.per_s(MESSAGES_OUT)
        for consumer in self:
            consumer.pace(per_s)
            consumer.resume()
        self.wake()

    def wake(self) -> None:
        """Deliver to them again: their credit may have grown."""
        for consumer in self:
            self._consuming.wake(consumer)

    def end_all(self) -> None:
        """End them all; what one returns goes to none of the others."""
        self.pause()
        now_ms = self._now_ms()
        ended = list(self)
        self._by_name.clear()
        self._count(-len(ended))
        for consumer in ended:
            self._consuming.unsubscribe(consumer, now_ms)


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
