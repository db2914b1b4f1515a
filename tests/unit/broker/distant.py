"""A client whose answers come later, as from another process; in order where they are about one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from queue_manager.errors import QueueManagerError
from queue_manager.outcomes import ACCEPTED

DELAY_S = 0.02


class Distance:
    """How long answers take. `late_count`: how many came late; `seed` None: all take as long."""

    def __init__(self, seed: int | None = None) -> None:
        self._chance = None if seed is None else Random(seed)
        self._free_at: dict[object, float] = {}
        self.late_count = 0

    def later(self, queue: object, call: Callable[[], None]) -> None:
        """Call behind everything that was about this queue before."""
        self.late_count += 1
        loop = asyncio.get_running_loop()
        delay_s = DELAY_S if self._chance is None else self._chance.choice((0, 0.001, DELAY_S))
        at = max(self._free_at.get(queue, 0) + 1e-6, loop.time() + delay_s)
        self._free_at[queue] = at
        loop.call_at(at, call)


class Gate:
    """A sink that is given nothing while it is closed, and never what came meanwhile once it was shut."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._held: list[tuple[str, tuple[Any, ...]]] | None = []

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *given: self._take(name, given)

    def deliver(self, consumer: Any, messages: Any, claims: Any) -> bool:
        return self._take("deliver", (consumer, list(messages), None if claims is None else list(claims)))

    def _take(self, name: str, given: tuple[Any, ...]) -> bool:
        if self._held is None:
            return bool(getattr(self._sink, name)(*given))
        self._held.append((name, given))
        return True

    def open(self) -> None:
        """Give what came meanwhile."""
        held, self._held = self._held, None
        for name, given in held or ():
            getattr(self._sink, name)(*given)

    def close(self) -> None:
        """Give nothing until `open`."""
        if self._held is None:
            self._held = []

    def shut(self) -> None:
        """Give nothing of what came meanwhile."""
        if self._held is not None:
            self._held.clear()


class Distant:
    """Does what a part of a client does, and has its answers come later."""

    def __init__(self, part: Any, distance: Distance) -> None:
        self._part = part
        self._distance = distance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            answer = found(*arguments, **named)
            return self._late(answer, _queue_of(arguments)) if isinstance(answer, Answer) else answer

        return call

    def _late(
        self,
        answer: Answer[Any],
        queue: object,
        before: Callable[[], None] = lambda: None,
        then: Callable[[], None] = lambda: None,
    ) -> Answer[Any]:
        late: Answer[Any] = Answer()

        def come() -> None:
            before()
            try:
                late.resolve(answer.result())
            except QueueManagerError as error:
                late.fail(error)
            then()

        answer.then(lambda _: self._distance.later(queue, come))
        return late


class DistantConsuming(Distant):
    """The part of a client that consumes."""

    def __init__(self, part: Any, distance: Distance) -> None:
        super().__init__(part, distance)
        self._gates: dict[int, Gate] = {}

    def subscribe(self, queue: Any, group_name: str, pattern: str, sink: Any, **options: Any) -> Answer[Any]:
        gate = Gate(sink)
        answer = self._part.subscribe(queue, group_name, pattern, gate, **options)

        def note(answer: Answer[Any]) -> None:
            try:
                self._gates[id(answer.result())] = gate
            except QueueManagerError:
                pass

        answer.then(note)
        return self._late(answer, queue.name, then=gate.open)

    def puller(self, queue: Any, sink: Any, consumer_id: str, **options: Any) -> Any:
        gate = Gate(sink)
        gate.open()
        puller = self._part.puller(queue, gate, consumer_id, **options)
        self._gates[id(puller)] = gate
        return puller

    def pull(self, consumer: Any, *arguments: Any) -> Answer[Any]:
        gate = self._gates[id(consumer)]
        gate.close()
        answer = self._part.pull(consumer, *arguments)
        return self._late(answer, consumer.group.queue_name, before=gate.open)

    def unsubscribe(self, consumer: Any, now_ms: int, *, keep_claims: bool = False) -> None:
        gate = self._gates.pop(id(consumer), None)
        if gate is not None:
            gate.shut()
        self._part.unsubscribe(consumer, now_ms, keep_claims=keep_claims)


REFUSED_BODY = b"refused:"
"""What begins with it is accepted, and then refused with the outcome whose number follows."""


class Touched:
    """The outcomes of the last publishes that were accepted."""

    def __init__(self) -> None:
        self.outcomes: list[int] = []

    def note(self, outcome: int, bodies: Sequence[bytes]) -> int:
        """Note what becomes of publishes later."""
        self.outcomes = [] if outcome else list(map(_late_outcome, bodies))
        return outcome


def _late_outcome(body: bytes) -> int:
    return int(body[len(REFUSED_BODY) :]) if body.startswith(REFUSED_BODY) else ACCEPTED


class RefusingPublishing:
    """The part of a client that publishes, of which some is refused behind its acceptance."""

    def __init__(self, part: Any, touched: Touched) -> None:
        self._part = part
        self._touched = touched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def publish(self, plan: Any, bodies: list[bytes], *arguments: Any) -> int:
        return self._touched.note(self._part.publish(plan, bodies, *arguments), bodies)


class Relay:
    """Tells a waiter later, in order, what is durable, and what was refused before that."""

    def __init__(self, waiter: Any, distance: Distance) -> None:
        self._waiter = waiter
        self._distance = distance
        self.refused: dict[int, int] = {}

    def committed(self, tokens: list[int]) -> None:
        self._distance.later(id(self._waiter), partial(self._tell, tokens))

    def _tell(self, tokens: list[int]) -> None:
        due = [token for token in sorted(self.refused) if token <= max(tokens)]
        for token in due:
            self._waiter.refused([token], self.refused.pop(token))
        self._waiter.committed(tokens)


class DistantCommits:
    """The part of a client that tells when something is durable."""

    def __init__(self, part: Any, distance: Distance, touched: Touched) -> None:
        self._part = part
        self._distance = distance
        self._touched = touched
        self._relays: dict[Any, Relay] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def wait(self, waiter: Any, token: int) -> None:
        self.wait_for(waiter, [token])

    def wait_for(self, waiter: Any, tokens: list[int]) -> None:
        self._part.wait_for(self._relay(waiter, tokens), tokens)

    def wait_up_to(self, waiter: Any, token: int) -> bool:
        count = len(self._touched.outcomes)
        relay = self._relay(waiter, range(token - count + 1, token + 1))
        return bool(self._part.wait_up_to(relay, token))

    def _relay(self, waiter: Any, tokens: Sequence[int]) -> Relay:
        relay = self._relays.setdefault(waiter, Relay(waiter, self._distance))
        if hasattr(waiter, "refused"):
            relay.refused |= {
                token: outcome
                for token, outcome in zip(tokens, self._touched.outcomes, strict=False)
                if outcome
            }
        return relay

    async def durable(self) -> None:
        await self._part.durable()
        await asyncio.sleep(2 * DELAY_S)  # behind all that waited before


def _queue_of(arguments: tuple[Any, ...]) -> object:
    """Return the name of the queue that a call is about, as far as that can be seen."""
    first = arguments[0] if arguments else None
    return getattr(first, "name", first)


def distant_client(distance: Distance, of: type[ShardClient] = ShardClient) -> type[ShardClient]:
    """Return the class of clients that are so far from their shards while messages flow."""

    class DistantClient(of):  # type: ignore[misc, valid-type]
        def __init__(self, shard: Shard) -> None:
            super().__init__(shard)
            self.consuming: Any = DistantConsuming(self.consuming, distance)
            self.settling: Any = Distant(self.settling, distance)
            touched = Touched()
            self.publishing: Any = RefusingPublishing(self.publishing, touched)
            self.commits: Any = DistantCommits(self.commits, distance, touched)

    return DistantClient
