"""basic.publish: from a run of publishes to the queue manager, and confirms back."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.access.login import NotPermitted
from broker.access.rights import Action, Kind
from broker.amqp import committing, control, permissions, staging
from broker.amqp.channel import AmqpChannel
from broker.amqp.confirms import Confirms
from broker.amqp.direct_replies import (
    DirectReplies,
    may_want_direct_reply,
    wants_direct_reply,
)
from broker.amqp.errors import channel_error
from broker.amqp.held_events import HeldEvents
from broker.amqp.unacked import Unacked
from broker.engine.answers import Answer
from broker.engine.traffic import PublishPlan, Targets
from broker.properties import amqp
from broker.properties.amqp import PERSISTENT_MODE, may_ask
from broker.topics import NOBODY, STORED
from protocols.amqp091 import constants as c
from protocols.amqp091 import content
from protocols.amqp091.events import PublishAddress, PublishRun, PublishShape, VariedPublishRun
from protocols.amqp091.methods import BasicReturn
from protocols.amqp091.names import is_reply_key
from protocols.errors import ProtocolError
from queue_manager import address as addresses
from queue_manager import outcomes
from queue_manager.errors import InvalidAddress, InvalidArgument, QueueManagerError, QueueNotFound
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_SIZE
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_NONE, vary

_USER_ID_FLAG: Final = 0x10
_BASIC_PUBLISH: Final = c.CLASS_BASIC << 16 | 40


class Publisher:
    """The publishing half of a channel."""

    __slots__ = ("_channel", "_confirms", "_held", "_hub", "_replies", "_staged", "_unacked")

    def __init__(
        self,
        channel: AmqpChannel,
        held: HeldEvents,
        confirms: Confirms,
        unacked: Unacked,
        replies: DirectReplies,
    ) -> None:
        self._channel = channel
        self._held = held
        self._hub = channel.hub
        self._confirms = confirms
        self._unacked = unacked
        self._replies = replies
        self._staged: staging.StagedProperties | None = None  # only of who stages

    def publish(self, run: PublishRun) -> None:
        """Take a run of publishes; raises QueueManagerError, or a channel error."""
        hub = self._hub
        publishing = hub.client.publishing
        shape = run.shape
        plan: PublishPlan | None = shape.context
        now_ms = hub.clock.now_ms()
        if plan is None or not publishing.is_current(plan):
            if committing.is_commit(shape.exchange, shape.routing_key):
                self._commit(run)
                return
            if control.is_call(shape):
                self._call(run, now_ms)
                return
            if is_reply(shape.address):
                self._reply(shape.address, [shape.properties] * len(run.bodies), run.bodies)
                return
            plan = self._plan(shape, now_ms)
            if len(run.bodies) > 1 and not publishing.is_current(plan):  # each may go elsewhere
                for body in run.bodies:
                    self.publish(PublishRun(run.channel, shape, [body]))
                return
        count = len(run.bodies)
        if not plan.queues:
            heard = NOBODY if plan.listener is None else plan.listener.hear(run.bodies)
            if heard == NOBODY:
                hub.counters.leave_unrouted(count)
                if shape.mandatory:
                    self._return(run)
            self._confirms.confirm(count, durable=heard == STORED)
            return
        outcome = publishing.publish(plan, run.bodies, now_ms)
        if outcome == ACCEPTED:
            is_stored = plan.durable
            if plan.listener is not None and plan.listener.hear(run.bodies) == STORED:
                is_stored = True
            self._confirms.confirm(count, durable=is_stored)
        else:
            self._refuse(run, plan, outcome, now_ms)

    def publish_varied(self, run: VariedPublishRun) -> bool:
        """Take publishes with properties of their own; False: they have to be looked at one by one."""
        if -1 in run.modes or max(run.modes) > PERSISTENT_MODE:
            return False
        address = run.address
        if is_reply(address):
            self._reply(address, run.properties, run.bodies)
            return True
        hub = self._hub
        publishing = hub.client.publishing
        properties = run.properties
        if may_want_direct_reply(properties):
            properties = [self._request(raw) for raw in properties]
        options = PLAIN
        if any(map(may_ask, properties)):
            staged = None if self._staged is None else self._staged.find_all(properties)
            if staged is None:
                return False
            options, properties = staged
        plan: PublishPlan | None = address.context
        if plan is None or not publishing.is_current(plan) or plan.options is not options:
            plan = address.context = self._varied_plan(address, options)
            if plan is None:
                return False
        templates = vary(plan.template, properties, [mode == PERSISTENT_MODE for mode in run.modes])
        now_ms = hub.clock.now_ms()
        count = len(run.bodies)
        outcome = publishing.publish(plan, run.bodies, now_ms, templates)
        if outcome == ACCEPTED:
            self._confirms.confirm(count, durable=plan.durable)
        elif count > 1:
            return False  # part of them may fit
        else:
            self._refuse(run.singles()[0], plan, outcome, now_ms)
        return True

    # transactions

    def check(self, run: PublishRun) -> bool:
        """Check publishes that come with a later `publish`; False: they call for something instead.

        Raises QueueManagerError, or a channel error, for what will not be taken.
        """
        shape = run.shape
        if committing.is_commit(shape.exchange, shape.routing_key) or control.is_call(shape):
            return False
        if is_reply(shape.address):
            return True
        plan = self._planned(shape, self._hub.clock.now_ms())
        if plan.options.stage is not None:
            raise InvalidArgument("rows are staged outside of transactions: their epoch is one")
        size = max(map(len, run.bodies))
        if plan.queues and size > min(queue.policy.message_bytes_max for queue in plan.queues):
            raise _too_large(size, plan)
        return True

    def check_room(self, runs: list[PublishRun]) -> None:
        """Raise a channel error if a queue has no room for all of these, which `check` was true for."""
        now_ms = self._hub.clock.now_ms()
        wanted = [
            (self._planned(run.shape, now_ms), run.bodies) for run in runs if not is_reply(run.shape.address)
        ]
        full = self._hub.client.publishing.first_full(wanted, now_ms)
        if full is not None:
            self._hub.counters.refuse_publishes(sum(len(run.bodies) for run in runs))
            raise channel_error(
                c.PRECONDITION_FAILED,
                f"queue {full.name!r} is paused, or has no room for what the transaction publishes",
            )

    def _planned(self, shape: PublishShape, now_ms: int) -> PublishPlan:
        plan: PublishPlan | None = shape.context
        if plan is None or not self._hub.client.publishing.is_current(plan):
            plan = self._plan(shape, now_ms)
        return plan

    # direct replies

    def _reply(self, address: PublishAddress, properties: list[bytes], bodies: list[bytes]) -> None:
        """Give replies to who asked, or (`mandatory`) back where nobody is there any more."""
        taker = self._channel.client.shared.reply_addresses.find(address.routing_key)
        if taker is not None:
            taker.take_replies(properties, bodies)
        else:
            self._hub.counters.leave_unrouted(len(bodies))
            if address.mandatory:
                self._give_back(address, properties, bodies)
        self._confirms.confirm(len(bodies), durable=False)

    def _request(self, raw: bytes) -> bytes:
        """The properties of a publish, with this channel's own address if replies are to come directly."""
        return self._replies.address_request(raw) if wants_direct_reply(raw) else raw

    def _varied_plan(self, address: PublishAddress, options: PublishOptions) -> PublishPlan | None:
        """Where these go, if that is to queues and nothing else has to be known."""
        key = address.routing_key
        publishing = self._hub.client.publishing
        if committing.is_commit(address.exchange, key):
            return None
        permissions.check_publish(self._channel.client.identity, address.exchange, key)
        if address.exchange:
            targets = publishing.unconditional(address.exchange, key)
            if targets.meets_topics:
                return None
        elif addresses.is_queue_topic(key):
            if addresses.parse(key).verb:
                return None
            targets = publishing.match(key)
        else:
            targets = publishing.named(key)
        if not targets:
            return None
        plan = publishing.plan(key, PROPERTIES_AMQP, b"", False, options, address.exchange)
        publishing.aim(plan, targets)
        return plan

    def _plan(self, shape: PublishShape, now_ms: int) -> PublishPlan:
        """Resolve exchange and routing key."""
        publishing = self._hub.client.publishing
        raw = shape.properties
        key = shape.routing_key
        copies = amqp.copy_keys(raw) if amqp.may_copy(raw) else []
        for each in (key, *copies):
            permissions.check_publish(self._channel.client.identity, shape.exchange, each)
        if shape.exchange:
            targets = publishing.through(shape.exchange, (key, *copies), partial(amqp.headers_of, raw))
        else:
            targets = self._targets(key, now_ms, mandatory=shape.mandatory)
            if copies:
                others = [self._targets(copy, now_ms, mandatory=True) for copy in copies]
                targets = publishing.joined([targets, *others])
        self._check_user_id(raw)
        plan: PublishPlan | None = shape.context
        request = self._request(raw)
        if request is not raw:
            plan = None
        if plan is None:
            mode = content.peek_fields(raw)[0]
            if mode > PERSISTENT_MODE:
                raise channel_error(
                    c.PRECONDITION_FAILED, f"invalid message: {{delivery_mode_unknown,{mode}}}"
                )
            persistent = mode == PERSISTENT_MODE
            if raw in (amqp.NONE, amqp.PERSISTENT):
                plan = publishing.plan(key, PROPERTIES_NONE, b"", persistent, exchange=shape.exchange)
            else:
                options, raw = self._options(request)
                plan = publishing.plan(key, PROPERTIES_AMQP, raw, persistent, options, shape.exchange)
            if request is shape.properties:  # those of a request are this channel's alone
                shape.context = plan
        publishing.aim(plan, targets)
        if shape.exchange:
            hears = targets.meets_topics
            plan.accompany(self._hub.topics.listener(plan.template) if hears else None)
        return plan

    def _check_user_id(self, raw: bytes) -> None:
        if raw[1] & _USER_ID_FLAG:
            user_id = content.decode_properties(raw).user_id or ""
            username = self._channel.client.username
            if user_id != username:
                raise channel_error(
                    c.PRECONDITION_FAILED,
                    f"user_id property set to '{user_id}' but authenticated user was '{username}'",
                )

    def _targets(self, key: str, now_ms: int, *, mandatory: bool) -> Targets:
        """The queues that a routing key stands for."""
        publishing = self._hub.client.publishing
        if not addresses.is_queue_topic(key):
            return publishing.named(key)
        parsed = addresses.parse(key)
        if parsed.verb:
            raise InvalidAddress(f"{parsed.verb} is for MQTT clients; AMQP has basic.ack and basic.reject")
        targets = publishing.match(key)
        if not targets:
            if not publishing.creates_queues and not mandatory:
                raise QueueNotFound(f"no queue is bound to {key!r}")
            if publishing.creates_queues:
                self._channel.client.identity.check(Action.CONFIGURE, Kind.QUEUE, parsed.name)
                targets = publishing.route(key, now_ms)
        return targets

    def _options(self, raw: bytes) -> tuple[PublishOptions, bytes]:
        """What the properties ask for, and what of them goes on to consumers."""
        raw = _without_blind_copies(amqp.without_shadows(raw))
        if self._staged is not None and (found := self._staged.find(raw)) is not None:
            return found
        options = amqp.options_of(raw)
        if options.stage is not None:
            if self._staged is None:
                self._staged = staging.StagedProperties()
            raw = self._staged.take(raw, options)
        return options, raw

    def _refuse(self, run: PublishRun, plan: PublishPlan, outcome: int, now_ms: int) -> None:
        """A queue is full or a message too large: basic.nack where confirms are on."""
        if len(run.bodies) > 1:
            # part of the run may fit
            for body in run.bodies:
                self.publish(PublishRun(run.channel, run.shape, [body]))
            return
        hub = self._hub
        hub.counters.refuse_publishes(1)
        if outcome == REFUSED_SIZE:
            raise _too_large(len(run.bodies[0]), plan)
        if plan.listener is not None:
            plan.listener.hear(run.bodies)
        hub.refusals.note(
            (plan.full if outcome in outcomes.FULL else plan.queues)[0].name,
            now_ms,
            1,
            peer=self._channel.client.transport.peer,
            routing_key=run.shape.routing_key,
            reason=outcomes.REASONS[outcome],
        )
        if hub.client.publishing.is_remembered(plan, outcome):
            self._confirms.nack_when_durable()
        else:
            self._confirms.nack(1)

    def _call(self, run: PublishRun, now_ms: int) -> None:
        """What the publishes call for instead of messages; a refusal without reply_to closes the channel."""
        call = control.Call(self._channel, self._unacked, run.shape)
        for index, body in enumerate(run.bodies):
            answer = call.ask(body, now_ms)
            self._held.expect(answer, partial(self._answer_call, call), _BASIC_PUBLISH)
            if not answer.is_done and index + 1 < len(run.bodies):
                self._held.put_back(PublishRun(run.channel, run.shape, run.bodies[index + 1 :]))
                return

    def _answer_call(self, call: control.Call, answer: Answer[control.Told]) -> None:
        call.tell(answer)
        self._confirms.confirm(1, durable=True)

    def _commit(self, run: PublishRun) -> None:
        """Offsets of a stream instead of messages; a refusal closes the channel where no confirms are on."""
        answer: Answer[None]
        try:
            answer = committing.commit(self._channel, run.shape)
        except NotPermitted:
            raise
        except QueueManagerError as error:
            answer = Answer.failed(error)
        self._held.expect(answer, partial(self._answer_commit, len(run.bodies)), _BASIC_PUBLISH)

    def _answer_commit(self, count: int, answer: Answer[None]) -> None:
        try:
            answer.result()
        except QueueManagerError as error:
            self._hub.counters.refuse_control(count)
            if not self._confirms.is_on:
                raise
            committing.log_refused(self._channel, error)
            self._confirms.nack(count)
        else:
            self._confirms.confirm(count, durable=True)

    def _return(self, run: PublishRun) -> None:
        """Give back mandatory messages no queue takes (4.2.6: before their confirm)."""
        self._give_back(run.shape.address, [run.shape.properties] * len(run.bodies), run.bodies)

    def _give_back(self, address: PublishAddress, properties: list[bytes], bodies: list[bytes]) -> None:
        method = BasicReturn(c.NO_ROUTE, c.REPLY_NAMES[c.NO_ROUTE], address.exchange, address.routing_key)
        for raw, body in zip(properties, bodies, strict=True):
            self._channel.send_content(method, _without_blind_copies(raw), body)


def _without_blind_copies(raw: bytes) -> bytes:
    return amqp.without_headers(raw, (amqp.BLIND_COPIES,)) if amqp.may_copy(raw) else raw


def is_reply(address: PublishAddress) -> bool:
    """Whether what is published there goes to a requester, not to a queue."""
    return not address.exchange and is_reply_key(address.routing_key)


def _too_large(size: int, plan: PublishPlan) -> ProtocolError:
    bytes_max = min(queue.policy.message_bytes_max for queue in plan.queues)
    return channel_error(
        c.PRECONDITION_FAILED, f"message of {size} bytes is larger than the queue's limit of {bytes_max}"
    )
