"""basic.publish: from a run of publishes to the queue manager, and confirms back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from broker.amqp import calls, committing, staging
from broker.amqp.late_refusals import LateRefusals
from broker.engine.answers import Answer
from broker.properties import amqp
from broker.properties.amqp import PERSISTENT_MODE, may_ask
from protocols.amqp091 import constants as c
from protocols.amqp091 import content, hot
from protocols.amqp091.events import PublishAddress, PublishRun, PublishShape, VariedPublishRun
from protocols.amqp091.methods import BasicReturn
from queue_manager import address as addresses
from queue_manager import outcomes
from queue_manager.errors import InvalidAddress, QueueManagerError, QueueNotFound
from queue_manager.identities import is_remembered
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_SIZE
from queue_manager.plan import PublishPlan
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_NONE, vary

if TYPE_CHECKING:
    from broker.amqp.channel import AmqpChannel

_log: Final = structlog.get_logger("sluicemq.amqp")

_USER_ID_FLAG = 0x10


class Publisher:
    """The publishing half of a channel.

    In confirm mode publishes are numbered from 1; everything up to a number is confirmed at once when the
    commit holding it is durable. `waiting` counts commits whose confirms are still out.
    """

    __slots__ = ("_confirmed", "_late", "_staged", "channel", "confirming", "sequence", "waiting")

    def __init__(self, channel: AmqpChannel) -> None:
        self.channel = channel
        self.confirming = False
        self.sequence = 0
        self._confirmed = 0
        self.waiting = 0
        self._late = LateRefusals(self)
        self._staged: staging.StagedProperties | None = None  # only of who stages

    def publish(self, run: PublishRun) -> None:
        """Take a run of publishes."""
        channel = self.channel
        hub = channel.frontend.hub
        publishing = hub.client.publishing
        shape = run.shape
        plan: PublishPlan | None = shape.context
        now_ms = hub.clock.now_ms()
        if plan is None or not publishing.is_current(plan):
            if committing.is_commit(shape.exchange, shape.routing_key):
                self._commit(run)
                return
            if calls.is_call(shape):
                calls.perform(self, run, now_ms)
                return
            plan = self._plan(shape, now_ms)
            if plan is None:
                return
        count = len(run.bodies)
        if not plan.queues:
            hub.counters.leave_unrouted(count)
            if shape.mandatory:
                self._return(run)
            self.confirm(count, durable=False)
            return
        outcome = publishing.publish(plan, run.bodies, now_ms)
        if outcome == ACCEPTED:
            self.confirm(count, durable=plan.durable)
        else:
            self._refuse(run, plan, outcome, now_ms)

    def publish_varied(self, run: VariedPublishRun) -> bool:
        """Take publishes with properties of their own; False: they have to be looked at one by one."""
        if -1 in run.modes:
            return False
        address = run.address
        hub = self.channel.frontend.hub
        publishing = hub.client.publishing
        properties = run.properties
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
            self.confirm(count, durable=plan.durable)
        elif count > 1:
            return False  # part of them may fit
        else:
            self._refuse(run.singles()[0], plan, outcome, now_ms)
        return True

    def _varied_plan(self, address: PublishAddress, options: PublishOptions) -> PublishPlan | None:
        """Where these go, if that is to queues and nothing else has to be known."""
        key = address.routing_key
        publishing = self.channel.frontend.hub.client.publishing
        if address.exchange or committing.is_commit(address.exchange, key):
            return None
        if addresses.is_queue_topic(key):
            if addresses.parse(key).verb:
                return None
            targets = publishing.match(key)
        else:
            targets = publishing.named(key)
        if not targets:
            return None
        plan = publishing.plan(key, PROPERTIES_AMQP, b"", False, options)
        publishing.aim(plan, targets)
        return plan

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.journal.Waiter`: everything up to the last token is durable."""
        self.waiting -= 1
        if self._late.numbers:
            self.channel.frontend.transport.guard(self._late.tell, tokens[-1])
        self.channel.frontend.transport.guard(self._ack, tokens[-1])

    def _plan(self, shape: PublishShape, now_ms: int) -> PublishPlan | None:
        """Resolve exchange and routing key; None when that closed the channel."""
        channel = self.channel
        publishing = channel.frontend.hub.client.publishing
        if shape.exchange:
            channel.fail(c.NOT_FOUND, f"no exchange {shape.exchange!r} in vhost '/'", c.CLASS_BASIC, 40)
            return None
        raw = shape.properties
        if raw[1] & _USER_ID_FLAG:
            user_id = content.decode_properties(raw).user_id
            if user_id and user_id != channel.frontend.username:
                channel.fail(
                    c.PRECONDITION_FAILED,
                    f"user_id {user_id!r} is not the connection's user",
                    c.CLASS_BASIC,
                    40,
                )
                return None
        key = shape.routing_key
        if addresses.is_queue_topic(key):
            parsed = addresses.parse(key)
            if parsed.verb:
                raise InvalidAddress(
                    f"{parsed.verb} is for MQTT clients; AMQP has basic.ack and basic.reject"
                )
            targets = publishing.match(key)
            if not targets:
                if not publishing.creates_queues and not shape.mandatory:
                    raise QueueNotFound(f"no queue is bound to {key!r}")
                if publishing.creates_queues:
                    targets = publishing.route(key, now_ms)
        else:
            targets = publishing.named(key)
        plan: PublishPlan | None = shape.context
        if plan is None:
            persistent = content.peek_fields(raw)[0] == PERSISTENT_MODE
            if raw in (amqp.NONE, amqp.PERSISTENT):
                plan = publishing.plan(key, PROPERTIES_NONE, b"", persistent)
            else:
                options, raw = self._options(raw)
                plan = publishing.plan(key, PROPERTIES_AMQP, raw, persistent, options)
            shape.context = plan
        publishing.aim(plan, targets)
        return plan

    def _options(self, raw: bytes) -> tuple[PublishOptions, bytes]:
        """What the properties ask for, and what of them goes on to consumers."""
        if self._staged is not None and (found := self._staged.find(raw)) is not None:
            return found
        options = amqp.options_of(raw)
        if options.stage is not None:
            if self._staged is None:
                self._staged = staging.StagedProperties()
            raw = self._staged.take(raw, options)
        return options, raw

    def confirm(self, count: int, *, durable: bool) -> None:
        """Confirm the next publishes: now, or when what was done so far is durable."""
        if not self.confirming:
            return
        self.sequence += count
        if durable or self.waiting:
            self.waiting += self.channel.frontend.hub.client.commits.wait_up_to(self, self.sequence)
        else:
            self._ack(self.sequence)

    def _ack(self, sequence: int) -> None:
        channel = self.channel
        frontend = channel.frontend
        if channel.closed or not frontend.connection.channel_is_open(channel.number):
            return
        multiple = sequence - self._confirmed > 1
        self._confirmed = sequence
        frontend.connection.output.append(hot.encode_ack(channel.number, sequence, multiple))
        frontend.transport.want_flush()

    def _refuse(self, run: PublishRun, plan: PublishPlan, outcome: int, now_ms: int) -> None:
        """A queue is full or a message too large: basic.nack where confirms are on."""
        channel = self.channel
        hub = channel.frontend.hub
        count = len(run.bodies)
        if count > 1:
            # part of the run may fit
            for body in run.bodies:
                single = PublishRun(run.channel, run.shape, [body])
                self.publish(single)
                if channel.closed:
                    return
            return
        hub.counters.refuse_publishes(1)
        if outcome == REFUSED_SIZE:
            bytes_max = min(queue.policy.message_bytes_max for queue in plan.queues)
            size = len(run.bodies[0])
            channel.fail(
                c.PRECONDITION_FAILED,
                f"message of {size} bytes is larger than the queue's limit of {bytes_max}",
                c.CLASS_BASIC,
                40,
            )
            return
        hub.refusals.note(
            (plan.full if outcome in outcomes.FULL else plan.queues)[0].name,
            now_ms,
            1,
            peer=channel.frontend.transport.peer,
            routing_key=run.shape.routing_key,
            reason=outcomes.REASONS[outcome],
        )
        if self.confirming and is_remembered(plan, outcome):
            self.sequence += 1
            self._late.add(self.sequence)
        elif self.confirming:
            self._nack(1)

    def _commit(self, run: PublishRun) -> None:
        """Offsets of a stream instead of messages; a refusal closes the channel where no confirms are on."""
        answer: Answer[None]
        try:
            answer = committing.commit(self.channel, run.shape)
        except QueueManagerError as error:
            answer = Answer.failed(error)
        self.channel.expect(answer, partial(self._committed_offset, len(run.bodies)), c.CLASS_BASIC, 40)

    def _committed_offset(self, count: int, answer: Answer[None]) -> None:
        channel = self.channel
        try:
            answer.result()
        except QueueManagerError as error:
            channel.frontend.hub.counters.refuse_control(count)
            if not self.confirming:
                raise
            committing.log_refused(channel, error)
            self._nack(count)
        else:
            self.confirm(count, durable=True)

    def _nack(self, count: int) -> None:
        """Refuse `count` publishes in confirm mode."""
        channel = self.channel
        connection = channel.frontend.connection
        for _ in range(count):
            self.sequence += 1
            if not self.waiting:
                self._confirmed = self.sequence
            if connection.channel_is_open(channel.number):
                connection.output.append(hot.encode_nack(channel.number, self.sequence, False))
        channel.frontend.transport.want_flush()

    def _return(self, run: PublishRun) -> None:
        """Give back mandatory messages no queue takes (4.2.6: before their confirm)."""
        channel = self.channel
        shape = run.shape
        method = BasicReturn(c.NO_ROUTE, c.REPLY_NAMES[c.NO_ROUTE], shape.exchange, shape.routing_key)
        for body in run.bodies:
            channel.frontend.connection.send_content(channel.number, method, shape.properties, body)
