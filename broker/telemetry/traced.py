"""The client of the core for front-ends of a broker that traces: it notes what becomes of traced messages.

Calls that have nothing to do with messages go to the client behind it. Without telemetry front-ends have that
one themselves, and nothing here is on the way of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from broker.clock import Clock
from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.client.commits import CommitClient
from broker.engine.client.message_flow import ConsumingClient, PublishingClient, SettlingClient
from broker.engine.traffic import Claim, Consumer, Judgement, Message, PublishPlan, Sink, Source
from broker.telemetry.trace_context import Operation, Sampling, Span, Spans, TraceContext
from queue_manager.address import local_name
from queue_manager.options import PLAIN
from queue_manager.outcomes import ACCEPTED, REASONS
from storage.envelope import EnvelopeTemplate

_NS_PER_MS = 1_000_000


class TracedClient(ShardClient):
    """The client of a shard, with spans of traced messages."""

    def __init__(self, client: ShardClient, sampling: Sampling, spans: Spans, clock: Clock) -> None:
        vars(self).update(vars(client))
        notes = _Notes(sampling, spans, clock)
        self.publishing = cast(
            PublishingClient, _TracedPublishing(client.publishing, client.commits.beside, notes)
        )
        self.consuming = cast(ConsumingClient, _TracedConsuming(client.consuming, notes))
        self.settling = cast(SettlingClient, _TracedSettling(client.settling, notes))


class _Notes(NamedTuple):
    """Which messages are traced, where their spans go, and how long things take."""

    sampling: Sampling
    spans: Spans
    clock: Clock

    def ended(self, span: Span, begun: float, problem: str = "") -> None:
        """Note what began at a moment of the monotonic clock, and is done now."""
        took_ns = round(1e9 * (self.clock.monotonic() - begun))
        self.spans.add(replace(span, end_ns=span.start_ns + took_ns, problem=problem))


class _TracedPublishing:
    """As `PublishingClient`."""

    def __init__(self, publishing: PublishingClient, commits: CommitClient, notes: _Notes) -> None:
        self._publishing = publishing
        self._commits = commits
        self._notes = notes
        self._undurable: dict[int, tuple[list[Span], float]] = {}  # by the last token of their publishes
        self._refused: dict[int, int] = {}
        self._last_token = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publishing, name)

    def publish(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """See `PublishingClient.publish`. The span of what is durable ends when it is."""
        traced = self._traced(plan, bodies, now_ms, templates)
        if not traced:
            return self._publishing.publish(plan, bodies, now_ms, templates)
        act = partial(self._publishing.publish, plan, bodies, now_ms, templates)
        return self._note(traced, plan, len(bodies), act)

    def apply(self, judged: Judgement, now_ms: int) -> int:
        """See `PublishingClient.apply`; as `publish`."""
        traced = self._traced(judged.plan, list(judged.bodies), now_ms, None)
        if not traced:
            return self._publishing.apply(judged, now_ms)
        act = partial(self._publishing.apply, judged, now_ms)
        return self._note(traced, judged.plan, len(judged.bodies), act)

    def _note(self, traced: list[Span], plan: PublishPlan, count: int, act: Callable[[], int]) -> int:
        begun = self._notes.clock.monotonic()
        outcome = act()
        if outcome == ACCEPTED and plan.durable:
            tokens = list(range(self._last_token + 1, self._last_token + count + 1))
            self._last_token += count
            self._undurable[self._last_token] = traced, begun
            self._commits.wait_for(self, tokens)
        else:
            self._end(traced, begun, _problem(outcome))
        return outcome

    def committed(self, tokens: list[int]) -> None:
        problem = ""
        for token in tokens:
            if token in self._refused:
                problem = _problem(self._refused.pop(token))
            if token in self._undurable:
                self._end(*self._undurable.pop(token), problem)
                problem = ""

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `broker.engine.traffic.PublishWaiter`: the spans of all that was published at once tell it."""
        self._refused |= dict.fromkeys(tokens, outcome)

    def _traced(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None,
    ) -> list[Span]:
        of_each = [plan.template] if templates is None else templates
        contexts = [self._notes.sampling.context_of(template) for template in of_each]
        if not any(contexts):
            return []
        first_id = self._first_id(plan)
        found = []
        for index, context in enumerate(contexts):
            if context is not None:
                count = len(bodies) if templates is None else 1
                message_id = "" if first_id is None or count > 1 else _id_of(plan.queues[0], first_id + index)
                found.append(_of_publisher(context, plan, now_ms, count, len(bodies[index]), message_id))
        return found

    def _first_id(self, plan: PublishPlan) -> int | None:
        """Return the offset that the first message gets, where that can be told before."""
        if len(plan.queues) != 1 or plan.options is not PLAIN:
            return None
        return self._publishing.next_offset(plan.queues[0].name)

    def _end(self, traced: list[Span], begun: float, problem: str) -> None:
        for span in traced:
            self._notes.ended(span, begun, problem)


def _problem(outcome: int) -> str:
    return "" if outcome == ACCEPTED else REASONS.get(outcome, "no queue takes it")


def _of_publisher(
    context: TraceContext, plan: PublishPlan, now_ms: int, count: int, body_bytes: int, message_id: str
) -> Span:
    """Return the span, which has just begun, of messages of one trace."""
    attributes: dict[str, str | int] = {"messaging.message.body.size": body_bytes}
    if plan.template.topic:
        attributes["messaging.destination.template"] = plan.template.topic
    return Span(
        operation="publish",
        parent=context,
        queue=", ".join([local_name(queue.name) for queue in plan.queues]),
        start_ns=now_ms * _NS_PER_MS,
        message_id=message_id,
        count=count,
        attributes=attributes,
    )


class _Held(Protocol):
    """A claim of the local client, which knows its message."""

    @property
    def message(self) -> Message: ...


class _TracedConsuming:
    """As `ConsumingClient`."""

    def __init__(self, consuming: ConsumingClient, notes: _Notes) -> None:
        self._consuming = consuming
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consuming, name)

    def subscribe(
        self, queue: Source, group_name: str, pattern: str, sink: Sink, **options: Any
    ) -> Answer[Consumer]:
        traced = _TracedSink(sink, self._notes)
        return self._consuming.subscribe(queue, group_name, pattern, traced, **options)

    def puller(self, queue: Source, sink: Sink, consumer_id: str, **options: Any) -> Consumer:
        return self._consuming.puller(queue, _TracedSink(sink, self._notes), consumer_id, **options)


class _TracedSettling:
    """As `SettlingClient`."""

    def __init__(self, settling: SettlingClient, notes: _Notes) -> None:
        self._settling = settling
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settling, name)

    def ack(self, claims: Iterable[Claim], now_ms: int) -> int:
        return self._settle("ack", list(claims), now_ms, self._settling.ack)

    def requeue(
        self, claims: Iterable[Claim], now_ms: int, *, delay_ms: int | None = None, is_spared: bool = False
    ) -> int:
        """See `SettlingClient.requeue`."""

        def requeue(claims: list[Claim], now_ms: int) -> int:
            return self._settling.requeue(claims, now_ms, delay_ms=delay_ms, is_spared=is_spared)

        return self._settle("nack", list(claims), now_ms, requeue)

    def reject(self, claims: Iterable[Claim], now_ms: int) -> int:
        return self._settle("reject", list(claims), now_ms, self._settling.reject)

    def _settle(
        self,
        operation: Operation,
        claims: list[Claim],
        now_ms: int,
        settle: Callable[[list[Claim], int], int],
    ) -> int:
        traced: list[Span] = []
        for claim in claims:
            message = cast(_Held, claim).message
            context = self._notes.sampling.context_of(message.template)
            holder = self._settling.holder(claim) if context is not None and claim.is_in_flight else None
            if context is not None and holder is not None:
                traced.append(_of_consumer(operation, context, holder, message, claim.attempts, now_ms))
        begun = self._notes.clock.monotonic()
        settled = settle(claims, now_ms)
        for span in traced:
            self._notes.ended(span, begun)
        return settled


class _TracedSink:
    """As `Sink`, before another one."""

    __slots__ = ("_notes", "_sink", "cancelled", "revoked")

    def __init__(self, sink: Sink, notes: _Notes) -> None:
        self._sink = sink
        self._notes = notes
        self.revoked = sink.revoked
        self.cancelled = sink.cancelled

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        notes = self._notes
        begun = notes.clock.monotonic()
        # of what is settled by being sent nothing is left afterwards
        attempts = [1] * len(messages) if claims is None else [claim.attempts for claim in claims]
        done = self._sink.deliver(consumer, messages, claims)
        for message, attempt in zip(messages, attempts, strict=True):
            context = notes.sampling.context_of(message.template)
            if context is not None and done:
                now_ms = notes.clock.now_ms()
                notes.ended(_of_consumer("deliver", context, consumer, message, attempt, now_ms), begun)
        return done


def _of_consumer(
    operation: Operation,
    context: TraceContext,
    consumer: Consumer,
    message: Message,
    attempts: int,
    now_ms: int,
) -> Span:
    group = consumer.group
    return Span(
        operation=operation,
        parent=context,
        queue=group.queue_name,
        start_ns=now_ms * _NS_PER_MS,
        message_id=f"{group.queue_name}:{message.offset}",
        attributes={"messaging.consumer.group.name": group.group_id, "sluicemq.attempts": attempts},
    )


def _id_of(queue: Source, offset: int) -> str:
    return f"{local_name(queue.name)}:{offset}"
