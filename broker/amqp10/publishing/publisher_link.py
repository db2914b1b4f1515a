"""A link that the client publishes on: from runs of transfers to the queue manager, and outcomes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from broker.access.login import NotPermitted
from broker.amqp.connection.shared import is_reply_key
from broker.amqp10.connection.addresses import Node, is_plain, plain_node, target_node
from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.connection.errors import condition_of, told
from broker.amqp10.settling.delivery_outcomes import Outcomes, Source, rejected
from broker.amqp10.settling.transactions import Transactions
from broker.engine.client.replies import ReplyTaker
from broker.engine.traffic import PublishPlan
from broker.properties import amqp10
from broker.properties.amqp10_sections import (
    EMPTY,
    MESSAGE_ANNOTATIONS,
    Published,
    PublishReader,
    may_name_user,
    read_block,
)
from broker.properties.templates import as_amqp
from broker.publication.publish_addresses import Destination, check_publish, find_queues
from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.events import TransferRun
from protocols.amqp10.link import Link
from protocols.amqp10.performatives import (
    Accepted,
    Error,
    Rejected,
    Released,
    TransactionalState,
    encode,
)
from queue_manager import outcomes
from queue_manager.address import is_queue_topic, local_name
from queue_manager.errors import (
    ExchangeNotFound,
    InvalidAddress,
    InvalidArgument,
    PreconditionFailed,
    QueueManagerError,
)
from queue_manager.options import PLAIN
from queue_manager.outcomes import ACCEPTED, FULL, REFUSED_SIZE, UNROUTED
from storage.envelope import PROPERTIES_AMQP10, EnvelopeTemplate, vary

_MASK: Final = 0xFFFFFFFF
_JMS_DESTINATION: Final = "x-opt-jms-dest"  # AMQP JMS Mapping, 3.2.4
_TOPIC_KINDS: Final = (1, 3)  # topic, temporary topic; those between are queues
_Key = tuple[bytes, bool]
"""The common part of messages that share a plan on a link: their stored block, and whether they persist."""


class _Several:
    """Links whose deliveries are told one outcome together (see `delivery_outcomes.Source`). `counts` is how
    many came on each.
    """

    __slots__ = ("_counts", "settles")

    def __init__(self, counts: Mapping[PublisherLink, int], *, settles: bool) -> None:
        self._counts = counts
        self.settles = settles

    def told(self, count: int) -> None:
        for end, count_of_end in self._counts.items():
            end.told(count_of_end)


class PublisherLink:
    """Takes what comes on a link to a node, or (None) to wherever each message says in `to`.

    `_plans` are those of the blocks that came; messages that differ in nothing else share one. Credit is
    given for what was told its outcome, so that a client is slowed down with the store. `is_topic`: the
    target is a topic of JMS, which takes messages whether or not somebody subscribes.
    """

    def __init__(
        self,
        session: Session,
        link: Link,
        node: Node | None,
        told: Outcomes,
        reply_takers: Mapping[str, ReplyTaker],
    ) -> None:
        """`reply_takers` are those of AMQP 0.9.1 who wait for direct replies, by the keys these have."""
        self.link = link
        self.settles = link.rcv_settle_mode == c.RECEIVER_FIRST
        self._session = session
        self._hub = session.hub
        self._publishing = session.core.publishing
        self._node = node
        self._outcomes = told
        self._reply_takers = reply_takers
        self.is_topic = False
        self._reader = PublishReader()
        self._plans: dict[_Key, PublishPlan] = {}
        self._varied: PublishPlan | None = None
        self._untold_count = 0

    # credit

    def begin(self) -> None:
        """Let the client send, until the node is deleted."""
        node, core = self._node, self._session.core
        if node is not None and node.exchange:
            core.exchanges.watch(node.exchange, self._node_deleted)
        elif node is not None and not is_queue_topic(node.key):  # such a queue may come again
            core.queues.watch(node.key, self._node_deleted)
        self._session.connection.grant(self.link, limits.AMQP10_LINK_CREDIT)

    def told(self, count: int) -> None:
        """See `broker.amqp10.settling.delivery_outcomes.Source`."""
        self._untold_count -= count
        self.replenish()

    def replenish(self) -> None:
        """Give credit anew once half of it is gone, unless the store does not keep up."""
        link = self.link
        credit = limits.AMQP10_LINK_CREDIT - self._untold_count
        if link.is_attached and link.credit <= credit // 2 and not self._session.transport.reading.is_blocked:
            self._session.connection.grant(link, credit)
            self._session.transport.want_answer()

    # publishing

    def take(self, run: TransferRun) -> None:
        """Take deliveries; raises AmqpError for what is no message."""
        read = self._reader.read
        published = [read(payload) for payload in run.payloads]
        self._untold_count += len(published)
        if _are_alike(published):
            self._publish_alike(run, run.first_id, published)
        elif not self._publish_varied(run, published, self):
            for index, one in enumerate(published):
                self._publish_alike(run, run.first_id + index & _MASK, [one])

    def take_together(self, ends: Sequence[PublisherLink], run: TransferRun) -> bool:
        """Take deliveries that came on several links, each on that of `ends`; False: they have to be taken
        link by link. Raises AmqpError when one is no message; nothing was done then, either.
        """
        node, settles = self._node, self.settles
        counts = Counter(ends)
        if any(end._node != node or end.settles is not settles for end in counts):
            return False
        published = [end._reader.read(payload) for end, payload in zip(ends, run.payloads, strict=True)]
        for end, count in counts.items():
            end._untold_count += count
        publish = self._publish_at_once if _are_alike(published) else self._publish_varied
        if publish(run, published, _Several(counts, settles=settles)):
            return True
        for end, count in counts.items():
            end._untold_count -= count
        return False

    def take_in(self, run: TransferRun, transactions: Transactions) -> None:
        """Take deliveries of a transaction: each is told at once what it will be if that is discharged.

        Raises AmqpError for what is no message, or of no transaction.
        """
        transaction = transactions.find(run.state)
        read = self._reader.read
        now_ms = self._hub.clock.now_ms()
        for index, payload in enumerate(run.payloads):
            published = read(payload)
            self._untold_count += 1
            outcome: Any = Accepted()
            try:
                plan = self._plan(published, now_ms)
                if plan.options.stage is not None:
                    raise InvalidArgument("rows are staged outside of transactions: their epoch is one")
                if plan.leads_anywhere:
                    planner = partial(self._planned, published)
                    transactions.publish(transaction, 1, len(published.body), planner)
                else:
                    self._hub.counters.leave_unrouted(1)
                    if not self.is_topic and _kind_of(published.block) not in _TOPIC_KINDS:
                        outcome = Released()
            except QueueManagerError as error:
                refusal = self._session.refused(error)
                if run.settled:
                    self.told(1)
                    raise refusal from None  # the client is told nothing otherwise
                outcome = Rejected(Error(refusal.condition, refusal.description))
            if run.settled:
                self.told(1)
            else:
                state = encode(TransactionalState(transaction.id, outcome))
                self._outcomes.tell(run.first_id + index & _MASK, 1, self, state)

    def _planned(self, published: Published, now_ms: int) -> list[tuple[PublishPlan, list[bytes], None]]:
        """Return where a publish of a transaction goes; its plan is its own if the next may go elsewhere."""
        plan = self._plan(published, now_ms)
        if not self._publishing.is_current(plan):
            self._plans.pop((published.block, published.persistent), None)
        return [(plan, [published.body], None)]

    def _publish_alike(self, run: TransferRun, first_id: int, published: Sequence[Published]) -> None:
        """Publish messages with one block."""
        first = published[0]
        count = len(published)
        now_ms = self._hub.clock.now_ms()
        try:
            plan = self._plan(first, now_ms)
            if count > 1 and not self._publishing.is_current(plan):  # each may go elsewhere
                for index, one in enumerate(published):
                    self._publish_alike(run, first_id + index & _MASK, [one])
                return
            outcome = self._publishing.publish(plan, [one.body for one in published], now_ms)
        except QueueManagerError as error:
            self._refuse_all(run, first_id, count, error)
            return
        if outcome == ACCEPTED:
            self._accept(run, first_id, count, self, durable=plan.durable)
        elif outcome == UNROUTED and _is_reply(plan) and self._reply(plan, published):
            self._accept(run, first_id, count, self, durable=False)
        elif outcome == UNROUTED and (self.is_topic or _kind_of(first.block) in _TOPIC_KINDS):
            self._hub.counters.leave_unrouted(count)
            self._accept(run, first_id, count, self, durable=False)
        elif outcome == UNROUTED:
            self._hub.counters.leave_unrouted(count)
            self._release(run, first_id, count)
        elif count > 1:  # part of them may fit
            for index, one in enumerate(published):
                self._publish_alike(run, first_id + index & _MASK, [one])
        else:
            self._refuse(run, first_id, plan, outcome, len(first.body), now_ms)

    def _publish_at_once(self, run: TransferRun, published: Sequence[Published], source: Source) -> bool:
        """Publish messages with one block that ask for nothing; False: each has to be looked at."""
        now_ms = self._hub.clock.now_ms()
        try:
            plan = self._plan(published[0], now_ms)
            if plan.options is not PLAIN or not self._publishing.is_current(plan):
                return False
            outcome = self._publishing.publish(plan, [one.body for one in published], now_ms)
        except QueueManagerError:
            return False
        if outcome != ACCEPTED:
            return False
        self._accept(run, run.first_id, len(published), source, durable=plan.durable)
        return True

    def _publish_varied(self, run: TransferRun, published: Sequence[Published], source: Source) -> bool:
        """Publish messages with properties of their own; False: they have to be looked at one by one."""
        node = self._node
        if node is None or any(one.asks for one in published):
            return False
        plan = self._varied
        if plan is None or not self._publishing.is_current(plan):
            plan = self._varied = self._varied_plan(node)
            if plan is None:
                return False
        templates: list[EnvelopeTemplate] = vary(
            plan.template,
            [one.block or EMPTY for one in published],
            [one.persistent for one in published],
        )
        now_ms = self._hub.clock.now_ms()
        outcome = self._publishing.publish(plan, [one.body for one in published], now_ms, templates)
        if outcome != ACCEPTED:
            return False
        self._accept(run, run.first_id, len(published), source, durable=plan.durable)
        return True

    def _varied_plan(self, node: Node) -> PublishPlan | None:
        """Return where messages go, if that is to queues and nothing else has to be known."""
        publishing = self._publishing
        try:
            check_publish(self._session.client.identity, *node)
        except NotPermitted:
            return None  # each is told so
        if node.exchange:
            targets = publishing.unconditional(node.exchange, node.key)
            if targets.topics_of is not None:
                return None
        elif is_queue_topic(node.key):
            targets = publishing.match(node.key)
        else:
            targets = publishing.named(node.key)
        targets = publishing.open_to(targets, self._session.client.container_id)
        if not targets:
            return None
        plan = publishing.plan(node.key, PROPERTIES_AMQP10, b"", False, PLAIN, node.exchange)
        publishing.aim(plan, targets)
        return plan

    def _plan(self, published: Published, now_ms: int) -> PublishPlan:
        """Return an aimed plan for messages with this block; raises QueueManagerError."""
        key = published.block, published.persistent
        plan = self._plans.get(key)
        publishing = self._publishing
        if plan is not None and publishing.is_current(plan):
            return plan
        identity = self._session.client.identity
        block = published.block
        node = self._node or _node_of(block)
        check_user_id(block, identity.user)
        keys = (node.key, *amqp10.copy_keys(block))
        headers = partial(amqp10.headers_of, block)
        if not node.exchange and is_reply_key(node.key):  # who was asked may answer
            destination = Destination(publishing.named(node.key), (node.key,), node.exchange)
        else:
            destination = find_queues(
                publishing, identity, node.exchange, keys, headers, now_ms, mandatory=True
            )
        targets, routing_keys, exchange = destination
        if plan is None or plan.template.exchange != exchange:
            options = amqp10.options_of(block)
            plan = publishing.plan(
                routing_keys[0], published.properties_kind, block, published.persistent, options, exchange
            )
            if len(self._plans) >= limits.AMQP10_PLANS_PER_LINK_MAX:
                self._plans.clear()
            if len(block) <= limits.AMQP10_KEPT_SECTIONS_BYTES_MAX:
                self._plans[key] = plan
        publishing.aim(plan, publishing.open_to(targets, self._session.client.container_id), routing_keys)
        return plan

    def _reply(self, plan: PublishPlan, published: Sequence[Published]) -> bool:
        """Give direct replies to the requester over AMQP 0.9.1; False: it is gone."""
        take_replies = self._reply_takers.get(plan.template.topic)
        if take_replies is None:
            return False
        properties = as_amqp(plan.template)
        take_replies([properties] * len(published), [one.body for one in published])
        return True

    # outcomes

    def _accept(self, run: TransferRun, first_id: int, count: int, source: Source, *, durable: bool) -> None:
        if run.settled:
            source.told(count)
        else:
            self._outcomes.accept(first_id, count, source, durable=durable)

    def _release(self, run: TransferRun, first_id: int, count: int) -> None:
        if run.settled:
            self.told(count)
        else:
            self._outcomes.release(first_id, count, self)

    def _refuse_all(self, run: TransferRun, first_id: int, count: int, error: QueueManagerError) -> None:
        """Reject messages for a reason that is not that of a queue."""
        self._hub.counters.refuse_publishes(count)
        if run.settled:
            self.told(count)
            raise self._session.refused(error)  # the client is told nothing otherwise
        state = rejected(condition_of(error), told(error, self._session.client.vhost))
        self._outcomes.tell(first_id, count, self, state)

    def _refuse(
        self, run: TransferRun, first_id: int, plan: PublishPlan, outcome: int, size: int, now_ms: int
    ) -> None:
        """Reject a message, as a queue is full or it is too large."""
        hub = self._hub
        hub.counters.refuse_publishes(1)
        refusing = plan.full if outcome in FULL else plan.queues
        is_queue = bool(refusing) and outcome != outcomes.REFUSED_SESSION
        name = refusing[0].name if is_queue else plan.template.exchange
        kind = "queue" if is_queue else "exchange"
        hub.refusals.note(
            name,
            now_ms,
            1,
            **{kind: name},
            peer=self._session.transport.peer,
            routing_key=plan.template.topic,
            reason=outcomes.reason_of(outcome, plan.full),
        )
        if run.settled:
            self.told(1)
            return
        state = _state_of(outcome, outcomes.reason_of(outcome, plan.full), local_name(name), size)
        if self._publishing.is_remembered(plan, outcome):
            self._outcomes.wait(first_id, 1, self, state)
        else:
            self._outcomes.tell(first_id, 1, self, state)

    def close(self) -> None:
        """Take nothing more."""
        self._plans.clear()
        node, core = self._node, self._session.core
        if node is not None and node.exchange:
            core.exchanges.unwatch(node.exchange, self._node_deleted)
        elif node is not None:
            core.queues.unwatch(node.key, self._node_deleted)

    def _node_deleted(self) -> None:
        self._session.transport.guard(self._detach)

    def _detach(self) -> None:
        """End the link, whose node was deleted: clients of RabbitMQ know these conditions."""
        node = self._node
        if node is not None and self.link.is_attached:
            self._plans.clear()
            error = AmqpError(c.RESOURCE_DELETED, f"queue '{node.key}' was deleted")
            if node.exchange:
                error = self._session.refused(ExchangeNotFound(node.exchange))
            self._session.detach(self.link, error)


def _are_alike(published: Sequence[Published]) -> bool:
    """Return whether messages have one block, and all persist or none does."""
    first = published[0]
    block, persistent = first.block, first.persistent
    return all(one.block == block and one.persistent is persistent for one in published)


def _is_reply(plan: PublishPlan) -> bool:
    template = plan.template
    return not template.exchange and is_reply_key(template.topic)


def check_user_id(block: bytes, user: str) -> None:
    """Raise PreconditionFailed if properties name another user than the publisher."""
    if not may_name_user(block):
        return
    user_id = amqp10.property_of(block, "user-id")
    if user_id is not None and user_id != user.encode():
        shown = user_id.decode(errors="replace") if isinstance(user_id, bytes) else user_id
        raise PreconditionFailed(f"user_id property set to '{shown}' but authenticated user was '{user}'")


def _node_of(block: bytes) -> Node:
    """Return where a message says it is to go; raises QueueManagerError."""
    to = amqp10.property_of(block, "to")
    if to is None:
        raise PreconditionFailed("anonymous terminus requires 'to' address to be set")
    kind = _kind_of(block)
    if kind is not None and is_plain(str(to)):
        return plain_node(str(to), is_topic=kind in _TOPIC_KINDS)
    try:
        return target_node(str(to))
    except InvalidAddress as error:
        raise PreconditionFailed(f"bad 'to' address string: {error.reason}") from None


def _kind_of(block: bytes) -> int | None:
    """Return the kind of destination that a client of JMS says a message has; None: it says none."""
    if _JMS_DESTINATION.encode() not in block:
        return None
    kind = read_block(block).value(MESSAGE_ANNOTATIONS, _JMS_DESTINATION)
    return int(kind) if isinstance(kind, int) else None


def _state_of(outcome: int, reason: str, name: str, size: int) -> bytes:
    """Return the state of a message that was refused, with the queue and the reason."""
    if outcome == outcomes.REFUSED_DEPTH:
        return rejected(
            c.RESOURCE_LIMIT_EXCEEDED,
            f"queue '{name}' exceeded maximum length",
            {"queue": name, "reason": "maxlen"},
        )
    if outcome in FULL:
        return rejected(c.RESOURCE_LIMIT_EXCEEDED, f"queue '{name}': {reason}", {"queue": name})
    if outcome == REFUSED_SIZE:
        return rejected(c.MESSAGE_SIZE_EXCEEDED, f"{reason}: {size} bytes", {"queue": name})
    if outcome == outcomes.REFUSED_SESSION:
        return rejected(c.RESOURCE_LIMIT_EXCEEDED, reason)
    return rejected(c.PRECONDITION_FAILED, reason, {"queue": name})
