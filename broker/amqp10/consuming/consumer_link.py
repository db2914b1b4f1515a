"""A link that the client receives on: the consumer behind it, its credit, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.access.rights import Action, Kind
from broker.amqp10.connection.addresses import SourceNode
from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.consuming.delivery import LinkSink, WantedCredit
from broker.amqp10.consuming.filters import SourceFilters
from broker.amqp10.consuming.link_properties import LinkProperties
from broker.amqp10.settling.unsettled import Unsettled
from broker.clients.client_consumers import Consumers, find_or_create, subscribed
from broker.engine.answers import Answer
from broker.engine.traffic import UNLIMITED, Claim, Consumer, Source
from protocols.amqp10 import constants as c
from protocols.amqp10.link import Link
from protocols.amqp10.types import Symbol
from queue_manager.errors import InvalidArgument
from queue_manager.patterns import MATCH_ALL

_ACTIVE: Final = Symbol("rabbitmq:active")  # in the properties of flows, as of RabbitMQ's quorum queues


class ConsumerLink:
    """Gives the client what a queue holds, as far as the link has credit.

    `name` is what its consumer is called among those of the session.
    """

    def __init__(
        self,
        session: Session,
        link: Link,
        unsettled: Unsettled,
        consumers: Consumers,
        queue: Source,
        find: Callable[[], Source],
    ) -> None:
        """`find` gave the queue."""
        self.link = link
        self._session = session
        self._unsettled = unsettled
        self._consumers = consumers
        self._calls = session.core.consuming
        self._queue = queue
        self._find = find
        self.name = link.name if link.name not in consumers else f"{link.name}#{link.handle}"
        self._wanted = WantedCredit(session, link)
        self._consumer: Consumer | None = None
        self._is_active: bool | None = None  # None: nobody has to be the single active one

    def begin(self, pattern: str, properties: LinkProperties, filters: SourceFilters) -> Answer[Consumer]:
        """Begin to consume; raises QueueManagerError."""
        session = self._session
        queue = self._queue
        self._consumers.check_room()
        sink = LinkSink(session, self._unsettled, self._consumers, self.name, self.link)
        if queue.policy.stream:
            sink.tell_offsets()
        settings = session.hub.settings.queue_manager

        def subscribe(queue: Source) -> Answer[Consumer]:
            return self._calls.subscribe(
                queue,
                group_name=properties.group,
                pattern=pattern,
                sink=sink,
                consumer_id=f"{session.transport.peer}/{session.channel}/{self.name}",
                credit_max=UNLIMITED,
                no_ack=self.link.attach.snd_settle_mode == c.SENDER_SETTLED,
                exclusive=properties.exclusive,
                lease_ms=properties.lease_ms
                or queue.policy.consumer_timeout_ms
                or settings.consumer_timeout_ms,
                pool=self._wanted.credit,
                priority=properties.priority,
                start=filters.start,
                auto_commit=properties.auto_commit,
                is_single_active=properties.single_active,
                on_activity=self._activity_changed,
                **filters.wanted.options(),
            )

        answer = subscribed(queue, self._find, subscribe)
        self._consumers.expect(self.name, answer, sink)
        return answer

    def begun(self, consumer: Consumer) -> None:
        """Go on with the consumer, which is there."""
        self._consumer = consumer

    def attached(self) -> None:
        """Tell the client, whose link is attached now, whether it is the single active consumer; give what it
        allows.
        """
        self._tell_activity()
        if self.link.credit:  # which came before
            self.credit_changed()

    def _tell_activity(self) -> None:
        if self._is_active is not None:
            flag = {_ACTIVE: self._is_active}
            self._session.connection.send_flow(self.link, flag)
            self._session.transport.want_flush()

    def _activity_changed(self, is_active: bool) -> None:
        if is_active is not self._is_active:
            self._is_active = is_active
            if self.link.is_attached:
                self._session.transport.guard(self._tell_activity)

    def credit_changed(self) -> None:
        """Give as many messages as the client allows; all there are, if it drains the link."""
        consumer = self._consumer
        if consumer is None or not self.link.is_attached or self.name not in self._consumers:
            return
        credit = self._wanted.credit
        credit.set(self.link.credit)
        if self.link.drain:
            credit.drain()
        self._calls.wake(consumer)

    def resumed(self) -> None:
        """Go on with a drain that waited for the client."""
        if self._wanted.credit.is_draining:
            self._wanted.credit.drain()

    def close(self) -> None:
        """End: what is unsettled returns."""
        consumer = self._consumer
        self.leave({} if consumer is None else {consumer: self._unsettled.take_of(consumer)}, is_lost=False)

    def leave(self, held: dict[Consumer | None, list[Claim]], *, is_lost: bool) -> None:
        """End: what the consumer has of what is `held` returns, as if it had not been given; `is_lost`: as an
        attempt that failed.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            self._consumers.end(self.name)  # which is to come, if it is
            return
        consumer.pause()
        hub = self._session.hub
        claims, now_ms = held.get(consumer, []), hub.clock.now_ms()
        if is_lost:
            hub.client.settling.requeue(claims, now_ms, delay_ms=0)
        else:
            hub.client.settling.release(claims, now_ms, delay_ms=0)
        self._consumers.end(self.name, keep_claims=True)  # which others has a transaction


def find_source(session: Session, node: SourceNode, properties: LinkProperties) -> tuple[Source, str]:
    """Return the queue of a source and the pattern of what is wanted of it; raises QueueManagerError."""
    client = session.client
    identity = client.identity
    if node.address:
        identity.check(Action.READ, Kind.ADDRESS, node.address)
        queue = find_or_create(session.hub, identity, node.queue, client.caller)
    else:
        identity.check(Action.READ, Kind.QUEUE, node.queue)
        queue = session.core.consuming.find(node.queue, client.caller)
    identity.check(Action.READ, Kind.GROUP, properties.group)
    if node.pattern and properties.pattern and node.pattern != properties.pattern:
        raise InvalidArgument("the address and the link property pattern say different patterns")
    return queue, node.pattern or properties.pattern or MATCH_ALL
