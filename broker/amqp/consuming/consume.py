"""basic.qos, consume, cancel, get and recover."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pamqp import commands

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import connection_error
from broker.amqp.connection.held_events import HeldEvents
from broker.amqp.consuming.consume_arguments import ConsumerArguments, consumer_arguments
from broker.amqp.consuming.delivery import AmqpConsumer, AmqpPlacedConsumer, AmqpStreamConsumer
from broker.amqp.publishing.direct_replies import DirectReplies
from broker.amqp.settling.unacked import Unacked
from broker.amqp.topology.bad_arguments import BadArgument
from broker.clients.client_consumers import Consumers, find_or_create, subscribed
from broker.connections.connection_views import ChannelView
from broker.engine.answers import Answer
from broker.engine.client.message_flow import ConsumingClient
from broker.engine.traffic import UNLIMITED, Consumer, Credit, Source
from config import limits
from config.settings import QueueManagerSettings
from protocols.amqp091 import constants as c
from protocols.amqp091.events import MethodReceived
from protocols.amqp091.names import REPLY_TO
from queue_manager import address
from queue_manager.errors import InvalidAddress, InvalidArgument, LimitReached
from queue_manager.patterns import MATCH_ALL


@dataclass(eq=False, repr=False, slots=True)
class Consuming:
    """The consumers of a channel by consumer tag, those of basic.get by queue, and the credit they have.

    The methods raise QueueManagerError for what is refused, and ProtocolError.
    """

    _channel: AmqpChannel
    _held: HeldEvents
    _unacked: Unacked
    _replies: DirectReplies
    _consumers: Consumers
    _calls: ConsumingClient = field(init=False)
    _settings: QueueManagerSettings = field(init=False)
    _pullers: Consumers = field(init=False)
    _prefetch: int = field(default=0, init=False)
    _pool: Credit | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._calls = self._channel.core.consuming
        hub = self._channel.hub
        self._settings = hub.settings.queue_manager
        self._pullers = Consumers(hub, self._channel.transport, are_pullers=True)

    def view(self, unsettled: int, *, confirms: bool, transactional: bool) -> ChannelView:
        """Return the channel as its consumers have it, with what the other parts of it know."""
        shared = 0 if self._pool is None or self._pool.credit_max >= UNLIMITED else self._pool.credit_max
        return ChannelView(
            number=self._channel.number,
            prefetch=self._prefetch,
            prefetch_shared=shared,
            unsettled=unsettled,
            confirms=confirms,
            transactional=transactional,
            consumers=self._consumers.views(),
        )

    def pause(self) -> None:
        """Pause: the client reads too slowly."""
        self._consumers.pause()

    def resume(self) -> None:
        """Resume: the client caught up."""
        self._consumers.resume()

    def close(self) -> None:
        """End the channel: consumers end, unsettled messages return in order, to none of them."""
        self._consumers.pause()
        self._pullers.pause()
        self._requeue_all(is_spared=False)  # no fault of theirs
        self._consumers.end_all()
        self._pullers.end_all()

    def qos(self, method: commands.Basic.Qos) -> None:
        """Set the credit of consumers to come, or (`global`) of all of the channel together."""
        if method.prefetch_size:
            raise connection_error(c.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
        if method.global_:
            credit = method.prefetch_count or UNLIMITED
            if self._pool is None:
                consuming = self._calls
                self._pool = consuming.credit(credit)
                for consumer in self._consumers:
                    consuming.share(consumer, self._pool)
            else:
                self._pool.set_credit(credit)
            self._consumers.wake()
        else:
            self._prefetch = method.prefetch_count
        self._channel.send(commands.Basic.QosOk())

    def consume(self, method: commands.Basic.Consume) -> None:
        """Begin to consume."""
        channel = self._channel
        client = channel.client
        tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
        if tag in self._consumers or self._replies.has(tag):
            raise connection_error(c.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if method.queue == REPLY_TO:
            known = self._replies.consume(method, tag)
            self._held.expect(known, partial(self._begun, method, tag), method.index)
            return
        if len(self._consumers) >= limits.AMQP_CONSUMERS_PER_CHANNEL_MAX:
            raise LimitReached(f"a channel has at most {limits.AMQP_CONSUMERS_PER_CHANNEL_MAX} consumers")
        self._consumers.check_room()
        queue, pattern = self._source(method.queue)
        wanted = _wanted(method, queue, client.vhost)
        sink = _sink_class(queue, wanted)(channel, self._unacked, self._consumers, tag, tag)

        def subscribe(queue: Source) -> Answer[Consumer]:
            return self._calls.subscribe(
                queue,
                group_name=wanted.group,
                pattern=pattern,
                sink=sink,
                consumer_id=f"{client.transport.peer}/{channel.number}/{tag}",
                credit_max=self._prefetch or UNLIMITED,
                no_ack=method.no_ack,
                exclusive=method.exclusive,
                lease_ms=wanted.lease_ms or self._lease_ms(queue),
                pool=None if method.no_ack else self._pool,
                priority=wanted.priority,
                start=wanted.stream_start(channel.hub.clock.now_ms()),
                auto_commit=wanted.commits_itself(),
                is_told_offsets=bool(wanted.group) or wanted.tells_offset,
                **wanted.filters.options(),
            )

        answer = subscribed(queue, lambda: self._source(method.queue)[0], subscribe)
        self._consumers.expect(tag, answer, sink)
        self._held.expect(answer, partial(self._begun, method, tag), method.index)

    def _begun(self, method: commands.Basic.Consume, tag: str, answer: Answer[Any]) -> None:
        answer.result()
        if not method.nowait:
            self._channel.send(commands.Basic.ConsumeOk(tag))

    def cancel(self, method: commands.Basic.Cancel) -> None:
        """End a consumer; what it was given stays with the client."""
        tag = method.consumer_tag or ""
        if self._replies.has(tag):
            self._replies.end()
        self._consumers.end(tag, keep_claims=True)
        if not method.nowait:
            self._channel.send(commands.Basic.CancelOk(method.consumer_tag))

    def get(self, method: commands.Basic.Get) -> None:
        """Give one message; none to a client who has ended the channel by now, for it could not be told."""
        channel = self._channel
        if not channel.connection.channel_is_open(channel.number):
            return
        if channel.transport.paused:
            self._held.hold_until_read(MethodReceived(channel.number, method))
            return
        queue, pattern = self._source(method.queue)
        if pattern != MATCH_ALL:
            raise InvalidAddress("basic.get takes a whole queue, not a pattern")
        puller = self._pullers.find(queue.name)
        if puller is None or self._calls.is_gone(puller):  # of an earlier queue of that name
            puller = self._new_puller(queue)
        answer = self._calls.pull(puller, method.no_ack, channel.hub.clock.now_ms())
        if not answer.is_done:
            self._held.expect(answer, self._got, method.index)
        elif not answer.result():
            self._tell_empty()

    def _got(self, answer: Answer[int]) -> None:
        if not answer.result():
            self._tell_empty()

    def _tell_empty(self) -> None:
        self._channel.send(commands.Basic.GetEmpty())
        self._channel.transport.want_flush()

    def recover(self, method: commands.Basic.Recover) -> None:
        """Return what is unsettled."""
        if not method.requeue:
            raise connection_error(c.NOT_IMPLEMENTED, "requeue=false")
        self._requeue_all(is_spared=True)
        self._channel.send(commands.Basic.RecoverOk())

    def recover_async(self, method: commands.Basic.RecoverAsync) -> None:
        """Recover as `recover`, without an answer."""
        if not method.requeue:
            raise connection_error(c.NOT_IMPLEMENTED, "requeue=false")
        self._requeue_all(is_spared=True)

    def _source(self, name: str) -> tuple[Source, str]:
        """Return the queue and pattern a consume or get names: a queue's name, or a `$queue/...` address."""
        channel = self._channel
        consuming = self._calls
        caller = channel.client.caller
        name = channel.queue_meant(name)
        if not address.is_queue_topic(name):
            return consuming.find(name, caller), MATCH_ALL
        parsed = address.parse(name)
        if parsed.verb:
            raise InvalidAddress(f"{name!r} is a control topic: there is nothing to consume")
        queue = find_or_create(channel.hub, channel.client.identity, parsed.name, caller)
        return queue, parsed.rest or MATCH_ALL

    def _lease_ms(self, queue: Source) -> int:
        return queue.policy.consumer_timeout_ms or self._settings.consumer_timeout_ms

    def _new_puller(self, queue: Source) -> Consumer:
        channel = self._channel
        sink = AmqpConsumer(channel, self._unacked, self._pullers, queue.name, "")
        peer = channel.transport.peer
        puller = self._calls.puller(
            queue, sink, f"{peer}/{channel.number}/get", lease_ms=self._lease_ms(queue)
        )
        self._pullers.forget(queue.name)  # of an earlier queue of that name
        self._pullers.take(queue.name, puller, sink)
        return puller

    def _requeue_all(self, *, is_spared: bool) -> None:
        hub = self._channel.hub
        claims = self._unacked.release_all()
        hub.client.settling.requeue(claims, hub.clock.now_ms(), delay_ms=0, is_spared=is_spared)


def _sink_class(queue: Source, wanted: ConsumerArguments) -> type[AmqpConsumer]:
    """Return the sink of a consumer: a stream always tells offset and time, a classic queue where asked."""
    if queue.policy.stream:
        return AmqpStreamConsumer
    return AmqpPlacedConsumer if wanted.tells_offset else AmqpConsumer


def _wanted(method: commands.Basic.Consume, queue: Source, vhost: str) -> ConsumerArguments:
    """Return what a basic.consume of that queue asks for; raises InvalidArgument."""
    try:
        wanted = consumer_arguments(method.arguments or {})
        if not queue.policy.stream:
            wanted.check_no_stream()
    except BadArgument as error:
        raise InvalidArgument(error.told(queue.name, vhost)) from None
    return wanted


METHODS: Final[dict[type, Callable[[Consuming, Any], None]]] = {
    commands.Basic.Qos: Consuming.qos,
    commands.Basic.Consume: Consuming.consume,
    commands.Basic.Cancel: Consuming.cancel,
    commands.Basic.Get: Consuming.get,
    commands.Basic.Recover: Consuming.recover,
    commands.Basic.RecoverAsync: Consuming.recover_async,
}
