"""SUBSCRIBE: plain filters go to the subscription tree, `$queue/...` ones make consumers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import structlog

from broker.access.rights import Action, Kind
from broker.clients.client_consumers import find_or_create, subscribed
from broker.connections.connection_views import SubscriptionView
from broker.engine.answers import Answer
from broker.engine.elsewhere import Pages
from broker.engine.session_traffic import SubscriptionOptions
from broker.engine.traffic import UNLIMITED, Consumer, RetainedMessage, Source
from broker.mqtt.connection.errors import subscribe_code
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.consuming.delivery import MqttConsumer, MqttStreamConsumer
from broker.mqtt.consuming.retained_sending import Found, RetainedSending, RetainedTurns
from broker.mqtt.consuming.subscribe_options import (
    EXPLICIT,
    PROPERTIES,
    SubscribeOptions,
    TemporaryGroups,
    read_options,
)
from broker.mqtt.consuming.system_topics import SystemTopics
from broker.mqtt.sessions.session_link import SessionLink
from broker.mqtt.sessions.shares import KeptShares
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import Subscription, encode_identifier
from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.events import SubscribeReceived, UnsubscribeReceived
from protocols.mqtt.packets import SubscriptionRequest
from protocols.mqtt.properties import NO_PROPERTIES, Properties, decode_properties, encode_properties
from protocols.mqtt.topic_filters import split_shared
from queue_manager import address
from queue_manager.address import PASSING_GROUP_PREFIX
from queue_manager.errors import InvalidAddress, InvalidArgument, QueueManagerError
from queue_manager.patterns import MATCH_ALL
from queue_manager.quota_accounts import SUBSCRIPTIONS
from storage.envelope import EnvelopeTemplate
from storage.errors import StorageError

T = TypeVar("T")

_log: Final = structlog.get_logger("sluicemq.mqtt")


@dataclass(eq=False, repr=False, slots=True)
class Subscriptions:
    """The subscriptions of a client: plain filters are kept here, consumers by the client.

    `_late_count` are those whose consumers are to come: what the client asks of subscriptions behind them
    waits in `_held`. Whatever else it says is heard meanwhile, until so much waits that nothing is read.
    """

    _client: MqttClient
    _outbound: Outbound
    _pubsub: PubSub
    _system: SystemTopics
    _shares: KeptShares
    turns: InitVar[RetainedTurns]
    _link: SessionLink | None
    _plain: dict[str, Subscription] = field(default_factory=dict, init=False)
    _temporary: TemporaryGroups = field(init=False)
    _counted: int = field(default=0, init=False)
    # of the packet whose filters come just now
    _codes: list[int] = field(default_factory=list, init=False)
    _reasons: list[str] = field(default_factory=list, init=False)
    _after: list[Callable[[], None]] = field(default_factory=list, init=False)
    _late_count: int = field(default=0, init=False)
    _held: deque[Callable[[], None]] = field(default_factory=deque, init=False)
    _is_unread: bool = field(default=False, init=False)
    _is_over: bool = field(default=False, init=False)
    _retained: RetainedSending = field(init=False)

    def __post_init__(self, turns: RetainedTurns) -> None:
        """`link` is the way to the client's lasting session, if it has one."""
        self._temporary = TemporaryGroups(self._client.hub)
        self._retained = RetainedSending(turns, self._outbound)

    def resume(self) -> None:
        """Take up what the lasting session is subscribed to beside its logs."""
        subscribed = {} if self._link is None else self._link.session.subscriptions
        for subscription in list(subscribed.values()):
            if not subscription.is_logged:
                self._resume(subscription.filter, subscription.options)

    def views(self) -> tuple[SubscriptionView, ...]:
        """Return what there is to tell of those to plain topics."""
        return tuple(
            [
                SubscriptionView(filter=each.filter, qos=each.qos, share=each.share)
                for each in self._plain.values()
            ]
        )

    def on_subscribe(self, event: SubscribeReceived) -> None:
        """Make the subscriptions that are asked for, and answer the last with a SUBACK."""
        if self._late_count > 0:
            self._hold(partial(self.on_subscribe, event))
            return
        for request in event.filters:
            if self._count() >= limits.MQTT_SUBSCRIPTIONS_PER_SESSION_MAX:
                self._codes.append(c.QUOTA_EXCEEDED)
                self._reasons.append("too many subscriptions")
                continue
            self._codes.append(request.qos)
            refuse = partial(self._refuse, len(self._codes) - 1, request.filter)
            self._subscribe(event, request, self._after, refuse)
            self._note_count()
        if not event.is_last:
            return
        if self._late_count > 0:
            self._held.appendleft(partial(self._end_subscribe, event.packet_id))
        else:
            self._end_subscribe(event.packet_id)

    def _refuse(self, index: int, topic_filter: str, code: int, reason: str) -> None:
        """Refuse the filter that has this place in its packet."""
        self._codes[index] = code
        self._reasons.append(f"{topic_filter}: {reason}")
        client = self._client
        _log.warning(
            "mqtt.subscribe_refused",
            peer=client.transport.peer,
            client_id=client.client_id,
            filter=topic_filter,
            reason=reason,
        )

    def _end_subscribe(self, packet_id: int) -> None:
        codes, reasons, after = self._codes, self._reasons, self._after
        self._codes, self._reasons, self._after = [], [], []
        told = "; ".join(reasons[: limits.MQTT_REASONS_TOLD_MAX])[: limits.MQTT_REASON_CHARACTERS_MAX]
        properties = Properties(reason_string=told) if reasons else NO_PROPERTIES
        self._when_durable(partial(self._answer, packet_id, codes, properties, after))

    def _answer(
        self,
        packet_id: int,
        codes: list[int],
        properties: Properties,
        after: list[Callable[[], None]],
    ) -> None:
        self._client.connection.send_suback(packet_id, codes, properties)
        for call in after:  # retained messages come behind the SUBACK
            call()

    def _when_durable(self, call: Callable[[], None]) -> None:
        """Answer a client at once, or where it has a lasting session once that is written."""
        if self._link is None:
            call()
        else:
            self._client.when_durable(call)

    def _count(self) -> int:
        if self._link is None:
            return len(self._plain) + len(self._client.consumers)
        return len(self._link.session.subscriptions) + self._late_count

    def _check_room(self, topic_filter: str) -> None:
        """Raise LimitReached if a filter is one too many."""
        known = self._plain if self._link is None else self._link.session.subscriptions
        if topic_filter not in known and topic_filter not in self._client.consumers:
            self._client.transport.share.check(SUBSCRIPTIONS)

    def _note_count(self) -> None:
        """Have the subscriptions count for quotas; those of a session do by themselves."""
        if self._link is None:
            count = self._count()
            self._client.transport.share.add(SUBSCRIPTIONS, count - self._counted)
            self._counted = count

    def on_unsubscribe(self, event: UnsubscribeReceived) -> None:
        """End subscriptions; what their consumers hold returns."""
        if self._late_count > 0:
            self._hold(partial(self.on_unsubscribe, event))
            return
        codes = self._codes
        for topic_filter in event.filters:
            found = self._client.consumers.end(topic_filter)
            if found:
                self._outbound.forget_ended()
            found |= self._end_plain(topic_filter)
            if self._link is not None:
                found |= self._link.unsubscribe(topic_filter)
                self._shares.part(self._link.session, topic_filter)
            self._note_count()
            codes.append(c.SUCCESS if found else c.NO_SUBSCRIPTION_EXISTED)
        if not event.is_last:
            return
        self._codes = []
        self._when_durable(partial(self._client.connection.send_unsuback, event.packet_id, codes))

    def _end_plain(self, topic_filter: str) -> bool:
        subscription = self._plain.pop(topic_filter, None)
        if subscription is not None:
            self._pubsub.unsubscribe(subscription)
        return subscription is not None

    def _resume(self, topic_filter: str, options: SubscriptionOptions) -> None:
        """Subscribe again as the session says; what is not possible any more is dropped."""
        request = SubscriptionRequest(
            topic_filter,
            options.qos,
            no_local=options.no_local,
            retain_as_published=options.retain_as_published,
            retain_handling=2,  # retained messages are for who subscribes
        )
        user_properties = decode_properties(options.properties, c.SUBSCRIBE).user_properties
        event = SubscribeReceived(0, [request], user_properties, options.identifier or None)
        self._subscribe(event, request, [], partial(self._drop, topic_filter))

    def _drop(self, topic_filter: str, code: int, reason: str) -> None:
        """Have the session forget a subscription that cannot be had any more. One whose queue is out of reach
        is kept: the client comes again for it.
        """
        assert self._link is not None
        if code == c.UNSPECIFIED_ERROR:
            self._client.disconnect(c.SERVER_BUSY, f"the subscription {topic_filter!r} has to wait: {reason}")
            return
        self._link.unsubscribe(topic_filter)
        _log.warning(
            "mqtt.subscription_ended",
            client_id=self._client.client_id,
            filter=topic_filter,
            reason=reason,
        )

    def wake(self) -> None:
        """Send more: the client takes it."""
        for subscription in self._plain.values():
            if subscription.group is not None:
                subscription.group.wake()
        if self._link is not None:
            self._link.session.wake()

    def end(self) -> None:
        """End all: the client is gone."""
        self._is_over = True
        self._held.clear()
        self._retained.end()
        for subscription in self._plain.values():
            self._pubsub.unsubscribe(subscription)
        self._plain.clear()
        self._client.consumers.end_all()
        self._temporary.end()
        self._note_count()

    def _subscribe(
        self,
        event: SubscribeReceived,
        request: SubscriptionRequest,
        after: list[Callable[[], None]],
        refuse: Callable[[int, str], None],
    ) -> None:
        """Make one subscription, or call `refuse` with the reason code and the reason, perhaps later (see
        `_late_count`).

        What is to be sent behind the SUBACK is added to `after`.
        """
        try:
            self._check_room(request.filter)
            share, topic_filter = split_shared(request.filter)
            if address.is_queue_topic(topic_filter):
                self._subscribe_queue(event, request, share, topic_filter, refuse)
            else:
                self._system.check(self._client.identity, topic_filter)
                self._subscribe_plain(event, request, share, topic_filter, after, refuse)
        except ProtocolError as error:
            refuse(error.code, error.reason)
        except QueueManagerError as error:
            refuse(subscribe_code(error), error.reason)

    def _expect(
        self, answer: Answer[T], then: Callable[[T], None], refuse: Callable[[int, str], None]
    ) -> None:
        """Go on by `then` or `refuse` once the answer of the core is there."""
        if answer.is_done:
            then(answer.result())
            return
        self._late_count += 1
        answer.then(partial(self._client.transport.guard, self._go_on, then, refuse))

    def _hold(self, request: Callable[[], None]) -> None:
        """Have a request wait behind those that are late."""
        self._held.append(request)
        self._bound_held()

    def _bound_held(self) -> None:
        """Read nothing more while much waits."""
        is_unread = len(self._held) >= limits.MQTT_HELD_REQUESTS_MAX
        if is_unread != self._is_unread:
            self._is_unread = is_unread
            reading = self._client.transport.reading
            (reading.hold if is_unread else reading.release)()

    def _is_gone(self) -> bool:
        return self._is_over or self._client.connection.closed

    def _go_on(
        self, then: Callable[[T], None], refuse: Callable[[int, str], None], answer: Answer[T]
    ) -> None:
        client = self._client
        if self._is_gone():
            return
        try:
            then(answer.result())
        except QueueManagerError as error:
            refuse(subscribe_code(error), error.reason)
        except StorageError:
            return  # it waits for ever: the broker ends, and says so to every client
        if self._is_gone():
            return
        self._late_count -= 1
        while self._held and not self._late_count:
            self._held.popleft()()
        self._bound_held()
        client.transport.want_flush()
        client.hub.settle_turn()

    def _subscribe_plain(
        self,
        event: SubscribeReceived,
        request: SubscriptionRequest,
        share: str,
        topic_filter: str,
        after: list[Callable[[], None]],
        refuse: Callable[[int, str], None],
    ) -> None:
        if share and request.no_local:
            raise ProtocolError(c.PROTOCOL_ERROR, "no-local on a shared subscription")
        for name, _ in event.user_properties:
            if name in PROPERTIES:  # such as a selector: without it far too much would come
                raise InvalidArgument(f"user property {name} is for $queue/... topics only")
        self._client.identity.check(Action.READ, Kind.FILTER, topic_filter)
        subscription = Subscription(
            self._outbound,
            topic_filter,
            request.qos,
            no_local=request.no_local,
            retain_as_published=request.retain_as_published,
            identifiers=encode_identifier(event.subscription_identifier),
            share=share,
            session=None if self._link is None else self._link.session,
        )
        is_logged = self._link is not None and request.qos > 0 and not share
        is_new = request.filter not in self._plain
        if self._link is not None:
            is_new = self._note(event, request, is_logged=is_logged)
            if share:
                self._shares.join(self._link.session, request.filter, request.qos)
        if is_logged:
            self._end_plain(request.filter)
            if self._plain:  # of what they bring some comes by the session from now on
                self._pubsub.forget_routes()
        else:
            self._pubsub.subscribe(subscription)
            self._plain[request.filter] = subscription
        if self._pubsub.elsewhere is not None:  # a SUBACK says that publishes anywhere are heard
            self._expect(self._pubsub.elsewhere.settled(), _nothing_more, refuse)
        if not share and (request.retain_handling == 0 or (request.retain_handling == 1 and is_new)):
            after.append(partial(self._send_retained, request.filter, subscription))

    def _note(self, event: SubscribeReceived, request: SubscriptionRequest, *, is_logged: bool) -> bool:
        """Have a lasting session know a subscription; whether it did not."""
        if self._link is None:
            return False
        properties = encode_properties(Properties(user_properties=event.user_properties), c.SUBSCRIBE)
        options = SubscriptionOptions(
            request.qos,
            request.no_local,
            request.retain_as_published,
            request.retain_handling,
            event.subscription_identifier or 0,
            properties,
        )
        return self._link.subscribe(request.filter, options, is_logged=is_logged)

    def _send_retained(self, name: str, subscription: Subscription) -> None:
        """Send a new subscription what is retained."""
        wanted = self._wanted(name)
        if wanted is None:
            return
        topic_filter, elsewhere = subscription.filter, self._pubsub.elsewhere
        hub = self._client.hub
        found = chain(hub.client.retained.matching(topic_filter), self._system.matching(topic_filter))
        pages = None if elsewhere is None else elsewhere.retained(self._pubsub.vhost, topic_filter)
        self._send_found(name, wanted, subscription, found, pages)

    def _send_found(
        self, name: str, wanted: object, subscription: Subscription, found: Found, pages: Pages | None
    ) -> None:
        """Send a subscription what was found here, and by other workers, as long as it is not ended or made
        anew; what is retained by a worker that is gone comes once that is there again.
        """
        hub = self._client.hub
        now_ms = hub.clock.now_ms()
        lasting: list[tuple[EnvelopeTemplate, int, int, bytes]] = []

        def send(message: RetainedMessage) -> bool:
            if self._wanted(name) is not wanted:
                return False
            if not self._outbound.may_read(message.topic):
                return True
            is_lasting = self._link is not None and message.qos and subscription.qos
            if is_lasting and len(lasting) < limits.SESSION_RETAINED_SENT_MAX:
                lasting.append((message.template, message.qos, message.received_at_ms, message.body))
            else:
                self._outbound.send_retained(message, subscription, now_ms)
            return True

        def done() -> None:
            if lasting and self._link is not None and self._wanted(name) is wanted:
                hub.client.sessions.send_own(self._link.session, subscription.filter, lasting)
                hub.settle_turn()
            for later in () if pages is None else pages.later():
                later.then(partial(self._send_later, name, wanted, subscription))

        self._retained.add(found if pages is None else chain(found, pages), send, done, pages)

    def _send_later(
        self, name: str, wanted: object, subscription: Subscription, answer: Answer[Pages]
    ) -> None:
        if not answer.is_error and not self._is_gone() and self._wanted(name) is wanted:
            self._send_found(name, wanted, subscription, iter(()), answer.result())

    def _wanted(self, name: str) -> object:
        """Return what stands for a subscription until that is ended or made anew."""
        return self._plain.get(name) or (self._link and self._link.session.subscriptions.get(name))

    def _subscribe_queue(
        self,
        event: SubscribeReceived,
        request: SubscriptionRequest,
        share: str,
        topic_filter: str,
        refuse: Callable[[int, str], None],
    ) -> None:
        client = self._client
        parsed = self._permitted(topic_filter)
        options = read_options(event.user_properties, client.clock.now_ms())
        is_stream = client.core.consuming.is_stream(parsed.name)
        group = options.group or share or self._own_group(is_stream=is_stream)
        client.identity.check(Action.READ, Kind.GROUP, group)
        if options.stream is not None and not is_stream:
            raise InvalidArgument(f"{options.stream.given}: queue {parsed.name!r} is no stream")
        find = partial(find_or_create, client.hub, client.identity, parsed.name, client.caller)
        queue = find()
        if request.no_local:
            raise InvalidArgument("no-local is not supported on queues: who publishes may consume, too")
        is_explicit = self._is_explicit(options, is_stream=is_stream)
        if is_explicit and request.qos == 0:
            raise InvalidArgument("explicit settling needs QoS 1 or 2")
        sink = (MqttStreamConsumer if is_stream else MqttConsumer)(
            client,
            self._outbound,
            request.filter,
            request.qos,
            explicit=is_explicit,
            identifiers=encode_identifier(event.subscription_identifier),
        )
        is_replacement = request.filter in client.consumers  # [MQTT-3.8.4-3]
        if not is_replacement:
            client.consumers.check_room()

        def subscribe(queue: Source) -> Answer[Consumer]:
            return client.core.consuming.subscribe(
                queue,
                group_name=group,
                pattern=parsed.rest or MATCH_ALL,
                sink=sink,
                consumer_id=client.client_id,
                credit_max=min(options.prefetch or UNLIMITED, self._outbound.window.receive_maximum),
                no_ack=request.qos == 0,
                exclusive=options.exclusive,
                lease_ms=queue.policy.visibility_timeout_ms,
                pool=self._outbound.places() if request.qos else None,
                priority=options.priority,
                start=None if options.stream is None else options.stream.start,
                auto_commit=options.stream is None or options.stream.auto_commit,
                is_told_offsets=client.connection.protocol_version == c.MQTT_5,
                **options.filters.options(),
            )

        answer = subscribed(queue, find, subscribe)
        client.consumers.expect(request.filter, answer, sink)
        if group.startswith(PASSING_GROUP_PREFIX):
            self._temporary.expect(queue.name, answer)

        def begun(consumer: Consumer) -> None:
            if is_replacement:
                self._outbound.forget_ended()
            self._note(event, request, is_logged=False)

        self._expect(answer, begun, refuse)

    def _permitted(self, topic_filter: str) -> address.Address:
        """Return the address of a queue that the client may subscribe to."""
        parsed = address.parse(topic_filter)
        if parsed.verb:
            raise InvalidAddress(f"{parsed.verb} is a control topic: there is nothing to subscribe to")
        self._client.identity.check(Action.READ, Kind.ADDRESS, topic_filter)
        return parsed

    def _own_group(self, *, is_stream: bool) -> str:
        """Return the group a client is by itself; a stream's reader without an identifier is in none."""
        client = self._client
        if not client.has_assigned_id:
            return client.own_group()
        return "" if is_stream else self._temporary.name_for(client.client_id)

    def _is_explicit(self, options: SubscribeOptions, *, is_stream: bool) -> bool:
        if options.ack is not None:
            return options.ack == EXPLICIT
        is_5 = self._client.connection.protocol_version == c.MQTT_5
        return is_5 and options.group is not None and not is_stream


def _nothing_more(done: None) -> None:
    """Go on: what was asked for is there."""
