"""The consumers of one client: subscribed, paused and ended, whatever protocol it speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.connections.connection_views import ConsumerView
from broker.engine.answers import Answer
from broker.engine.traffic import UNLIMITED, Claim, Consumer, Sink, Source
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from queue_manager.address import local_name, vhost_of
from queue_manager.errors import InvalidArgument, QueueNotFound
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


def subscribed(
    queue: Source, find: Callable[[], Source], subscribe: Callable[[Source], Answer[Consumer]]
) -> Answer[Consumer]:
    """Subscribe to a queue that `find` gave; where its worker turns out to have it no more, to what `find`
    gives then.
    """

    def again() -> Answer[Consumer]:
        found = find()
        if found.policy.stream != queue.policy.stream:
            raise InvalidArgument(f"queue {queue.name!r} was just made anew as another kind: ask again")
        return subscribe(found)

    return subscribe(queue).otherwise(QueueNotFound, again)


class ConsumerSink(Sink, Protocol):
    """A sink that is told whose it is."""

    def attach(self, consumer: Consumer) -> None:
        """Take what consumers need; to be called once, before the first delivery."""


class Consumers:
    """By name: what the client calls them. They count for the client's quotas, unless they only pull.

    `_coming` are the answers that have yet to bring one, by its name.
    """

    __slots__ = (
        "_by_name", "_coming", "_consuming", "_events", "_is_counted", "_is_paused", "_now_ms", "_settling",
        "_transport",
    )  # fmt: skip

    def __init__(self, hub: Hub, transport: Transport, *, are_pullers: bool = False) -> None:
        self._transport = transport
        self._is_counted = not are_pullers
        self._events = hub.events
        self._consuming = hub.client.consuming
        self._settling = hub.client.settling
        self._now_ms = hub.clock.now_ms
        self._is_paused = transport.paused and not are_pullers
        self._by_name: dict[str, Consumer] = {}
        self._coming: dict[str, Answer[Consumer]] = {}

    def __len__(self) -> int:
        return len(self._by_name) + len(self._coming)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name or name in self._coming

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

    def expect(self, name: str, answer: Answer[Consumer], sink: ConsumerSink) -> None:
        """Take the consumer that an answer brings as `take`, unless it was ended by then."""
        if not answer.is_done:
            self._coming[name] = answer
            answer.then(partial(self._come, name, sink))
        elif not answer.is_error:  # whoever asked tells the client
            self.take(name, answer.result(), sink)

    def _come(self, name: str, sink: ConsumerSink, answer: Answer[Consumer]) -> None:
        is_wanted = self._coming.get(name) is answer
        if is_wanted:
            del self._coming[name]
        if answer.is_error:
            return
        if is_wanted:
            self._transport.guard(self.take, name, answer.result(), sink)
        else:
            self._consuming.unsubscribe(answer.result(), self._now_ms())

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
        self._tell("consumer.created", name, consumer)

    def end(self, name: str, *, keep_claims: bool = False) -> bool:
        """End the consumer of that name, whether there is one; its claims return or stay with the client."""
        is_coming = self._coming.pop(name, None) is not None
        consumer = self._by_name.pop(name, None)
        if consumer is None:
            return is_coming
        self._ended(name, consumer)
        self._consuming.unsubscribe(consumer, self._now_ms(), keep_claims=keep_claims)
        return True

    def forget(self, name: str) -> None:
        """Forget the consumer of that name, which ended by itself."""
        consumer = self._by_name.pop(name, None)
        if consumer is not None:
            self._ended(name, consumer)

    def _ended(self, name: str, consumer: Consumer) -> None:
        self._count(-1)
        self._tell("consumer.deleted", name, consumer)

    def _tell(self, key: str, name: str, consumer: Consumer) -> None:
        """Tell of a consumer that came or went."""
        if not (self._is_counted and self._events.is_wanted):
            return
        view = _view(name, consumer)
        headers: dict[str, Any] = {
            "consumer_tag": view.tag,
            "queue": local_name(view.queue),
            "vhost": vhost_of(view.queue),
            "group": view.group,
            "ack_required": not view.no_ack,
            "exclusive": view.exclusive,
            "prefetch_count": view.prefetch,
        }
        self._events.note(key, headers, self._transport.share.user.name)

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
        self._coming.clear()
        now_ms = self._now_ms()
        ended, self._by_name = self._by_name, {}
        for name, consumer in ended.items():
            self._ended(name, consumer)
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
