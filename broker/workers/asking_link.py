"""The asking end of a link: calls, publishes, consumers and settlements go to the worker at the other end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final

import structlog

from broker.engine.answers import Answer
from broker.engine.elsewhere import FarPlan
from broker.engine.shard_ending import WorkerLost
from broker.workers import link_frames as f
from broker.workers.link_codec import NotCarried, Unknown, Unreadable, number_of
from broker.workers.link_greeting import Greeting, LinkRefused, heard
from broker.workers.link_values import CODEC
from broker.workers.link_wire import LinkWire
from broker.workers.remote_consumers import RemoteClaim, RemoteConsumer, SharedLinkCredit
from broker.workers.waits import Part, Parts
from config import limits
from queue_manager.errors import QueueManagerError
from queue_manager.model import Message
from queue_manager.routing.plan import PublishPlan
from storage.envelope import EnvelopeTemplate, TemplateCache
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.workers")


class Link(LinkWire):
    """The way to the shard of another worker, as long as that lives.

    `sent_count` are the publishes so far, and whatever else is waited for: all up to a number are durable
    there once it says so. `flush_count` tells the turns apart, `flushed_count` are those of earlier
    ones. `unsent_bytes`: bodies that it has not answered for. Claims from `_next_claim` on have not come.
    `name` is that of the other worker in reasons.

    `has_lease`: whether the lease of this node lasts. Else nothing is listened to, and what comes waits: who
    was paused does not know how old it is, nor who has the shard by now.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        number: int,
        name: str = "",
        has_lease: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(loop, number)
        self._has_lease = has_lease
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.name = name or f"worker {number}"
        self.is_refused = False
        self._own: Greeting
        self._greeted: Answer[None] = Answer()
        self.sent_count = 0
        self.flush_count = 0
        self.flushed_count = 0
        self.parts = Parts()
        self.unanswered_bytes = 0
        self._sizes: list[tuple[int, int]] = []
        self._plan_numbers: dict[PublishPlan | FarPlan, int] = {}
        self._plans: list[PublishPlan | FarPlan | None] = [None] * limits.LINK_PLANS_MAX
        self._plan_count = 0
        self._answers: dict[int, Answer[Any]] = {}
        self._answer_count = 0
        self.consumers: dict[int, RemoteConsumer] = {}
        self._consumer_count = 0
        self.claims: dict[int, RemoteClaim] = {}
        self._next_claim = 1
        self._templates = TemplateCache()
        self.why_lost = ""
        """Why the link ended, once it has, or is about to."""
        self.on_lost: Callable[[Link], None] = lambda link: None
        self.on_progress: Callable[[], None] = lambda: None

    def flush(self) -> None:
        self.flush_count += 1
        self.flushed_count = self.sent_count
        super().flush()

    # calls

    def call(self, part: str, method: str, *arguments: Any, **named: Any) -> Answer[Any]:
        """Have a part of the other worker's client called there; what it came to is durable."""
        answer, number = self._ask()
        if not answer.is_done:
            self._send(answer, f.CALL, number, part, method, list(arguments), named)
        return answer

    def greet(self, own: Greeting) -> Answer[None]:
        """Greet the other worker; comes to LinkRefused, or WorkerLost."""
        self._own = own
        self.send(CODEC.frame(f.HELLO, own.told()))
        return self._greeted

    def _send(self, answer: Answer[Any], kind: int, number: int, *told: Any) -> None:
        """Send a question; it fails if it cannot go over a link."""
        try:
            self.send(CODEC.frame(kind, number, *told))
        except NotCarried as error:
            _log.error("worker.not_carried", worker=self.number, reason=error.reason)
            del self._answers[number]
            answer.fail(error)

    def _ask(self) -> tuple[Answer[Any], int]:
        answer: Answer[Any] = Answer()
        if not self.is_up:
            answer.fail(self._lost())
            return answer, 0
        self._answer_count = number = self._answer_count + 1
        self._answers[number] = answer
        return answer, number

    def _lost(self) -> WorkerLost:
        return lost(self.name)

    # publishing

    def publish(
        self,
        plan: PublishPlan,
        queues: Sequence[str],
        bodies: list[bytes],
        templates: list[EnvelopeTemplate] | None,
    ) -> tuple[int, int]:
        """Publish messages to these queues of the other worker; gives the first and the last number they are
        known by.
        """
        number = self._plan_numbers.get(plan)
        if number is None:
            number = self._define(plan, queues)
        count = len(bodies)
        size, follows = f.sizes_of(bodies)
        output = self.output
        if templates is None:
            output.append(f.PUBLISH_HEAD.pack(f.PUBLISH_HEAD.size + follows, f.PUBLISH, number, count, size))
        else:
            properties = [template.properties for template in templates]
            own_size, own_follows = f.sizes_of(properties)
            head_bytes = f.PUBLISH_HEAD.size + 4 + count
            length = head_bytes + follows + own_follows
            output.append(f.PUBLISH_HEAD.pack(length, f.PUBLISH_VARIED, number, count, size))
            output.append(struct.pack("<I", own_size) + bytes([one.persistent for one in templates]))
            f.put_bodies(output, properties, own_size)
        f.put_bodies(output, bodies, size)
        if not self._is_scheduled:
            self.want_flush()
        first = self.sent_count + 1
        self.sent_count += count
        self._sizes.append((self.sent_count, follows))
        self.unanswered_bytes += follows
        return first, self.sent_count

    def _define(self, plan: PublishPlan, queues: Sequence[str]) -> int:
        """Tell the other worker what publishes of this plan have in common."""
        number = self._number(plan)
        try:
            self.send(CODEC.frame(f.PLAN, number, list(queues), *plan_fields(plan)))
        except NotCarried:
            del self._plan_numbers[plan]
            raise
        return number

    def _number(self, plan: PublishPlan | FarPlan) -> int:
        """Give a plan a number, in the place of the one that had it longest."""
        number = self._plan_count % limits.LINK_PLANS_MAX
        self._plan_count += 1
        before = self._plans[number]
        if before is not None:
            self._plan_numbers.pop(before, None)
        self._plans[number] = plan
        self._plan_numbers[plan] = number
        return number

    def publish_topic(self, plan: FarPlan, bodies: Sequence[bytes]) -> tuple[int, int]:
        """Publish messages to the subscribers there, as `publish`. If the worker is gone they are lost, which
        who waits for them is told.
        """
        first = self.sent_count + 1
        self.sent_count += len(bodies)
        if not self.is_up:
            return first, self.sent_count
        number = self._plan_numbers.get(plan)
        if number is None:
            number = self._number(plan)
            self.send(CODEC.frame(f.TOPIC_PLAN, number, *plan.told()))
        size, follows = f.sizes_of(bodies)
        head = f.PUBLISH_HEAD.pack(f.PUBLISH_HEAD.size + follows, f.PUBLISH, number, len(bodies), size)
        self.output.append(head)
        f.put_bodies(self.output, bodies, size)
        if not self._is_scheduled:
            self.want_flush()
        self._sizes.append((self.sent_count, follows))
        self.unanswered_bytes += follows
        return first, self.sent_count

    def forget_plan(self, plan: PublishPlan) -> None:
        """Define a plan anew before its next publish: it is aimed elsewhere."""
        self._plan_numbers.pop(plan, None)

    def publish_all(self, publishes: Sequence[Any]) -> Answer[None]:
        """Publish messages of several plans in one commit there, or none of them."""
        answer, number = self._ask()
        if not answer.is_done:
            self._send(answer, f.PUBLISH_ALL, number, publishes)
        return answer

    def barrier(self, consumer: int = 0) -> int:
        """Have everything said so far become durable there; gives the number to wait for. `consumer`: its
        group's settlements are to be written, too.
        """
        self.send(f.BARRIER_FRAME.pack(f.BARRIER_FRAME.size, f.BARRIER, consumer))
        self.sent_count += 1
        return self.sent_count

    def wait(self, part: Part) -> None:
        """Have a part of what is waited for told when it is durable, or that it is not."""
        self.parts.add(part)
        if not self.is_up:
            self._loop.call_soon(self.parts.lost)

    def _acked(self, last: int) -> None:
        sizes = self._sizes
        done = 0
        while done < len(sizes) and sizes[done][0] <= last:
            self.unanswered_bytes -= sizes[done][1]
            done += 1
        del sizes[:done]
        self.parts.done(last)
        self.on_progress()

    # consuming

    def subscribe(self, consumer: RemoteConsumer, kind: int, *asked: Any) -> Answer[RemoteConsumer]:
        """Have a consumer made there: `kind` is SUBSCRIBE or PULLER."""
        answer, number = self._ask()
        if answer.is_done:
            return answer
        self._consumer_count = consumer.number = self._consumer_count + 1
        self.consumers[consumer.number] = consumer
        self._send(answer, kind, number, consumer.number, *asked)

        def made(group: Any) -> RemoteConsumer:
            consumer.group = group
            return consumer

        made_answer = answer.map(made)
        made_answer.then(lambda done: self._check_made(consumer, done))
        return made_answer

    def _check_made(self, consumer: RemoteConsumer, answer: Answer[RemoteConsumer]) -> None:
        try:
            answer.result()
        except (QueueManagerError, StorageError):
            self.consumers.pop(consumer.number, None)

    def consumer_of(self, group: object) -> int:
        """Return the number of a consumer of this group; 0: there is none any more."""
        return next((number for number, one in self.consumers.items() if one.group is group), 0)

    def pull(self, consumer: RemoteConsumer, count: int, *, no_ack: bool) -> Answer[int]:
        """Have a puller given up to so many messages; how many there were."""
        answer, number = self._ask()
        if not answer.is_done:
            what = f.PULL_NO_ACK if no_ack else f.PULL
            self.tell(consumer.number, what, number << 32 | count)
        return answer

    def tell(self, consumer: int, what: int, value: int = 0) -> None:
        """Tell about a consumer: one of the constants of CONSUMER."""
        self.send(f.CONSUMER_FRAME.pack(f.CONSUMER_FRAME.size, f.CONSUMER, consumer, what, value))

    def end(self, consumer: RemoteConsumer, *, keep_claims: bool) -> None:
        """End a consumer there; its claims return, or stay with the client."""
        self.return_waiting(consumer)
        if not keep_claims:
            self._forget([claim for claim in self.claims.values() if claim.consumer is consumer])
            consumer.let_go(consumer.held_count)
        self.tell(consumer.number, f.END_KEEPING if keep_claims else f.END, self._next_claim)
        self.consumers.pop(consumer.number, None)
        consumer.is_over = True

    def end_pullers(self, queue: str) -> None:
        """End those of a queue that is gone: there, too, nothing else does."""
        for consumer in list(self.consumers.values()):
            if consumer.begin is not None and consumer.queue.name == queue:
                self.end(consumer, keep_claims=False)

    def end_claims(self, log_ids: set[str]) -> None:
        """End what consumers that ended before left to their clients, of queues that are gone."""
        kept = [claim for claim in self.claims.values() if claim.consumer.number not in self.consumers]
        gone = [claim for claim in kept if claim.consumer.queue.log_id in log_ids]
        if gone:
            self.settle(f.UNCLAIM, gone)

    def return_waiting(self, consumer: RemoteConsumer) -> None:
        """Give back what the client was never given."""
        unsent = consumer.take_back_waiting()
        if unsent:
            self._tell_of(f.UNCLAIM, unsent)
            self._forget(unsent)

    def settle(
        self, how: int, claims: Sequence[RemoteClaim], *, delay_ms: int | None = None, is_spared: bool = False
    ) -> None:
        """Tell what became of claims: `how` is one of the constants of SETTLE."""
        self._tell_of(how, claims, delay_ms=delay_ms, is_spared=is_spared)
        if how == f.EXTEND:
            return
        self._forget(claims)
        if len(claims) == 1:
            claims[0].consumer.let_go(1)
            return
        held: dict[RemoteConsumer, int] = {}
        for claim in claims:
            held[claim.consumer] = held.get(claim.consumer, 0) + 1
        for consumer, let_go in held.items():
            consumer.let_go(let_go)

    def _tell_of(
        self, how: int, claims: Sequence[RemoteClaim], *, delay_ms: int | None = None, is_spared: bool = False
    ) -> None:
        numbers = [claim.number for claim in claims]
        first, count = numbers[0], len(numbers)
        delay = -1 if delay_ms is None else delay_ms
        if numbers[-1] - first + 1 == count and numbers == list(range(first, first + count)):
            self.send(_settle_range(how, first, count, is_spared, delay))
        else:
            size = f.SETTLE_HEAD.size + 8 * count
            head = f.SETTLE_HEAD.pack(size, f.SETTLE, how, is_spared, delay, count)
            self.send(head + struct.pack(f"<{count}Q", *numbers))

    def _forget(self, claims: Sequence[RemoteClaim]) -> None:
        pop = self.claims.pop
        for claim in claims:
            pop(claim.number, None)
            claim.is_in_flight = False

    def amend(self, claims: Sequence[RemoteClaim], changed: Sequence[EnvelopeTemplate]) -> None:
        """Change what messages have beside their bodies, for the groups of their claims."""
        numbers = [claim.number for claim in claims]
        messages = [Message(0, 0, None, template, 0).envelope() for template in changed]
        self.send(CODEC.frame(f.AMEND, numbers, messages))

    def find_claim(self, queue: str, group_id: str, offset: int, consumer: RemoteConsumer) -> Answer[Any]:
        """Find the claim that a control topic names; it is one of `consumer` here."""
        answer, number = self._ask()
        if answer.is_done:
            return answer
        self._send(answer, f.FIND_CLAIM, number, queue, group_id, offset)

        def found(told: Any) -> RemoteClaim:
            claim_number, attempts, group = told
            if (known := self.claims.get(claim_number)) is not None:
                return known
            consumer.group = group
            claim = RemoteClaim(consumer, claim_number, Message(0, offset, None, _NO_TEMPLATE, 0), attempts)
            self.claims[claim_number] = claim
            self._next_claim = max(self._next_claim, claim_number + 1)
            consumer.held_count += 1
            return claim

        return answer.map(found)

    # what comes

    def data_received(self, data: bytes) -> None:
        if self._has_lease is None or (not self._held and self._has_lease()):
            super().data_received(data)
            return
        self.silent_ms = 0
        if not self._held:
            self._listen_soon()
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > limits.LINK_OUTPUT_BYTES_HIGH and self.transport is not None:
            self.transport.pause_reading()

    def _listen_soon(self) -> None:
        self._loop.call_later(limits.LINK_LEASE_LOOK_MS / 1000, self._listen_again)

    def _listen_again(self) -> None:
        """Take what was held, once the lease is renewed."""
        assert self._has_lease is not None
        if not self.is_up:
            return
        if not self._has_lease():
            self._listen_soon()
            return
        held, self._held, self._held_bytes = self._held, [], 0
        super().data_received(b"".join(held))
        if self.transport is not None:
            self.transport.resume_reading()

    def take(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind == f.ACK:
            self._acked(f.ACK_FRAME.unpack_from(data, at)[2])
        elif kind == f.DELIVER_RUN:
            self._deliver_run(data, at)
        elif kind == f.DELIVER:
            self._deliver(data, at)
        elif kind == f.REFUSED:
            _, _, number, outcome = f.REFUSED_FRAME.unpack_from(data, at)
            self.parts.refused(number, outcome)
        else:
            self._read(kind, data, at, end)

    def _read(self, kind: int, data: bytes, at: int, end: int) -> None:
        try:
            fields = self._reader.fields(data, at, end)
        except Unknown as error:
            number = number_of(data, at, end)
            if kind != f.RESULT or number not in self._answers:
                raise
            reason = f"what worker {self.number} said is not known here: {error}"
            self._answers.pop(number).fail(NotCarried(reason))
            return
        self._take_rare(kind, fields)

    def taken(self) -> None:
        """See `LinkWire`: whoever was given something asked for its own turn."""

    def _take_rare(self, kind: int, fields: Any) -> None:
        number, *told = fields
        if self.version < 0:
            self._take_greeting(kind, number)
            return
        if kind == f.RESULT:
            answer = self._answers.pop(number)
            if isinstance(told[0], QueueManagerError | StorageError):
                answer.fail(told[0])
            else:
                answer.resolve(told[0])
            return
        consumer = self.consumers.get(number)
        if consumer is None:
            return
        if kind == f.CANCELLED:
            del self.consumers[number]
            self._forget(consumer.end())
            self._forget([claim for claim in self.claims.values() if claim.consumer is consumer])
            consumer.let_go(consumer.held_count)
            consumer.sink.cancelled(consumer, told[0])
        elif kind == f.REVOKED:
            self._revoke(consumer, *told)
        elif kind == f.TOLD:
            self._told(consumer, **told[0])

    def _take_greeting(self, kind: int, told: Any) -> None:
        try:
            if kind == f.UNWELCOME:
                raise LinkRefused(str(told))
            if kind != f.WELCOME:
                raise Unreadable("no greeting comes first")
            self.meet(self._own, heard(told))
        except LinkRefused as error:
            self.is_refused = True
            _log.error("worker.link_refused", worker=self.number, reason=error.reason)
            self._greeted.fail(error)
            if self.transport is not None:
                self.transport.close()
            return
        self._greeted.resolve(None)

    def _told(self, consumer: RemoteConsumer, **news: Any) -> None:
        if "active" in news and consumer.on_activity is not None:
            consumer.on_activity(news["active"])
        consumer.echoes_due -= "echo" in news
        if "dried" in news and isinstance(consumer.pool, SharedLinkCredit):
            consumer.dried(consumer.pool)
        consumer.gap += news.get("gap", 0)  # an earlier one may not be shown yet
        consumer.committed = news.get("committed", consumer.committed)
        consumer.ready = news.get("ready", consumer.ready)

    def _revoke(self, consumer: RemoteConsumer, numbers: list[int], ends_late: bool) -> None:
        """Forget claims whose leases ended."""
        found = [self.claims.pop(number) for number in numbers if number in self.claims]
        for claim in found:
            claim.is_in_flight = False
        unsent = {claim for _, claim in consumer.waiting if claim is not None and not claim.is_in_flight}
        if unsent:
            kept = [one for one in consumer.waiting if one[1] not in unsent]
            consumer.waiting.clear()
            consumer.waiting.extend(kept)
            consumer.held_count -= len(unsent)
        consumer.ends_late = ends_late
        lost = [claim for claim in found if claim not in unsent]
        if lost:
            consumer.let_go(len(lost))
            consumer.sink.revoked(consumer, lost)

    def _deliver_run(self, data: bytes, at: int) -> None:
        _, _, number, first_claim, message_id, count, size, envelope_bytes = f.RUN_HEAD.unpack_from(data, at)
        consumer = self.consumers.get(number)
        at += f.RUN_HEAD.size
        envelope = data[at : at + envelope_bytes]
        ((offset, received_at_ms, template),) = self._templates.decode([envelope])
        bodies, _ = f.take_bodies(data, at + envelope_bytes, count, size)
        ids, offsets = range(message_id, message_id + count), range(offset, offset + count)
        messages = list(map(Message, ids, offsets, bodies, repeat(template), repeat(received_at_ms)))
        if consumer is None:
            self._let_return(first_claim, count)
            return
        claims = None
        if first_claim:
            self._next_claim = first_claim + count
            numbers = range(first_claim, self._next_claim)
            claims = list(map(RemoteClaim, repeat(consumer), numbers, messages))
            self.claims.update(zip(numbers, claims, strict=True))
        consumer.give(messages, claims)

    def _deliver(self, data: bytes, at: int) -> None:
        _, _, number, first_claim, count = f.DELIVER_HEAD.unpack_from(data, at)
        consumer = self.consumers.get(number)
        at += f.DELIVER_HEAD.size
        ids = struct.unpack_from(f"<{count}Q", data, at)
        attempts = struct.unpack_from(f"<{count}I", data, at + 8 * count)
        failed = struct.unpack_from(f"<{count}i", data, at + 12 * count)
        envelopes, at = f.take_bodies(data, at + 16 * count, count, 0)
        bodies, _ = f.take_bodies(data, at, count, 0)
        messages = [
            Message(message_id, offset, body, template, received_at_ms)
            for message_id, body, (offset, received_at_ms, template) in zip(
                ids, bodies, self._templates.decode(envelopes), strict=True
            )
        ]
        if consumer is None:
            self._let_return(first_claim, count)
            return
        claims = None
        if first_claim or attempts[0] > 1:
            numbers = range(first_claim, first_claim + count) if first_claim else [0] * count
            claims = [
                RemoteClaim(consumer, *one) for one in zip(numbers, messages, attempts, failed, strict=True)
            ]
        if first_claim and claims is not None:
            self._next_claim = first_claim + count
            self.claims.update(zip(numbers, claims, strict=True))
        consumer.give(messages, claims)

    def _let_return(self, first_claim: int, count: int) -> None:
        """Give back what was on its way to a consumer that ended here: it may have kept its claims."""
        if first_claim:
            self.send(_settle_range(f.UNCLAIM, first_claim, count))

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the other worker is gone."""
        self.transport = None
        self._held.clear()
        self.why_lost = self.why_lost or (str(error) if error else "it ended the link")
        if not self._greeted.is_done:
            self._greeted.fail(self._lost())
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.fail(self._lost())
        self.parts.lost()
        for claim in self.claims.values():
            claim.is_in_flight = False
        self.claims.clear()
        self._cut_off()
        self.unanswered_bytes = 0
        self.on_lost(self)
        self.on_progress()

    def _cut_off(self) -> None:
        """End the consumers, whose queues are out of reach. Basic.cancel has no place for the reason: the log
        has it.
        """
        consumers, self.consumers = self.consumers, {}
        if consumers:
            queues = sorted({consumer.queue.name for consumer in consumers.values()})
            _log.warning(
                "worker.consumers_ended",
                reason=f"the way to {self.name}, which has their queues, is gone",
                consumers=len(consumers),
                queues=queues[: limits.QUEUES_TOLD_MAX],
            )
        for consumer in consumers.values():
            consumer.end()
            consumer.is_cut_off = True
            consumer.let_go(consumer.held_count)
            reason = f"the way to {self.name}, which has {consumer.queue.name!r}, is gone"
            consumer.sink.cancelled(consumer, reason)


_NO_TEMPLATE: Final = EnvelopeTemplate("")


def _settle_range(how: int, first: int, count: int, is_spared: bool = False, delay: int = -1) -> bytes:
    size = f.SETTLE_HEAD.size + f.RANGE.size
    head = f.SETTLE_HEAD.pack(size, f.SETTLE, how, is_spared, delay, 0)
    return head + f.RANGE.pack(first, count)


def plan_fields(plan: PublishPlan) -> tuple[Any, ...]:
    """Return what makes a plan, but for where it leads."""
    return (
        plan.topic,
        plan.properties_kind,
        plan.properties,
        plan.persistent,
        plan.options,
        plan.exchange,
    )


def lost(name: str) -> WorkerLost:
    """Return the refusal of what would need a worker that is gone."""
    return WorkerLost(f"{name}, which has the queue, is down or inaccessible")
