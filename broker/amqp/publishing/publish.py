"""basic.publish: from a run of publishes to the queue manager, and confirms back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from broker.access.login import NotPermitted
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import channel_error
from broker.amqp.connection.held_events import HeldEvents
from broker.amqp.controls import control_topics, staging
from broker.amqp.publishing.direct_replies import (
    DirectReplies,
    may_want_direct_reply,
    wants_direct_reply,
)
from broker.amqp.settling.confirms import Confirms
from broker.amqp.settling.unacked import Unacked
from broker.clients.client_consumers import Consumers
from broker.engine.answers import Answer
from broker.engine.client.message_flow import PublishingClient
from broker.engine.traffic import Judgement, PublishPlan, Source
from broker.properties import amqp
from broker.properties.amqp import PERSISTENT_MODE, may_ask
from broker.publication import with_properties as publication
from broker.publication.publish_addresses import check_publish
from broker.vhosts.hub import Hub
from protocols.amqp091 import constants as c
from protocols.amqp091 import content
from protocols.amqp091.events import PublishAddress, PublishRun, PublishShape, VariedPublishRun
from protocols.amqp091.methods import BasicReturn
from protocols.amqp091.names import is_reply_key
from protocols.errors import ProtocolError
from queue_manager import address as addresses
from queue_manager import outcomes
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_SIZE, UNROUTED
from queue_manager.policy import DROP_UNMATCHED
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate, vary

_BASIC_PUBLISH: Final = c.CLASS_BASIC << 16 | 40


class _Planned(NamedTuple):
    """Publishes of a transaction, and what is to be judged; None: they go to a requester."""

    run: PublishRun | VariedPublishRun
    wanted: tuple[PublishPlan, list[bytes], list[EnvelopeTemplate] | None] | None


@dataclass(eq=False, repr=False, slots=True)
class Publisher:
    """The publishing half of a channel."""

    _channel: AmqpChannel
    _held: HeldEvents
    _confirms: Confirms
    _unacked: Unacked
    _replies: DirectReplies
    _consumers: Consumers
    _hub: Hub = field(init=False)
    _publishing: PublishingClient = field(init=False)
    _staged: staging.StagedProperties | None = field(default=None, init=False)  # only of who stages

    def __post_init__(self) -> None:
        self._hub = self._channel.hub
        self._publishing = self._channel.core.publishing

    def publish(self, run: PublishRun) -> None:
        """Take a run of publishes; raises QueueManagerError, or a channel error."""
        hub = self._hub
        publishing = self._publishing
        shape = run.shape
        plan: PublishPlan | None = shape.context
        now_ms = hub.clock.now_ms()
        if plan is None or not publishing.is_current(plan):
            if control_topics.is_commit(shape.address.exchange, shape.address.routing_key):
                self._commit(run)
                return
            if control_topics.is_call(shape):
                self._call(run, now_ms)
                return
            if is_reply(shape.address):
                self._reply_to_requester(run)
                return
            plan = self._plan(shape, now_ms)
            if len(run.bodies) > 1 and not publishing.is_current(plan):  # each may go elsewhere
                for single in run.singles():
                    self.publish(single)
                return
        self._answer(run, plan, publishing.publish(plan, run.bodies, now_ms), now_ms)

    def _answer(self, run: PublishRun, plan: PublishPlan, outcome: int, now_ms: int) -> None:
        """Confirm publishes, give them back, or refuse them, as they were judged."""
        count = len(run.bodies)
        if outcome == ACCEPTED:
            self._confirms.confirm(count, durable=plan.durable)
        elif outcome == UNROUTED:
            self._hub.counters.leave_unrouted(count)
            if run.shape.address.mandatory:
                self._return(run)
            self._confirms.confirm(count, durable=False)
        elif count > 1:  # part of the run may fit
            for single in run.singles():
                self.publish(single)
        else:
            self._refuse(run, plan, outcome, now_ms)

    def publish_varied(self, run: VariedPublishRun) -> bool:
        """Take publishes with properties of their own; False: they have to be looked at one by one."""
        if is_reply(run.address):
            if not _is_plain(run):
                return False
            self._reply(run.address, run.properties, run.bodies)
            return True
        varied = self._vary(run)
        if varied is None:
            return False
        plan, templates = varied
        publishing = self._publishing
        now_ms = self._hub.clock.now_ms()
        count = len(run.bodies)
        outcome = publishing.publish(plan, run.bodies, now_ms, templates)
        if outcome == ACCEPTED:
            self._confirms.confirm(count, durable=plan.durable)
        elif count > 1:
            return False  # part of them may fit
        else:
            self._answer(run.singles()[0], plan, outcome, now_ms)
        return True

    def _vary(self, run: VariedPublishRun) -> tuple[PublishPlan, list[EnvelopeTemplate]] | None:
        """Return the plan of publishes with properties of their own, and the template of each; None: they
        have to be looked at one by one. Raises QueueManagerError.
        """
        if not _is_plain(run):
            return None
        properties = run.properties
        if may_want_direct_reply(properties):
            properties = [self._request(raw) for raw in properties]
        options = PLAIN
        if any(map(may_ask, properties)):
            staged = None if self._staged is None else self._staged.find_all(properties)
            if staged is None:
                return None
            options, properties = staged
        address = run.address
        plan: PublishPlan | None = address.context
        if plan is None or not self._publishing.is_current(plan) or plan.options is not options:
            plan = address.context = self._varied_plan(address, options)
            if plan is None:
                return None
        return plan, vary(plan.template, properties, [mode == PERSISTENT_MODE for mode in run.modes])

    # transactions

    def check(self, run: PublishRun) -> bool:
        """Check publishes that come with a later `publish`; False: they call for something instead.

        Raises QueueManagerError, or a channel error, for what will not be taken.
        """
        shape = run.shape
        if control_topics.is_commit(
            shape.address.exchange, shape.address.routing_key
        ) or control_topics.is_call(shape):
            return False
        if is_reply(shape.address):
            publication.check_user_id(shape.properties, self._channel.client.identity)
            return True
        plan = self._planned(shape, self._hub.clock.now_ms())
        if plan.options.stage is not None:
            raise InvalidArgument("rows are staged outside of transactions: their epoch is one")
        size = max(map(len, run.bodies))
        if size > plan.message_bytes_max:
            raise _too_large(size, plan)
        return True

    def check_varied(self, run: VariedPublishRun) -> bool:
        """Check as `check`; False: they have to be looked at one by one."""
        if is_reply(run.address):
            return False
        run.context = self._vary(run)
        if run.context is None:
            return False
        plan: PublishPlan = run.context[0]
        if plan.options.stage is not None:
            return False
        size = max(map(len, run.bodies))
        if size > plan.message_bytes_max:
            raise _too_large(size, plan)
        if may_want_direct_reply(run.properties):
            run.properties[:] = map(self._request, run.properties)
        return True

    def addressed(self, run: PublishRun) -> PublishRun:
        """Give publishes that `check` was true for the address that replies go to now: the requester may be
        gone when they are judged.
        """
        shape = run.shape
        if is_reply(shape.address) or not wants_direct_reply(shape.properties):
            return run
        return PublishRun(
            run.channel, PublishShape(shape.address, self._request(shape.properties)), run.bodies
        )

    def publish_elsewhere(
        self, judged: Sequence[tuple[PublishRun | VariedPublishRun, Judgement | None]]
    ) -> Answer[None]:
        """Publish what of this is for queues of other shards; see `PublishingClient`."""
        return self._publishing.publish_elsewhere([one for _, one in judged if one is not None])

    def judge(
        self, runs: Sequence[PublishRun | VariedPublishRun]
    ) -> list[tuple[PublishRun | VariedPublishRun, Judgement | None]]:
        """Find what becomes of publishes that `check` was true for, to be applied in order; None: they go
        to a requester. Raises QueueManagerError, or a channel error if one of them is refused.
        """
        now_ms = self._hub.clock.now_ms()
        planned = [one for run in runs for one in self._plan_all(run, now_ms)]
        wanted = [one.wanted for one in planned if one.wanted is not None]
        judged = self._publishing.judge(wanted, now_ms)
        last = judged[-1] if judged else None
        if last is not None and last.outcome != ACCEPTED:
            self._hub.counters.refuse_publishes(sum(len(run.bodies) for run in runs))
            raise channel_error(c.PRECONDITION_FAILED, outcomes.why_not(last))
        verdicts = iter(judged)
        return [(one.run, None if one.wanted is None else next(verdicts)) for one in planned]

    def _plan_all(self, run: PublishRun | VariedPublishRun, now_ms: int) -> Iterator[_Planned]:
        """Plan a run; or each publish of it, if each may go elsewhere or is to be known by its identity."""
        if isinstance(run, VariedPublishRun):
            varied = self._varied_before(run)
            if varied is not None and not any(map(_drops_unmatched, varied[0].queues)):
                yield _Planned(run, (varied[0], run.bodies, varied[1]))
                return
            for single in run.singles():
                yield from self._plan_all(single, now_ms)
        elif is_reply(run.shape.address):
            yield _Planned(run, None)
        else:
            plan = self._own_plan(run.shape, now_ms)
            if len(run.bodies) == 1 or (self._publishing.is_current(plan) and not plan.options.is_identified):
                yield _Planned(run, (plan, run.bodies, None))
                return
            for single in run.singles():
                yield _Planned(single, (self._own_plan(single.shape, now_ms), single.bodies, None))

    def apply(self, run: PublishRun | VariedPublishRun, judged: Judgement | None) -> None:
        """Do what was judged, and answer it."""
        if isinstance(run, VariedPublishRun):
            assert judged is not None
            self._publishing.apply(judged, self._hub.clock.now_ms())
            return
        if judged is None:
            self._reply_to_requester(run)
            return
        now_ms = self._hub.clock.now_ms()
        outcome = self._publishing.apply(judged, now_ms)
        self._answer(run, judged.plan, outcome, now_ms)

    def _planned(self, shape: PublishShape, now_ms: int) -> PublishPlan:
        plan: PublishPlan | None = shape.context
        if plan is None or not self._publishing.is_current(plan):
            plan = self._plan(shape, now_ms)
        return plan

    def _varied_before(self, run: VariedPublishRun) -> tuple[PublishPlan, list[EnvelopeTemplate]] | None:
        """Vary as `_vary`, or return what `check_varied` found, if that is still true."""
        plan, templates = run.context
        if len(templates) == len(run.bodies) and self._publishing.is_current(plan):
            return plan, templates
        return self._vary(run)

    def _own_plan(self, shape: PublishShape, now_ms: int) -> PublishPlan:
        """Return the plan as `_planned`; one for one publish alone if the next one may go elsewhere."""
        plan = self._planned(shape, now_ms)
        if not self._publishing.is_current(plan):
            shape.context = None
        return plan

    # direct replies

    def _reply_to_requester(self, run: PublishRun) -> None:
        """Give alike replies to the requester that their address stands for."""
        shape = run.shape
        publication.check_user_id(shape.properties, self._channel.client.identity)
        self._reply(shape.address, [shape.properties] * len(run.bodies), run.bodies)

    def _reply(self, address: PublishAddress, properties: list[bytes], bodies: list[bytes]) -> None:
        """Give replies to who asked, or (`mandatory`) back where nobody is there any more."""
        take_replies = self._replies.takers.get(address.routing_key)
        if take_replies is not None:
            seen = [publication.for_consumers(raw) if may_ask(raw) else raw for raw in properties]
            take_replies(seen, bodies)
        else:
            self._hub.counters.leave_unrouted(len(bodies))
            if address.mandatory:
                self._give_back(address, properties, bodies)
        self._confirms.confirm(len(bodies), durable=False)

    def _request(self, raw: bytes) -> bytes:
        """Return the properties of a publish, with this channel's own address if replies are to come
        directly.
        """
        return self._replies.address_request(raw) if wants_direct_reply(raw) else raw

    def _varied_plan(self, address: PublishAddress, options: PublishOptions) -> PublishPlan | None:
        """Return where these go, if that is to queues and nothing else has to be known."""
        key = address.routing_key
        publishing = self._publishing
        if control_topics.is_commit(address.exchange, key):
            return None
        check_publish(self._channel.client.identity, address.exchange, key)
        if address.exchange:
            targets = publishing.unconditional(address.exchange, key)
            if targets.topics_of is not None:
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
        publishing = self._publishing
        raw = shape.properties
        identity = self._channel.client.identity
        destination = publication.find_destination(
            publishing,
            identity,
            shape.address.exchange,
            shape.address.routing_key,
            raw,
            now_ms,
            mandatory=shape.address.mandatory,
        )
        publication.check_user_id(raw, identity)
        plan: PublishPlan | None = shape.context
        request = self._request(raw)
        if request is not raw or (plan is not None and plan.template.exchange != destination.exchange):
            plan = None
        if plan is None:
            options, seen = self._options(request)
            persistent = content.peek_fields(raw)[0] == PERSISTENT_MODE
            plan = publication.plan_of(
                publishing,
                destination.exchange,
                destination.keys[0],
                seen,
                options,
                persistent=persistent,
            )
            if request is shape.properties:  # those of a request are this channel's alone
                shape.context = plan
        publishing.aim(plan, destination.targets, destination.keys)
        return plan

    def _options(self, raw: bytes) -> tuple[PublishOptions, bytes]:
        """Return what the properties ask for, and what of them goes on to consumers."""
        raw = publication.for_consumers(raw)
        if self._staged is not None and (found := self._staged.find(raw)) is not None:
            return found
        options = amqp.options_of(raw)
        if options.stage is not None:
            if self._staged is None:
                self._staged = staging.StagedProperties()
            raw = self._staged.take(raw, options)
        return options, raw

    def _refuse(self, run: PublishRun, plan: PublishPlan, outcome: int, now_ms: int) -> None:
        """Refuse, as a queue is full or a message too large: basic.nack where confirms are on."""
        hub = self._hub
        hub.counters.refuse_publishes(1)
        if outcome == REFUSED_SIZE:
            raise _too_large(len(run.bodies[0]), plan)
        kind, name = _refusing(plan, outcome)
        by = {kind: name}
        if outcome == outcomes.REFUSED_SESSION:
            by["session"] = self._channel.core.sessions.full_session
        hub.refusals.note(
            name,
            now_ms,
            1,
            **by,
            peer=self._channel.transport.peer,
            routing_key=run.shape.address.routing_key,
            reason=outcomes.reason_of(outcome, plan.full),
        )
        if self._publishing.is_remembered(plan, outcome):
            self._confirms.nack_when_durable()
        else:
            self._confirms.nack(1)

    def _call(self, run: PublishRun, now_ms: int) -> None:
        """Do what the publishes call for instead of messages; a refusal without reply_to closes the
        channel.
        """
        shape = run.shape
        raw = self._request(shape.properties)
        key = shape.address.routing_key
        call = control_topics.Call(self._channel, self._unacked, self._consumers, key, raw)
        for index, body in enumerate(run.bodies):
            answer = call.ask(body, now_ms)
            self._held.expect(answer, partial(self._answer_call, call), _BASIC_PUBLISH)
            if not answer.is_done and index + 1 < len(run.bodies):
                self._held.put_back(PublishRun(run.channel, run.shape, run.bodies[index + 1 :]))
                return

    def _answer_call(self, call: control_topics.Call, answer: Answer[control_topics.Told]) -> None:
        call.tell(answer)
        self._confirms.confirm(1, durable=True)

    def _commit(self, run: PublishRun) -> None:
        """Commit offsets of a stream instead of messages; a refusal closes the channel where no confirms are
        on.
        """
        answer: Answer[None]
        try:
            answer = control_topics.commit(self._channel, run.shape)
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
            control_topics.log_refused(self._channel, error)
            self._confirms.nack(count)
        else:
            self._confirms.confirm(count, durable=True)

    def _return(self, run: PublishRun) -> None:
        """Give back mandatory messages no queue takes (4.2.6: before their confirm)."""
        self._give_back(run.shape.address, [run.shape.properties] * len(run.bodies), run.bodies)

    def _give_back(self, address: PublishAddress, properties: list[bytes], bodies: list[bytes]) -> None:
        method = BasicReturn(c.NO_ROUTE, c.REPLY_NAMES[c.NO_ROUTE], address.exchange, address.routing_key)
        for raw, body in zip(properties, bodies, strict=True):
            self._channel.send_content(method, publication.without_blind_copies(raw), body)


def _refusing(plan: PublishPlan, outcome: int) -> tuple[str, str]:
    """Return the kind of what refused, and its name: a queue, or the exchange whose subscribers did."""
    refusing = plan.full if outcome in outcomes.FULL else plan.queues
    if outcome == outcomes.REFUSED_SESSION or not refusing:
        return "exchange", plan.template.exchange
    return "queue", refusing[0].name


def _is_plain(run: VariedPublishRun) -> bool:
    """Return whether no property of these publishes asks something of the broker."""
    return -1 not in run.modes


def _drops_unmatched(queue: Source) -> bool:
    """Return whether each message has to be looked at for itself, since a queue may drop it."""
    return queue.policy.unmatched == DROP_UNMATCHED


def is_reply(address: PublishAddress) -> bool:
    """Return whether what is published there goes to a requester, not to a queue."""
    return not address.exchange and is_reply_key(address.routing_key)


def _too_large(size: int, plan: PublishPlan) -> ProtocolError:
    bytes_max = plan.message_bytes_max
    return channel_error(
        c.PRECONDITION_FAILED, f"message of {size} bytes is larger than the queue's limit of {bytes_max}"
    )
