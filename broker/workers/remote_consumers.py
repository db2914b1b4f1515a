"""Consumers of queues that other workers have, as the front-ends of this one see them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple, Protocol

from broker.engine.traffic import Sink
from broker.workers import link_frames as f
from queue_manager.claims.claim import CreditPool
from queue_manager.claims.places import LinkCredit, Places
from queue_manager.model import Message
from queue_manager.routing.route import ForeignQueue


class Asked(Protocol):
    """The link to the worker that has the queue."""

    def tell(self, consumer: int, what: int, value: int = 0) -> None:
        """Tell it about a consumer: one of the constants of CONSUMER in `link_frames`."""

    def settle(self, how: int, claims: Sequence[RemoteClaim]) -> None:
        """Tell it what became of claims."""

    def return_waiting(self, consumer: RemoteConsumer) -> None:
        """Give back what waits for a consumer."""


class RemoteGroup(NamedTuple):
    """The consumer group of a consumer. Implements `broker.engine.traffic.Group`."""

    name: str
    group_id: str
    queue_name: str
    primary_group: str
    durable: bool


class RemoteClaim:
    """A message that was handed to a consumer of this worker. Implements `broker.engine.traffic.Claim`.

    `failed`: how many earlier attempts count, in a quorum queue; -1 in others. `message`: for who changes
    what it has beside its body.
    """

    __slots__ = ("attempts", "consumer", "failed", "is_in_flight", "message", "number")

    def __init__(
        self, consumer: RemoteConsumer, number: int, message: Message, attempts: int = 1, failed: int = -1
    ) -> None:
        self.consumer = consumer
        self.number = number
        self.message = message
        self.attempts = attempts
        self.failed = failed
        self.is_in_flight = True


@dataclass(eq=False, slots=True)
class RemoteConsumer:
    """One consumer of a queue of another worker. Implements `broker.engine.traffic.Consumer`.

    That worker gives it messages by `credit_max`. Where it shares a limit with others, `pool`, what comes
    beyond that waits here, in `waiting`; it is given back, for others to take it, and from then on the credit
    there is `told_credit`: what it holds, and what the limit has room for. `gap`, `committed`, `position` and
    `ready` are what that worker told with the last delivery.
    """

    link: Asked
    number: int
    queue: ForeignQueue
    sink: Sink
    _: KW_ONLY
    no_ack: bool
    exclusive: bool
    lease_ms: int
    credit_max: int
    priority: int = 0
    pool: RemotePool | None = None
    on_activity: Callable[[bool], None] | None = None
    begin: Callable[[Any], Any] | None = None
    """Makes it there over another link, where it is asked for messages one by one."""
    group: RemoteGroup = field(init=False)
    held_count: int = field(default=0, init=False)
    taken_count: int = field(default=0, init=False)
    waiting: deque[tuple[Message, RemoteClaim | None]] = field(default_factory=deque, init=False)
    told_credit: int = field(default=-1, init=False)
    ends_late: bool = field(default=False, init=False)
    is_over: bool = field(default=False, init=False)
    is_paused: bool = field(default=False, init=False)
    is_cut_off: bool = field(default=False, init=False)
    gap: int = field(default=0, init=False)
    committed: int = field(default=0, init=False)
    position: int = field(default=0, init=False)
    ready: int = field(default=0, init=False)
    is_dried: bool = field(default=False, init=False)
    """That worker has given all there was, and some of it waits here."""
    echoes_due: int = field(default=0, init=False)
    """How often that worker is still to say that it has what was given back."""

    def pace(self, per_s: int) -> None:
        self.link.tell(self.number, f.PACE, per_s)

    def pause(self) -> None:
        self.is_paused = True
        self.link.tell(self.number, f.PAUSE)

    def resume(self) -> None:
        self.is_paused = False
        self.link.tell(self.number, f.RESUME)

    def came_late(self) -> None:
        self.link.tell(self.number, f.LATE)

    def give(self, messages: Sequence[Message], claims: Sequence[RemoteClaim] | None) -> None:
        """Give the client what came for it, as far as its limits allow."""
        count = len(messages)
        self.taken_count += count
        self.position = messages[-1].offset + 1
        if claims is not None and not self.no_ack:
            self.held_count += count
        pool = self.pool
        if pool is None:
            self._hand_on(messages, claims)
            return
        self.waiting.extend(zip(messages, claims or repeat(None, count), strict=True))
        if claims is not None and self._is_behind(pool):
            self.link.return_waiting(self)
            return
        self.give_waiting(pool)
        if self.waiting and pool.gives_back and not (self.no_ack or self.queue.policy.stream):
            self._tell_credit(self.held_count - len(self.waiting))
            self.link.return_waiting(self)
            self.echoes_due += 1
            self.link.tell(self.number, f.ECHO)

    def _is_behind(self, pool: RemotePool) -> bool:
        """Whether something of the queue was given back that is to come first, to whomever of the client."""
        if len(pool.remote) <= 1:
            return self.echoes_due > 0
        return any(each.echoes_due for each in pool.remote if each.queue.name == self.queue.name)

    def _tell_credit(self, credit: int) -> None:
        self.told_credit = credit
        self.link.tell(self.number, f.CREDIT, credit)

    def room_grew(self, pool: RemotePool) -> None:
        """Give the client what waits, and take as much as the limit it shares has room for."""
        self.give_waiting(pool)
        if self.told_credit >= 0:
            credit = min(self.credit_max, self.held_count + max(pool.free(), 0))
            if credit > self.told_credit:
                self._tell_credit(credit)

    def give_waiting(self, pool: RemotePool) -> None:
        """Give the client what waits, as far as the limit it shares allows."""
        if self.is_paused:
            return
        waiting = self.waiting
        count = min(len(waiting), pool.free())
        while count > 0:
            taken = [waiting.popleft() for _ in range(count)]
            pool.claimed(count)
            for run in _alike(taken):
                claims = [claim for _, claim in run if claim is not None]
                self._hand_on([message for message, _ in run], claims or None)
            count = min(len(waiting), pool.free())
        if self.is_dried and not waiting and isinstance(pool, SharedLinkCredit):
            self.dried(pool)

    def dried(self, credit: SharedLinkCredit) -> None:
        """Note that the worker which has the queue gave all there was; what waits here comes first."""
        self.is_dried = bool(self.waiting)
        if not self.is_dried:
            credit.dried()

    def _hand_on(self, messages: Sequence[Message], claims: Sequence[RemoteClaim] | None) -> None:
        self.sink.deliver(self, messages, claims)

    def let_go(self, count: int) -> None:
        """Note that it holds so many messages fewer."""
        self.held_count -= count
        if self.pool is not None:
            self.pool.released(count)

    def end(self) -> list[RemoteClaim]:
        """Note that the worker which has the queue ended it; gives what the client was never given."""
        self.is_over = True
        if self.pool is not None:
            leave(self.pool, self)
        return self.take_back_waiting()

    def take_back_waiting(self) -> list[RemoteClaim]:
        """Return what the client was never given; it counts in no limit that is shared."""
        claims = [claim for _, claim in self.waiting if claim is not None]
        self.waiting.clear()
        self.held_count -= len(claims)
        return claims


class RemotePool(Protocol):
    """A limit that a remote consumer is under together with others. `gives_back`: what it has no room for is
    given back.
    """

    gives_back: bool
    remote: list[RemoteConsumer]

    def free(self) -> int: ...

    def claimed(self, count: int) -> None: ...

    def released(self, count: int) -> None: ...


class SharedCredit(CreditPool):
    """As `CreditPool`, over consumers of several shards; `remote` are those of other workers' queues."""

    __slots__ = ("remote",)

    gives_back = True

    def __init__(self, credit_max: int) -> None:
        super().__init__(credit_max)
        self.remote: list[RemoteConsumer] = []

    def adopt_remote(self, consumer: RemoteConsumer) -> None:
        """Count a consumer that was there before the pool; what it holds counts too."""
        if not consumer.no_ack and consumer.pool is None:
            consumer.pool = self
            self.remote.append(consumer)
            self.in_flight += consumer.held_count

    def released(self, count: int) -> None:
        super().released(count)
        for consumer in self.remote:
            consumer.room_grew(self)


class SharedPlaces(Places):
    """As `Places`, of a client that consumes queues of several shards."""

    __slots__ = ("remote",)

    gives_back = True
    remote: list[RemoteConsumer]

    def freed(self) -> None:
        if any(consumer.waiting or consumer.told_credit >= 0 for consumer in self.remote):
            self._window.close()
            self._context.dispatchable[self] = None
        else:
            super().freed()

    def dispatch(self, now_ms: int) -> None:
        super().dispatch(now_ms)
        for consumer in self.remote:
            consumer.room_grew(self)


class SharedLinkCredit(LinkCredit):
    """As `LinkCredit`, of one consumer, `consumer` if its queue is another worker's."""

    __slots__ = ("consumer", "remote")

    gives_back = False  # that worker counts it
    consumer: RemoteConsumer | None
    remote: list[RemoteConsumer]

    def set(self, count: int) -> None:
        super().set(count)
        consumer = self.consumer
        if consumer is not None:  # as the end of a count of all it was given: some are on their way
            consumer.link.tell(consumer.number, f.LINK_CREDIT, consumer.taken_count + count)

    def drain(self) -> None:
        consumer = self.consumer
        if consumer is None:
            super().drain()
        elif not self.is_draining:
            self.is_draining = True
            consumer.link.tell(consumer.number, f.DRAIN)

    def dried(self) -> None:
        """Note that the worker which has the queue gave all there was."""
        if self.is_draining:
            self.is_draining = False
            self._dried()


def leave(pool: RemotePool, consumer: RemoteConsumer) -> None:
    """Have a consumer take no more of a limit; what its client was given counts until it is settled."""
    if consumer in pool.remote:
        pool.remote.remove(consumer)


_NEW: Final = 1


def _alike(
    taken: list[tuple[Message, RemoteClaim | None]],
) -> list[list[tuple[Message, RemoteClaim | None]]]:
    """Cut deliveries into runs that are all first ones, or all later ones, as a `Sink` takes them."""
    runs: list[list[tuple[Message, RemoteClaim | None]]] = []
    is_first = None
    for one in taken:
        claim = one[1]
        is_new = claim is None or claim.attempts == _NEW
        if is_new != is_first:
            runs.append([])
            is_first = is_new
        runs[-1].append(one)
    return runs
