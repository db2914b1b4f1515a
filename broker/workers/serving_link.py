"""The serving end of a link: another worker's calls, on the shard of this one."""

from __future__ import annotations

import asyncio
import inspect
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from broker.clock import Clock
from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.elsewhere import FarPlan
from broker.engine.shard_ending import WorkerLost
from broker.engine.traffic import Claim, Consumer, Group, Message, PublishPlan, Targets
from broker.workers import link_frames as f
from broker.workers.far_topics import ServedTopic, Topics
from broker.workers.link_calls import CALLS
from broker.workers.link_codec import NotCarried, Unknown, Unreadable, number_of
from broker.workers.link_greeting import Greeting, LinkRefused, heard
from broker.workers.link_values import CODEC
from broker.workers.link_wire import LinkWire
from broker.workers.remote_consumers import RemoteGroup
from config import limits
from queue_manager.errors import PreconditionFailed, QueueManagerError
from queue_manager.outcomes import ACCEPTED, UNROUTED, why_not
from storage.envelope import EnvelopeTemplate, decode_envelope, vary
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.workers")

_CHANGES: Final = frozenset(
    (
        "declare", "configure", "delete", "purge", "bind", "unbind", "pause", "resume", "set", "clear",
        "commit", "rewind", "store_offset", "forget", "keep", "adopt",
    )
)  # fmt: skip
"""Calls whose results the other worker is told when they are durable."""

_ANSWERED: Final = (f.CALL, f.SUBSCRIBE, f.PULLER, f.FIND_CLAIM, f.PUBLISH_ALL)


class Service:
    """What links of other workers are served with.

    `number` is this worker's. `parts` are what may be called, by name. `topics` are the subscribers of
    topics. `want_settle` has the shard's turn ended.
    """

    def __init__(
        self, number: int, client: ShardClient, clock: Clock, parts: Mapping[str, Any], topics: Topics
    ) -> None:
        self.number = number
        self.client = client
        self.clock = clock
        self.parts = parts
        self.topics = topics
        self.want_settle: Callable[[], None] = lambda: None
        self.on_gone: Callable[[int], None] = lambda number: None
        self.served: dict[Served, None] = {}


class Served(LinkWire):
    """The link of one other worker, at the worker that is asked.

    `_taken_count` are the publishes so far, `_waiting_count` the commits that are to be told of.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service) -> None:
        super().__init__(loop)
        self.epoch = 0
        self._service = service
        self.client = service.client
        self._now_ms = service.clock.now_ms
        self._plans: dict[int, _ServedPlan | ServedTopic] = {}
        self._taken_count = 0
        self._waiting_count = 0
        self._consumers: dict[int, Consumer] = {}
        self._sinks: dict[int, LinkSink] = {}
        self._claims: dict[int, Claim] = {}
        self._numbers: dict[Claim, int] = {}
        self._next_claim = 1
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._service.served[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        """Take back what the other worker holds: it is gone."""
        self.transport = None
        self._service.served.pop(self, None)
        for task in self._tasks:
            task.cancel()
        now_ms = self._now_ms()
        consuming = self.client.consuming
        for consumer in self._consumers.values():
            consumer.pause()
        if self._claims:
            self.client.settling.requeue(list(self._claims.values()), now_ms, delay_ms=0)
        for consumer in self._consumers.values():
            consuming.unsubscribe(consumer, now_ms)
        self._claims.clear()
        self._numbers.clear()
        self._consumers.clear()
        if all(other.number != self.number for other in self._service.served):
            self._service.on_gone(self.number)
        self._service.want_settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        for consumer in self._consumers.values():
            consumer.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        for number, consumer in self._consumers.items():
            if not self._sinks[number].is_paused:
                consumer.resume()
                self.client.consuming.wake(consumer)
        self._service.want_settle()

    # frames

    def take(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind == f.PUBLISH:
            self._publish(data, at)
        elif kind == f.SETTLE:
            self._settle(data, at)
        elif kind == f.CONSUMER:
            _, _, number, what, value = f.CONSUMER_FRAME.unpack_from(data, at)
            self._told(number, what, value)
        elif kind == f.PUBLISH_VARIED:
            self._publish_varied(data, at)
        elif kind == f.BARRIER:
            self._barrier(f.BARRIER_FRAME.unpack_from(data, at)[2])
        else:
            self._read(kind, data, at, end)

    def _read(self, kind: int, data: bytes, at: int, end: int) -> None:
        try:
            fields = self._reader.fields(data, at, end)
        except Unknown as error:
            number = number_of(data, at, end)
            if kind not in _ANSWERED or number is None or self.version < 0:
                raise
            self._tell(number, NotCarried(f"the other worker does not know this: {error}"))
            return
        if self.version >= 0:
            self._take_rare(kind, fields)
        elif kind == f.HELLO:
            self._greet(*fields)
        else:
            raise Unreadable("no greeting comes first")

    def _greet(self, told: Any) -> None:
        other, own = heard(told), Greeting(self._service.number, CODEC.table)
        self.number = other.worker
        try:
            self.meet(own, other)
        except LinkRefused as error:
            _log.error("worker.link_refused", worker=self.number, reason=error.reason)
            self.send(CODEC.frame(f.UNWELCOME, error.reason))
            self.flush()
            if self.transport is not None:
                self.transport.close()
            return
        self.send(CODEC.frame(f.WELCOME, own.told()))
        self.epoch = other.epoch
        for served in list(self._service.served):
            if served is self or served.number != self.number:
                continue
            older = served
            if served.epoch != self.epoch:  # of two workers of one shard it is the later owner
                older = min(self, served, key=lambda each: each.epoch)
                _log.warning("worker.outdated", worker=self.number, epoch=older.epoch)
            if older.transport is not None:  # what it has yet to bring is older than what a new one tells
                older.transport.abort()

    def taken(self) -> None:
        self._service.want_settle()

    def _take_rare(self, kind: int, fields: Any) -> None:
        if kind == f.CALL:
            self._call(*fields)
        elif kind == f.PLAN:
            self._plan(*fields)
        elif kind == f.TOPIC_PLAN:
            number, *told = fields
            self._plans[number] = ServedTopic(self._service.topics, FarPlan.heard(self.number, *told))
        elif kind in (f.SUBSCRIBE, f.PULLER):
            self._answer(fields[0], Answer.of(partial(self._consume, kind, *fields[1:])))
        elif kind == f.AMEND:
            self._amend(*fields)
        elif kind == f.FIND_CLAIM:
            self._answer(fields[0], Answer.of(partial(self._find_claim, *fields[1:])))
        elif kind == f.PUBLISH_ALL:
            self._publish_all(*fields)
        elif kind == f.REPLIES:
            self._service.parts["replies"].give(*fields)
        else:
            raise Unreadable(f"a frame of kind {kind}")

    # calls

    def _call(
        self, number: int, part: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        if method not in CALLS.get(part, ()):
            self._tell(number, NotCarried(f"there is no call {part}.{method} at the other worker"))
            return
        called = self._service.parts.get(part)
        if called is None:
            self._tell(number, WorkerLost(f"the other worker has no part {part} yet"))
            return
        result = Answer.of(lambda: getattr(called, method)(*arguments, **named))
        if not result.is_done:
            raise AssertionError("a call comes to something")
        try:
            value = result.result()
        except QueueManagerError as error:
            self._tell(number, error)
            return
        if inspect.isawaitable(value) and not isinstance(value, Answer):
            task = self._loop.create_task(self._await(number, value))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        answer = value if isinstance(value, Answer) else Answer.given(value)
        answer.then(partial(self._called, number, method in _CHANGES))

    async def _await(self, number: int, value: Any) -> None:
        try:
            self._tell(number, await value)
        except (QueueManagerError, StorageError) as error:
            self._tell(number, error)
        self._service.want_settle()

    def _called(self, number: int, is_change: bool, answer: Answer[Any]) -> None:
        if is_change:
            self.client.commits.wait(_Told(lambda: self._answer(number, answer)), 0)
            self._service.want_settle()
        else:
            self._answer(number, answer)

    def _answer(self, number: int, answer: Answer[Any]) -> None:
        try:
            self._tell(number, answer.result())
        except (QueueManagerError, StorageError) as error:
            self._tell(number, error)

    def _tell(self, number: int, value: Any) -> None:
        try:
            frame = CODEC.frame(f.RESULT, number, value)
        except NotCarried as error:
            _log.error("worker.not_carried", worker=self.number, reason=error.reason)
            frame = CODEC.frame(f.RESULT, number, error)
        self.send(frame)

    # publishing

    def _plan(
        self,
        number: int,
        queues: Sequence[str],
        topic: str,
        kind: int,
        properties: bytes,
        persistent: bool,
        options: Any,
        exchange: str,
    ) -> None:
        publishing = self.client.publishing
        plan = publishing.plan(topic, kind, properties, persistent, options, exchange)
        self._plans[number] = _ServedPlan(plan, queues)

    def _publish(self, data: bytes, at: int) -> None:
        _, _, number, count, size = f.PUBLISH_HEAD.unpack_from(data, at)
        bodies, _ = f.take_bodies(data, at + f.PUBLISH_HEAD.size, count, size)
        self._take(self._plans[number], bodies, None)

    def _publish_varied(self, data: bytes, at: int) -> None:
        _, _, number, count, size = f.PUBLISH_HEAD.unpack_from(data, at)
        at += f.PUBLISH_HEAD.size
        (own_size,) = struct.unpack_from("<I", data, at)
        persistent = [flag != 0 for flag in data[at + 4 : at + 4 + count]]
        properties, at = f.take_bodies(data, at + 4 + count, count, own_size)
        bodies, _ = f.take_bodies(data, at, count, size)
        served = self._plans[number]
        assert isinstance(served, _ServedPlan)
        served.aim(self.client.publishing)  # what is stored with a message says whether queues share it
        self._take(served, bodies, vary(served.plan.template, properties, persistent))

    def _take(
        self, served: _ServedPlan | ServedTopic, bodies: list[bytes], templates: list[EnvelopeTemplate] | None
    ) -> None:
        """Publish messages; what is refused of them is told by its number."""
        first = self._taken_count + 1
        self._taken_count += len(bodies)
        if isinstance(served, ServedTopic):
            for index, outcome in served.publish(bodies):
                self._refuse(first + index, outcome)
            self._confirm(served.is_stored)
            return
        publishing = self.client.publishing
        served.aim(publishing)
        plan = served.plan
        now_ms = self._now_ms()
        outcome = self._outcome(plan, bodies, now_ms, templates)
        if outcome not in (ACCEPTED, UNROUTED) and len(bodies) > 1:  # part of them may fit
            for index, body in enumerate(bodies):
                own = None if templates is None else templates[index : index + 1]
                self._refuse(first + index, self._outcome(plan, [body], now_ms, own))
        else:
            self._refuse(first, outcome)
        self._confirm(plan.durable)

    def _publish_all(self, number: int, publishes: Sequence[Any]) -> None:
        """Publish messages of several plans, or none of them; the answer is durable."""
        publishing, now_ms = self.client.publishing, self._now_ms()

        def apply() -> None:
            wanted = []
            for queues, *fields, bodies, properties in publishes:
                served = _ServedPlan(publishing.plan(*fields), queues)
                served.aim(publishing)
                templates = properties and vary(served.plan.template, *zip(*properties, strict=True))
                wanted.append((served.plan, bodies, templates))
            judged = publishing.judge(wanted, now_ms)
            if judged and judged[-1].outcome != ACCEPTED:
                raise PreconditionFailed(why_not(judged[-1]))
            for one in judged:
                publishing.apply(one, now_ms)

        self._called(number, True, Answer.of(apply))

    def _outcome(
        self, plan: PublishPlan, bodies: list[bytes], now_ms: int, templates: list[EnvelopeTemplate] | None
    ) -> int:
        try:
            return self.client.publishing.publish(plan, bodies, now_ms, templates)
        except QueueManagerError as error:
            _log.warning("worker.publish_refused", worker=self.number, reason=error.reason)
            return UNROUTED

    def _refuse(self, number: int, outcome: int) -> None:
        if outcome not in (ACCEPTED, UNROUTED):
            self.send(f.REFUSED_FRAME.pack(f.REFUSED_FRAME.size, f.REFUSED, number, outcome))

    def _barrier(self, number: int) -> None:
        self._taken_count += 1
        consumer = self._consumers.get(number)
        if consumer is not None:
            self.client.settling.write_soon(consumer.group)
        self._confirm(True)

    def _confirm(self, durable: bool) -> None:
        if durable or self._waiting_count:
            self._waiting_count += self.client.commits.wait_up_to(self, self._taken_count)
        else:
            self.send(f.ACK_FRAME.pack(f.ACK_FRAME.size, f.ACK, self._taken_count))

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`: everything up to the last token is durable."""
        self._waiting_count -= 1
        if self.is_up:
            self.send(f.ACK_FRAME.pack(f.ACK_FRAME.size, f.ACK, tokens[-1]))

    # consuming

    def _consume(self, kind: int, number: int, queue: str, *asked: Any) -> RemoteGroup:
        consuming = self.client.consuming
        source = consuming.find(queue)
        sink = LinkSink(self, number)
        if kind == f.PULLER:
            consumer_id, options = asked
            sink.is_puller = True
            consumer = consuming.puller(source, sink, consumer_id, **options)
        else:
            group, pattern, options = asked
            if options.pop("is_activity_told"):
                options["on_activity"] = lambda active: self._news(number, active=active)
            if options.pop("has_link_credit"):
                sink.credit = consuming.link_credit(lambda: self._news(number, dried=True))
                options["pool"] = sink.credit
            answer: Any = consuming.subscribe(source, group, pattern, sink, **options)
            consumer = answer.result() if isinstance(answer, Answer) else answer
        sink.is_stream = source.policy.stream
        self._consumers[number] = consumer
        self._sinks[number] = sink
        if self.is_full:
            consumer.pause()
        return self._group(consumer, durable=getattr(source, "durable", False))

    def _group(self, consumer: Consumer, *, durable: bool) -> RemoteGroup:
        group: Group = consumer.group
        primary_group = self.client.consuming.primary_group(consumer)
        return RemoteGroup(group.name, group.group_id, group.queue_name, primary_group, durable)

    def _news(self, number: int, **news: Any) -> None:
        self.send(CODEC.frame(f.TOLD, number, news))

    def _told(self, number: int, what: int, value: int) -> None:
        consumer = self._consumers.get(number)
        if consumer is None:
            if what in (f.PULL, f.PULL_NO_ACK):
                self._tell(value >> 32, 0)
            return
        consuming, sink = self.client.consuming, self._sinks[number]
        if what in (f.PULL, f.PULL_NO_ACK):
            self._pull(consumer, value >> 32, value & 0xFFFFFFFF, no_ack=what == f.PULL_NO_ACK)
        elif what == f.PAUSE:
            sink.is_paused = True
            consumer.pause()
        elif what == f.RESUME:
            sink.is_paused = False
            if not self.is_full:
                consumer.resume()
                consuming.wake(consumer)
        elif what == f.WAKE:
            consuming.wake(consumer)
        elif what == f.CREDIT:
            consuming.set_credit(consumer, value)
        elif what == f.LINK_CREDIT:
            assert sink.credit is not None
            sink.credit.set(max(0, value - sink.given_count))
            consuming.wake(consumer)
        elif what == f.DRAIN:
            assert sink.credit is not None
            sink.credit.drain()
        elif what == f.ECHO:
            self._news(number, echo=value)
        elif what == f.LATE:
            consumer.came_late()
        elif what == f.PACE:
            consumer.pace(value)
        else:
            self._end(number, consumer, value, keep_claims=what == f.END_KEEPING)

    def _end(self, number: int, consumer: Consumer, unseen: int, *, keep_claims: bool) -> None:
        """End a consumer. Claims from the number `unseen` on, if that is told, have not come to its worker:
        they return without an attempt.
        """
        del self._consumers[number]
        self._sinks.pop(number)
        if not keep_claims:
            held = self._forget_claims(consumer)
            if on_their_way := [claim for n, claim in held.items() if unseen and n >= unseen]:
                consumer.pause()
                self.client.settling.unclaim(on_their_way, self._now_ms())
        self.client.consuming.unsubscribe(consumer, self._now_ms(), keep_claims=keep_claims)

    def _forget_claims(self, consumer: Consumer) -> dict[int, Claim]:
        """Forget the claims of a consumer that ended; gives them by their numbers."""
        holder = self.client.settling.holder
        held = {number: claim for number, claim in self._claims.items() if holder(claim) is consumer}
        for number, claim in held.items():
            del self._claims[number]
            self._numbers.pop(claim, None)
        return held

    def _pull(self, consumer: Consumer, number: int, count: int, *, no_ack: bool) -> None:
        pulled = self.client.consuming.pull(consumer, no_ack, self._now_ms(), count)
        pulled.then(partial(self._answer, number))

    def hold(self, claims: Sequence[Claim]) -> int:
        """Give numbers to claims; the first."""
        first = self._next_claim
        self._next_claim = end = first + len(claims)
        self._claims.update(zip(range(first, end), claims, strict=True))
        self._numbers.update(zip(claims, range(first, end), strict=True))
        return first

    def revoke(self, consumer: int, claims: Sequence[Claim], *, ends_late: bool) -> None:
        """Tell the other worker of claims whose leases ended."""
        numbers = [number for claim in claims if (number := self._numbers.pop(claim, None)) is not None]
        for number in numbers:
            del self._claims[number]
        self.send(CODEC.frame(f.REVOKED, consumer, numbers, ends_late))

    def cancel(self, number: int, consumer: Consumer, reason: str) -> None:
        """Tell the other worker that a consumer ended with its queue."""
        self._consumers.pop(number, None)
        self._sinks.pop(number, None)
        self._forget_claims(consumer)
        self.send(CODEC.frame(f.CANCELLED, number, reason))

    def _settle(self, data: bytes, at: int) -> None:
        _, _, how, is_spared, delay, count = f.SETTLE_HEAD.unpack_from(data, at)
        at += f.SETTLE_HEAD.size
        numbers: Sequence[int]
        if count:
            numbers = struct.unpack_from(f"<{count}Q", data, at)
        else:
            first, count = f.RANGE.unpack_from(data, at)
            if first + count > self._next_claim:
                raise Unreadable(f"claims up to {first + count}, of which none was given")
            numbers = range(first, first + count)
        settling, now_ms = self.client.settling, self._now_ms()
        if how == f.EXTEND:
            for number in numbers:
                if number in self._claims:
                    settling.extend(self._claims[number], delay, now_ms)
            return
        pop = self._claims.pop
        claims = [claim for number in numbers if (claim := pop(number, None)) is not None]
        for claim in claims:
            self._numbers.pop(claim, None)
        delay_ms = None if delay < 0 else delay
        if not claims:
            return
        if how == f.DONE:
            settling.ack(claims, now_ms)
        elif how == f.REQUEUE:
            settling.requeue(claims, now_ms, delay_ms=delay_ms, is_spared=bool(is_spared))
        elif how == f.REJECT:
            settling.reject(claims, now_ms)
        elif how == f.RELEASE:
            settling.release(claims, now_ms, delay_ms=delay_ms)
        else:
            settling.unclaim(claims, now_ms)

    def _amend(self, numbers: Sequence[int], envelopes: Sequence[bytes]) -> None:
        for number, envelope in zip(numbers, envelopes, strict=True):
            claim = self._claims.get(number)
            if claim is not None:
                _, _, template = decode_envelope(envelope)
                self.client.settling.amend([claim], partial(_instead, template))

    def _find_claim(self, queue: str, group_id: str, offset: int) -> tuple[int, int, RemoteGroup]:
        source = self.client.consuming.find(queue)
        claim = self.client.settling.find_claim(source, group_id, offset).result()
        number = self._numbers.get(claim) or self.hold([claim])
        group = self.client.settling.durable_group_of(claim)
        told = RemoteGroup(group_id, group_id, queue, "", group is not None)
        return number, claim.attempts, told


def _instead(changed: EnvelopeTemplate, template: EnvelopeTemplate) -> EnvelopeTemplate:
    return changed


class _ServedPlan:
    """A plan of another worker's publishers, aimed at queues of this one."""

    __slots__ = ("_names", "_targets", "plan")

    def __init__(self, plan: PublishPlan, names: Sequence[str]) -> None:
        self.plan = plan
        self._names = names
        self._targets: list[Targets] = []

    def aim(self, publishing: Any) -> None:
        """Aim it anew if one of the queues is gone, or came."""
        targets = self._targets
        if targets and all(target.is_current for target in targets):
            return
        self._targets = targets = [publishing.named(name) for name in self._names]
        publishing.aim(self.plan, targets[0] if len(targets) == 1 else publishing.joined(targets))


class _Told:
    """A waiter that makes one call."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def committed(self, tokens: list[int]) -> None:
        self._call()


class LinkSink:
    """The sink of one consumer of another worker. Implements `broker.engine.traffic.Sink`.

    `given_count` are the messages it was given, by which the other worker counts credit.
    """

    __slots__ = (
        "_number", "_served", "_told", "consumer", "credit", "given_count", "is_paused", "is_puller",
        "is_stream",
    )  # fmt: skip

    def __init__(self, served: Served, number: int) -> None:
        self._served = served
        self._number = number
        self._told: dict[str, int] = {}
        self.credit: Any = None
        self.given_count = 0
        self.is_paused = False
        self.is_puller = False
        self.is_stream = False

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        """See `Sink`: what is alike goes as a run."""
        served = self._served
        if not served.is_up:
            return False
        is_new = claims is None or claims[0].attempts == 1
        if self.is_puller or self.is_stream:
            self._tell_news(consumer, is_new=is_new)
        self.given_count += len(messages)
        first_claim = 0 if claims is None or consumer.no_ack else served.hold(claims)
        if is_new and _are_alike(messages):
            self._deliver_run(messages, first_claim)
        else:
            self._deliver(consumer, messages, claims, first_claim)
        return True

    def _deliver_run(self, messages: Sequence[Message], first_claim: int) -> None:
        first = messages[0]
        envelope = first.envelope()
        bodies = [message.body or b"" for message in messages]
        size, follows = f.sizes_of(bodies)
        served = self._served
        length = f.RUN_HEAD.size + len(envelope) + follows
        count = len(messages)
        if length > limits.LINK_FRAME_BYTES_MAX and count > 1:
            half = count // 2
            self._deliver_run(messages[:half], first_claim)
            self._deliver_run(messages[half:], first_claim and first_claim + half)
            return
        served.output.append(
            f.RUN_HEAD.pack(
                length,
                f.DELIVER_RUN,
                self._number,
                first_claim,
                first.message_id,
                count,
                size,
                len(envelope),
            )
        )
        served.output.append(envelope)
        f.put_bodies(served.output, bodies, size)
        served.want_flush()

    def _deliver(
        self,
        consumer: Consumer,
        messages: Sequence[Message],
        claims: Sequence[Claim] | None,
        first_claim: int,
    ) -> None:
        count = len(messages)
        attempts = [1] * count if claims is None else [claim.attempts for claim in claims]
        failed = [-1] * count
        if claims is not None and attempts[0] > 1:
            failed_attempts = self._served.client.consuming.failed_attempts
            failed = [-1 if (n := failed_attempts(consumer, claim)) is None else n for claim in claims]
        output: list[bytes] = [
            struct.pack(f"<{count}Q", *[message.message_id for message in messages]),
            struct.pack(f"<{count}I", *attempts),
            struct.pack(f"<{count}i", *failed),
        ]
        f.put_bodies(output, [message.envelope() for message in messages], 0)
        f.put_bodies(output, [message.body or b"" for message in messages], 0)
        length = f.DELIVER_HEAD.size + sum(map(len, output))
        if length > limits.LINK_FRAME_BYTES_MAX and count > 1:
            half = count // 2
            self._deliver(consumer, messages[:half], claims and claims[:half], first_claim)
            later = first_claim and first_claim + half
            self._deliver(consumer, messages[half:], claims and claims[half:], later)
            return
        head = f.DELIVER_HEAD.pack(length, f.DELIVER, self._number, first_claim, count)
        self._served.output += [head, *output]
        self._served.want_flush()

    def _tell_news(self, consumer: Consumer, *, is_new: bool) -> None:
        """Tell, before a delivery, what the other worker shows with it: a gap only with a first one, for it
        lies behind what came back.
        """
        consuming = self._served.client.consuming
        gap = 0
        if self.is_puller:
            news = {"ready": consuming.ready_count(consumer)}
        else:
            news = {"committed": consuming.primary_committed(consumer)}
            gap = consuming.take_gap(consumer) if is_new else 0
        if gap or news != self._told:
            self._told = news
            told = {**news, "gap": gap} if gap else news
            self._served.send(CODEC.frame(f.TOLD, self._number, told))

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """See `Sink`."""
        ends_late = self._served.client.consuming.ends_late(consumer)
        self._served.revoke(self._number, claims, ends_late=ends_late)

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `Sink`."""
        self._served.cancel(self._number, consumer, reason)


def _are_alike(messages: Sequence[Message]) -> bool:
    """Return whether messages were published alike and together, one behind the other."""
    first = messages[0]
    if len(messages) == 1:
        return True
    last = messages[-1]
    span = len(messages) - 1
    template, at_ms = first.template, first.received_at_ms
    return (
        last.offset - first.offset == span
        and last.message_id - first.message_id == span
        and all(one.template is template and one.received_at_ms == at_ms for one in messages)
    )
