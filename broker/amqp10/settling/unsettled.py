"""The messages that a session's client was given and has not settled, by delivery ID."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from broker.amqp10.connection.amqp10_session import Session
from broker.clients.client_consumers import Consumers
from broker.engine.traffic import Claim, Consumer
from broker.properties.amqp10_sections import DEATHS, DELIVERY_TIME, EXCHANGE, ROUTING_KEY
from broker.properties.templates import annotated
from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10.amqp_session import ahead
from protocols.amqp10.errors import SESSION, AmqpError
from protocols.amqp10.events import DispositionRun
from protocols.amqp10.hot import RELEASED, ranges_of
from protocols.amqp10.types import Symbol
from storage.envelope import EnvelopeTemplate

_MASK: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31
_RETURNED: Final = p.Released()
_BROKERS_OWN: Final = frozenset((DEATHS, EXCHANGE, ROUTING_KEY))  # annotations that no client gives


class Unsettled:
    """Claims by delivery ID, in order of delivery."""

    __slots__ = ("_claims", "_consumers", "_hub", "_session", "_settling")

    def __init__(self, session: Session, consumers: Consumers) -> None:
        self._session = session
        self._consumers = consumers
        self._hub = session.hub
        self._settling = session.core.settling
        self._claims: dict[int, Claim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, first_id: int, claims: Sequence[Claim]) -> None:
        """Take deliveries with IDs from the first on."""
        last_id = first_id + len(claims) - 1
        if last_id <= _MASK:
            self._claims.update(zip(range(first_id, last_id + 1), claims, strict=True))
        else:
            for number, claim in enumerate(claims, first_id):
                self._claims[number & _MASK] = claim

    def settle(self, run: DispositionRun) -> None:
        """Act on what the client says of deliveries; raises AmqpError for a state that is none.

        What it does not settle itself is told it is settled (second settle mode). Deliveries that are not
        known any more are passed over.
        """
        state = run.state
        if state is None or type(state) is p.Received:
            if not run.settled:
                return
            state = _RETURNED  # the default outcome that was told
        self.check(state)
        claims = self.take(run.ranges)
        if claims:
            self.act(state, list(claims.values()))
        if not run.settled:
            session = self._session
            session.connection.settle(session.channel, run.ranges, state, role=c.SENDER)
            session.transport.want_answer()

    def check(self, state: Any) -> None:
        """Raise AmqpError if a state is no outcome."""
        if type(state) not in (p.Accepted, p.Rejected, p.Released, p.Modified):
            raise AmqpError(c.INVALID_FIELD, f"{type(state).__name__} is no outcome here", SESSION)
        if type(state) is p.Modified and state.message_annotations:
            _check_annotations(state.message_annotations)

    def act(self, state: Any, claims: list[Claim]) -> None:
        """Settle claims with an outcome."""
        kind = type(state)
        settling = self._settling
        now_ms = self._hub.clock.now_ms()
        if kind is p.Modified and state.message_annotations:
            settling.amend(claims, _annotating(state.message_annotations))
        late = 0
        if kind is p.Accepted:
            late = settling.ack(claims, now_ms)
        elif kind is p.Rejected or (kind is p.Modified and state.undeliverable_here):
            late = settling.reject(claims, now_ms)
        elif kind is p.Modified and state.delivery_failed:
            late = settling.requeue(claims, now_ms, delay_ms=_delay_ms(state, now_ms))
        else:
            late = settling.release(claims, now_ms, delay_ms=_delay_ms(state, now_ms))
        if late:
            self._hub.counters.settle_late(late)

    def forget(self, claims: Sequence[Claim]) -> None:
        """Forget claims whose leases ended, and tell the client, which does not have them any more."""
        session = self._session
        gone = set(map(id, claims))
        numbers = []
        for number, claim in self._claims.items():
            if id(claim) in gone:
                numbers.append(number)
                if len(numbers) == len(gone):
                    break  # they are mostly the oldest
        for number in numbers:
            del self._claims[number]
        session.connection.settle(session.channel, ranges_of(numbers), RELEASED, role=c.SENDER)
        session.transport.want_flush()

    def take(self, ranges: Iterable[tuple[int, int]]) -> dict[int, Claim]:
        """Take deliveries, as far as they are known."""
        taken: dict[int, Claim] = {}
        for first, last in ranges:
            taken.update(self._take(first, last))
        return taken

    def restore(self, claims: dict[int, Claim]) -> list[Claim]:
        """Have deliveries unsettled again that were taken; gives those whose link is gone meanwhile."""
        gone = []
        for number, claim in claims.items():
            if not claim.is_in_flight:
                continue
            if self._consumers.holds(claim):
                self._claims[number] = claim
            else:
                gone.append(claim)
        if self._claims:
            one = next(iter(self._claims))
            self._claims = dict(sorted(self._claims.items(), key=lambda item: ahead(item[0], one)))
        return gone

    def take_of(self, consumer: Consumer) -> list[Claim]:
        """Take what a consumer was given, in order: it ends."""
        holder = self._settling.holder
        mine = [number for number, claim in self._claims.items() if holder(claim) is consumer]
        return [self._claims.pop(number) for number in mine]

    def take_all(self) -> dict[Consumer | None, list[Claim]]:
        """Take everything, in order, by the consumers that were given it: the session ends."""
        holder = self._settling.holder
        held: dict[Consumer | None, list[Claim]] = {}
        for claim in self._claims.values():
            held.setdefault(holder(claim), []).append(claim)
        self._claims.clear()
        return held

    def _take(self, first: int, last: int) -> list[tuple[int, Claim]]:
        """Take a range, looking at no more numbers than there are deliveries."""
        claims = self._claims
        if first == last or not claims:
            claim = claims.pop(first, None)
            return [] if claim is None else [(first, claim)]
        count = (last - first & _MASK) + 1
        if count <= _HALF:
            oldest, newest = next(iter(claims)), next(reversed(claims))
            first = oldest if ahead(first, oldest) < 0 else first
            last = newest if ahead(last, newest) > 0 else last
            count = ahead(last, first) + 1
        if count <= len(claims):
            wrapped = (number & _MASK for number in range(first, first + count))
            numbers = [number for number in wrapped if number in claims]
        else:
            numbers = [number for number in claims if (number - first & _MASK) < count]
        return [(number, claims.pop(number)) for number in numbers]


def _check_annotations(annotations: dict[Any, Any]) -> None:
    """Raise AmqpError for keys that no annotation of a message can have."""
    for name in annotations:
        if type(name) is not Symbol or not name.startswith("x-"):
            raise AmqpError(
                c.INVALID_FIELD,
                f"{str(name)[:64]!r}: an annotation's name is a symbol that begins with x-",
                SESSION,
            )


def _delay_ms(state: Any, now_ms: int) -> int | None:
    """Return how long deliveries are to wait by the annotation of `modified` that says when they are due;
    None: it says nothing.
    """
    if type(state) is not p.Modified or not state.message_annotations:
        return None
    due_ms = state.message_annotations.get(DELIVERY_TIME)
    if not isinstance(due_ms, int) or isinstance(due_ms, bool):
        return None
    return min(max(due_ms - now_ms, 0), limits.DURATION_MS_MAX)


def _annotating(annotations: dict[Any, Any]) -> Callable[[EnvelopeTemplate], EnvelopeTemplate]:
    """Return what adds annotations to messages: one template for all that had one."""
    added = {str(name): value for name, value in annotations.items() if name not in _BROKERS_OWN}
    made: dict[int, tuple[EnvelopeTemplate, EnvelopeTemplate]] = {}

    def annotate(template: EnvelopeTemplate) -> EnvelopeTemplate:
        known = made.get(id(template))
        if known is None:
            known = made[id(template)] = (template, annotated(template, added))
        return known[1]

    return annotate
