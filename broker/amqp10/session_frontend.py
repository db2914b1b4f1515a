"""One session of AMQP 1.0: links come and go, and each event goes to the link that it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from broker.access.rights import Action, Kind
from broker.amqp.connection.shared import Shared, is_reply_key
from broker.amqp10.connection.addresses import MANAGEMENT, Node, is_topic, jms_node, target_node
from broker.amqp10.connection.amqp10_client import Amqp10Client
from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.connection.errors import refused
from broker.amqp10.consuming.browser_link import BrowserLink
from broker.amqp10.consuming.consumer_link import ConsumerLink, find_source
from broker.amqp10.consuming.filters import SourceFilters, source_filters
from broker.amqp10.consuming.link_properties import LinkProperties, link_properties
from broker.amqp10.publishing.publisher_link import PublisherLink
from broker.amqp10.settling.delivery_outcomes import Outcomes
from broker.amqp10.settling.transactions import Coordinator, Transactions
from broker.amqp10.settling.unsettled import Unsettled
from broker.amqp10.topology import dynamic_nodes, jms_topics
from broker.amqp10.topology.management import Management
from broker.amqp10.topology.management_operations import Operations
from broker.clients.client_consumers import Consumers
from broker.clients.when_durable import WhenDurable
from broker.connections.connection_views import ChannelView
from broker.engine.answers import Answer
from broker.engine.traffic import Consumer, Source
from broker.publication.publish_addresses import check_publish
from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10 import performatives as p
from protocols.amqp10.errors import SESSION, AmqpError
from protocols.amqp10.link import ATTACHING, Link
from protocols.amqp10.types import Symbol
from queue_manager.address import is_queue_topic
from queue_manager.api import QueueStatus
from queue_manager.errors import InternalExchange, InvalidArgument, QueueManagerError, QueueNotFound
from queue_manager.patterns import MATCH_ALL
from storage.errors import StorageError

T = TypeVar("T")

_log: Final = structlog.get_logger("sluicemq.amqp")

_OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


def _address_of(terminus: Any) -> object:
    """Return the address of a source or target; None if it has none."""
    return getattr(terminus, "address", None)


class _End(Protocol):
    """The broker's end of a link."""

    def close(self) -> None:
        """End with the link."""


class SessionFrontend:
    """Answers a client on one session."""

    def __init__(self, client: Amqp10Client, channel: int, shared: Shared) -> None:
        """`shared` is what all clients of AMQP share."""
        self._session = Session(client, channel)
        self._outcomes = Outcomes(self._session)
        self._consumers = Consumers(client.hub, client.transport)
        self._unsettled = Unsettled(self._session, self._consumers)
        self._transactions = Transactions(self._session, self._unsettled, shared.transaction_room)
        self._reply_takers = self._session.core.replies.takers
        self._browse_slots = shared.browse_slots
        self._links: dict[Link, _End] = {}
        self._pairs: dict[str, Management] = {}
        self._nodes: dict[Link, str] = {}  # queues that were made for links
        self._subscriptions: dict[Link, str] = {}  # queues of durable ones, which end when a link is closed
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.TransferRun: self._on_transfers,
            ev.DispositionRun: self._on_dispositions,
            ev.CreditChanged: self._on_credit,
            ev.WindowOpened: self._on_window,
            ev.AttachRequested: self._on_attach,
            ev.LinkDetached: self._on_detached,
        }

    def handle(self, event: Any) -> None:
        """Act on one event of this session."""
        if self._session.closed:
            return
        try:
            self._handlers[type(event)](event)
        except AmqpError as error:
            self._fail(error, event)
        except QueueManagerError as error:
            self._fail(self._session.refused(error), event)
        except StorageError:
            self._session.transport.reading.hold()  # for ever: the broker ends, and says so to every client

    def describe(self) -> ChannelView:
        """Return what there is to tell of the session."""
        return ChannelView(
            number=self._session.channel,
            prefetch=0,
            prefetch_shared=0,
            unsettled=len(self._unsettled),
            confirms=True,
            transactional=bool(len(self._transactions)),
            consumers=self._consumers.views(),
        )

    def close(self, *, is_lost: bool = False) -> None:
        """End the session: consumers end, what is unsettled returns."""
        if self._session.closed:
            return
        self._session.close()
        self._consumers.pause()
        self._transactions.close()
        links, self._links = self._links, {}
        held = self._unsettled.take_all()
        for end in links.values():
            if isinstance(end, ConsumerLink):
                end.leave(held, is_lost=is_lost)
            else:
                end.close()
        for link in list(self._nodes):
            self._forget_node(link)
        self._handlers.clear()

    def set_paused(self, paused: bool) -> None:
        """Note that the client reads too slowly, or caught up."""
        if paused:
            self._consumers.pause()
        else:
            self._resume()

    def let_on(self) -> None:
        """Give credit again that was held back."""
        for end in self._links.values():
            if isinstance(end, PublisherLink):
                end.replenish()

    # events

    def _on_transfers(self, run: ev.TransferRun) -> None:
        if run.links:
            if not self._take_together(run):
                for part in run.of_one_link():
                    self.handle(part)
            return
        end = self._links.get(run.link)
        if isinstance(end, Management | Coordinator):
            end.take(run)
            return
        if not isinstance(end, PublisherLink):
            return
        if run.message_format:
            raise AmqpError(c.NOT_IMPLEMENTED, f"no message format {run.message_format} is known")
        if type(run.state) is p.TransactionalState:
            end.take_in(run, self._transactions)
        elif run.state is not None:
            raise AmqpError(c.NOT_IMPLEMENTED, "a delivery comes without a state, or with a transaction's")
        else:
            end.take(run)

    def _take_together(self, run: ev.TransferRun) -> bool:
        """Take deliveries of several links at once; False: that cannot be, and nothing was done."""
        if run.message_format or run.state is not None:
            return False
        ends = [end for end in map(self._links.get, run.links) if isinstance(end, PublisherLink)]
        if len(ends) < len(run.links):
            return False
        try:
            return ends[0].take_together(ends, run)
        except AmqpError:
            return False  # it is about one of the links, which will be found when each is asked

    def _on_dispositions(self, run: ev.DispositionRun) -> None:
        if run.role is not c.RECEIVER:
            return
        if type(run.state) is p.TransactionalState:
            self._transactions.settle(run)
        else:
            self._unsettled.settle(run)

    def _on_credit(self, event: ev.CreditChanged) -> None:
        end = self._links.get(event.link)
        if isinstance(end, ConsumerLink | BrowserLink | Management):
            end.credit_changed()
        elif isinstance(end, PublisherLink):
            end.replenish()

    def _on_window(self, event: ev.WindowOpened) -> None:
        if not self._session.transport.paused:
            self._resume()

    def _resume(self) -> None:
        """Go on with deliveries, if there is room for some."""
        if not self._session.connection.session_room(self._session.channel):
            return
        self._consumers.resume()
        for end in self._links.values():
            if isinstance(end, ConsumerLink | BrowserLink):
                end.resumed()

    def _on_detached(self, event: ev.LinkDetached) -> None:
        end = self._links.pop(event.link, None)
        if isinstance(end, Management):
            self._pairs.pop(event.link.name, None)
        if end is not None:
            end.close()
        self._forget_node(event.link)
        subscription = self._subscriptions.pop(event.link, None)
        if subscription is not None and event.closed and event.by_peer:
            jms_topics.delete(self._session, subscription)

    def _on_attach(self, event: ev.AttachRequested) -> None:
        link = event.link
        try:
            self._check(link)
            if MANAGEMENT in (_address_of(link.attach.source), _address_of(link.attach.target)):
                self._attach_management(link)
            elif type(link.attach.target) is p.Coordinator:
                self._attach_coordinator(link)
            elif link.client_sends:
                self._attach_publisher(link)
            else:
                self._attach_consumer(link)
        except QueueManagerError as error:
            self._refuse(link, refused(error, self._session.client.vhost))
        except AmqpError as error:
            if error.scope == SESSION:
                raise
            self._refuse(link, error)

    def _refuse(self, link: Link, error: AmqpError) -> None:
        session = self._session
        self._links.pop(link, None)
        self._forget_node(link)
        self._subscriptions.pop(link, None)
        _log.warning(
            "amqp.link_refused",
            peer=session.transport.peer,
            link=link.name,
            condition=error.condition,
            reason=error.description,
        )
        session.connection.refuse_attach(link, error.condition, error.description)
        session.transport.want_flush()

    def _check(self, link: Link) -> None:
        attach = link.attach
        if attach.unsettled:
            raise AmqpError(c.NOT_IMPLEMENTED, "Link recovery not supported")

    # the link pair of requests

    def _attach_management(self, link: Link) -> None:
        attach = link.attach
        if _address_of(attach.source) != MANAGEMENT or _address_of(attach.target) != MANAGEMENT:
            raise AmqpError(c.INVALID_FIELD, f"both ends of a link of a pair are at {MANAGEMENT}")
        if (attach.properties or {}).get("paired") is not True:
            raise AmqpError(c.INVALID_FIELD, "Link property 'paired' is not set to boolean value 'true'")
        pair = self._pairs.get(link.name)
        if pair is None or (pair.requests if link.client_sends else pair.replies) is not None:
            pair = Management(self._session, Operations(self._session), self._outcomes)
            self._pairs[link.name] = pair
        link.max_message_size = limits.AMQP10_REQUEST_BYTES_MAX
        self._session.connection.accept_attach(
            link, attach.source, attach.target, properties={Symbol("paired"): True}
        )
        self._links[link] = pair
        pair.attach(link)

    def _make_node(self, link: Link, terminus: Any, then: Callable[[str], None]) -> None:
        """Make the queue of a link, which goes with it, and go on by `then` with its name."""

        def made(queue: QueueStatus) -> None:
            self._nodes[link] = queue.name
            then(queue.name)

        self._expect(link, dynamic_nodes.make_node(self._session, link.name, terminus), made)

    def _forget_node(self, link: Link) -> None:
        name = self._nodes.pop(link, None)
        if name is not None:
            dynamic_nodes.delete_node(self._session, name)

    def _attach_coordinator(self, link: Link) -> None:
        attach = link.attach
        link.max_message_size = limits.AMQP10_REQUEST_BYTES_MAX
        told = p.Coordinator(("amqp:local-transactions",))
        self._session.connection.accept_attach(link, attach.source, told)
        self._links[link] = Coordinator(self._session, self._transactions, self._outcomes)
        self._session.connection.grant(link, c.UINT_MAX >> 1)

    # links that the client sends on

    def _attach_publisher(self, link: Link) -> None:
        target = link.attach.target
        if type(target) is not p.Target:
            raise AmqpError(c.NOT_IMPLEMENTED, "there is no such target")
        if target.dynamic and is_topic(target.capabilities):
            target = jms_topics.with_temporary_address(target)
            node: Node | None = self._target(target.address, target.capabilities)
        elif target.dynamic:
            self._make_node(
                link,
                target,
                lambda name: self._begin_publisher(link, Node("", name), dynamic_nodes.told(target, name)),
            )
            return
        else:
            node = self._target(target.address, target.capabilities)
        self._begin_publisher(link, node, target)

    def _begin_publisher(self, link: Link, node: Node | None, target: p.Target) -> None:
        session = self._session
        end = PublisherLink(session, link, node, self._outcomes, self._reply_takers)
        end.is_topic = is_topic(link.attach.target.capabilities)
        session.connection.accept_attach(link, link.attach.source, target)
        self._links[link] = end
        end.begin()

    def _target(self, address: object, capabilities: tuple[Any, ...]) -> Node | None:
        """Return the node of a target, None for each message's own; raises QueueManagerError, AmqpError."""
        if address is None:
            return None
        if not isinstance(address, str):
            raise AmqpError(c.INVALID_FIELD, "an address is a string")
        node = jms_node(address, capabilities) or target_node(address)
        session = self._session
        if not node.exchange and is_reply_key(node.key):
            if node.key not in self._reply_takers:
                raise QueueNotFound.named(node.key)
            return node
        check_publish(session.client.identity, *node)
        if node.exchange:
            found = session.core.exchanges.look(node.exchange).result()
            if found.internal:
                raise InternalExchange(node.exchange)
        elif not is_queue_topic(node.key) and not session.core.queues.exists(node.key).result():
            raise QueueNotFound.named(node.key)
        return node

    # links that the client receives on

    def _attach_consumer(self, link: Link) -> None:
        source = link.attach.source
        if source is None:
            self._look_up_subscription(link)
            return
        if type(source) is not p.Source:
            raise AmqpError(c.INVALID_FIELD, "a source is needed")
        if source.dynamic:
            if is_topic(source.capabilities):
                source = jms_topics.with_temporary_address(source)
            else:
                begin = partial(self._attach_source, link)
                self._make_node(link, source, lambda name: begin(dynamic_nodes.told(source, name)))
                return
        if not isinstance(source.address, str):
            raise AmqpError(c.INVALID_FIELD, "a source has an address, which is a string")
        self._attach_source(link, source)

    def _attach_source(self, link: Link, source: p.Source) -> None:
        session = self._session
        properties = link_properties(link.attach.properties)
        subscription = jms_topics.subscription_of(session, link, source)
        if subscription is None:
            self._attach_receiver(link, source, properties)
            return
        filters = source_filters(source.filter, now_ms=session.hub.clock.now_ms(), is_topic=True)
        selector = filters.wanted.group_selector or ""
        made = jms_topics.make(session, subscription, selector, is_not_local=filters.is_not_local)
        if subscription.is_own:
            self._nodes[link] = subscription.name
        elif subscription.is_durable:
            self._subscriptions[link] = subscription.name
        exclusive = properties.exclusive or not subscription.is_shared
        properties = replace(properties, group=jms_topics.GROUP, exclusive=exclusive)
        begin = partial(self._begin_subscriber, link, source, subscription, properties, filters)
        self._expect(link, made, lambda _: begin())

    def _expect(self, link: Link, answer: Answer[T], then: Callable[[T], None]) -> None:
        """Go on with a link that is being attached by `then`, once the answer of the core is there."""
        answer.then(partial(self._session.transport.guard, self._go_on, link, then))

    def _go_on(self, link: Link, then: Callable[[T], None], answer: Answer[T]) -> None:
        if link.state != ATTACHING:
            return
        try:
            then(answer.result())
            self._session.transport.want_flush()
            self._session.hub.want_settle()
        except QueueManagerError as error:
            self._refuse(link, self._session.refused(error))
        except StorageError:
            self._session.transport.reading.hold()

    def _begin_subscriber(
        self,
        link: Link,
        source: p.Source,
        subscription: jms_topics.Subscription,
        properties: LinkProperties,
        filters: SourceFilters,
    ) -> None:
        session = self._session
        client = session.client
        client.identity.check(Action.READ, Kind.QUEUE, subscription.name)
        find = partial(session.core.consuming.find, subscription.name, client.caller)

        def accept(end: ConsumerLink) -> None:
            accept_now = partial(self._accept_consumer, link, end, source, properties, filters, mode="copy")
            if subscription.is_durable:
                session.core.commits.wait_up_to(
                    WhenDurable(lambda tokens: accept_now(), session.transport), 0
                )
            else:
                accept_now()

        pattern = properties.pattern or MATCH_ALL
        self._begin_consumer(link, find(), find, pattern, properties, filters, accept)

    def _attach_receiver(self, link: Link, source: p.Source, properties: LinkProperties) -> None:
        """Attach a link that receives from a queue."""
        session = self._session
        node = jms_topics.queue_node(source)
        queue, pattern = find_source(session, node, properties)
        is_stream = queue.policy.stream
        filters = source_filters(source.filter, now_ms=session.hub.clock.now_ms(), is_stream=is_stream)
        if source.distribution_mode == "copy" and not is_stream:
            self._attach_browser(link, node.queue, pattern, properties, filters)
            return
        mode = "copy" if is_stream else "move"

        def find() -> Source:
            return find_source(session, node, properties)[0]

        def accept(end: ConsumerLink) -> None:
            self._accept_consumer(link, end, source, properties, filters, mode=mode)

        self._begin_consumer(link, queue, find, pattern, properties, filters, accept)

    def _begin_consumer(
        self,
        link: Link,
        queue: Source,
        find: Callable[[], Source],
        pattern: str,
        properties: LinkProperties,
        filters: SourceFilters,
        accept: Callable[[ConsumerLink], None],
    ) -> None:
        """Begin to consume; `accept` attaches the link once its consumer is there."""
        end = ConsumerLink(self._session, link, self._unsettled, self._consumers, queue, find)

        def begun(consumer: Consumer) -> None:
            end.begun(consumer)
            accept(end)

        answer = end.begin(pattern, properties, filters)
        self._links[link] = end
        self._expect(link, answer, begun)

    def _accept_consumer(
        self,
        link: Link,
        end: ConsumerLink,
        source: p.Source,
        properties: LinkProperties,
        filters: SourceFilters,
        *,
        mode: str,
    ) -> None:
        told = source._replace(
            distribution_mode=mode,
            filter=filters.taken if source.filter is not None else None,
            default_outcome=p.Released(),
            outcomes=source.outcomes or _OUTCOMES,
        )
        settled = link.attach.snd_settle_mode == c.SENDER_SETTLED
        self._session.connection.accept_attach(
            link,
            told,
            link.attach.target,
            snd_settle_mode=c.SENDER_SETTLED if settled else c.SENDER_UNSETTLED,
            properties=properties.taken or None,
            offered_capabilities=("AMQP_FILTEX_PROP_V1_0", "AMQP_FILTEX_SQL_V1_0"),
        )
        end.attached()

    def _attach_browser(
        self, link: Link, queue: str, pattern: str, properties: LinkProperties, filters: SourceFilters
    ) -> None:
        if pattern != MATCH_ALL:
            raise InvalidArgument("a link that browses has no pattern: take a filter")
        wanted, slots = filters.wanted.wanted, self._browse_slots
        self._links[link] = BrowserLink(self._session, link, queue, properties.group, wanted, slots)
        self._session.connection.accept_attach(
            link,
            link.attach.source._replace(
                distribution_mode="copy", filter=filters.taken or None, default_outcome=None, outcomes=()
            ),
            link.attach.target,
            snd_settle_mode=c.SENDER_SETTLED,
            properties=properties.taken or None,
        )

    def _look_up_subscription(self, link: Link) -> None:
        """Tell a client whether there is a durable subscription, which ends when this link is closed."""
        found = jms_topics.durable_of(self._session, link)
        if found is None:
            raise AmqpError(c.NOT_FOUND, "there is no durable subscription of that name")
        self._subscriptions[link], source = found
        self._session.connection.accept_attach(link, source, link.attach.target)

    # ends

    def _fail(self, error: AmqpError, event: Any) -> None:
        """End the link that an event is about, or the session; one log line says who and why."""
        session = self._session
        link = getattr(event, "link", None)
        _log.warning(
            "amqp.link_error" if link is not None and error.scope != SESSION else "amqp.session_error",
            peer=session.transport.peer,
            channel=session.channel,
            condition=error.condition,
            reason=error.description,
        )
        if link is not None and error.scope != SESSION:
            session.detach(link, error)
            end = self._links.pop(link, None)
            if end is not None:
                end.close()
            self._forget_node(link)
            self._subscriptions.pop(link, None)
            return
        session.connection.end_session(session.channel, error.condition, error.description)
        session.transport.want_flush()
        self.close()
