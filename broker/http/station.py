"""Where requests for the messages of one group of one queue are served, one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from broker.engine.answers import Answer
from broker.engine.traffic import Claim, Consumer, Message, Source
from broker.vhosts.hub import Hub
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError

CONSUMER_ID: Final = "mqcore"

Delivery = tuple[Message, Claim]


class Station:
    """Claims messages for requests: at once where some are ready, or when they come.

    While requests wait there is a consumer with credit for just as many messages. Claims belong to the
    station, so that any connection may settle them. `tells_offsets`: answers say which offset a message has.
    Implements `broker.engine.traffic.Sink`.
    """

    def __init__(self, hub: Hub, queue: Source, group: str, *, tells_offsets: bool) -> None:
        self._hub = hub
        self._client = hub.client
        self._queue = queue
        self._group = group
        self._tells_offsets = tells_offsets
        self._pulled: list[Delivery] = []
        self._polls: deque[asyncio.Future[Delivery | None]] = deque()  # requests that wait
        self._puller = self._client.consuming.puller(
            queue,
            self,
            CONSUMER_ID,
            lease_ms=queue.policy.visibility_timeout_ms,
            group_name=group,
            is_told_offsets=tells_offsets,
        )
        self._waiter: Consumer | None = None
        self._is_waiter_coming = False
        self._former: list[Consumer] = []  # waited, and hold claims still
        self._used_at = hub.clock.monotonic()

    @property
    def is_gone(self) -> bool:
        """Whether the queue was deleted."""
        return self._client.consuming.is_gone(self._puller)

    def is_idle_since(self, moment: float) -> bool:
        """Return whether nobody asked since then, and nothing is held here."""
        held_count = self._puller.held_count + sum([one.held_count for one in self._former])
        if self._waiter is not None:
            held_count += self._waiter.held_count
        return self._used_at < moment and not self._polls and not held_count

    async def fetch(self, count: int) -> list[Delivery]:
        """Claim up to `count` messages that are ready. Raises AccessRefused beside an exclusive consumer."""
        self._used_at = self._hub.clock.monotonic()
        now_ms = self._hub.clock.now_ms()
        pulled = self._client.consuming.pull(self._puller, False, now_ms, count).map(self._take_pulled)
        if not pulled.is_done:
            self._hub.settle_turn()
        try:
            return await pulled
        except asyncio.CancelledError:
            pulled.then(self._return_pulled)
            raise

    def _take_pulled(self, count: int) -> list[Delivery]:
        taken = self._pulled[:count]
        del self._pulled[:count]
        return taken

    def _return_pulled(self, answer: Answer[list[Delivery]]) -> None:
        if not answer.is_error:
            self.give_back(answer.result())

    async def wait(self, timeout_s: float) -> Delivery | None:
        """Claim the message that comes next; None: there was none in time."""
        poll: asyncio.Future[Delivery | None] = self._hub.loop.create_future()
        self._polls.append(poll)
        self.count_credit()
        self._hub.settle_turn()
        try:
            async with asyncio.timeout(timeout_s):
                return await poll
        except TimeoutError:
            return _come(poll)  # it may have come as the time ended
        except asyncio.CancelledError:
            found = _come(poll)
            if found is not None:
                self.give_back([found])
            raise
        finally:
            self._used_at = self._hub.clock.monotonic()
            if poll in self._polls:
                self._polls.remove(poll)
                self.count_credit()
            self._step_down()

    def _step_down(self) -> None:
        """Take part no more while no request waits: others may be the only consumer. Claims stay."""
        waiter = self._waiter
        if waiter is None or self._polls or self.is_gone:
            return
        self._waiter = None
        self._client.consuming.unsubscribe(waiter, self._hub.clock.now_ms(), keep_claims=True)
        self._former = [one for one in (*self._former, waiter) if one.held_count]

    def give_back(self, found: Sequence[Delivery]) -> None:
        """Return messages to their places at once: nobody is there any more to be given them, which is no
        attempt.
        """
        claims = [claim for _, claim in found]
        self._client.settling.release(claims, self._hub.clock.now_ms(), delay_ms=0)
        self.count_credit()
        self._hub.settle_turn()

    def close(self) -> None:
        """Take part no more; claims stay until they are settled or their leases end."""
        consuming, now_ms = self._client.consuming, self._hub.clock.now_ms()
        if not self.is_gone:
            if self._waiter is not None:
                consuming.unsubscribe(self._waiter, now_ms, keep_claims=True)
            consuming.unsubscribe(self._puller, now_ms, keep_claims=True)
        self._waiter = None

    # the sink

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        assert claims is not None
        came = list(zip(messages, claims, strict=True))
        if consumer is self._puller:
            self._pulled += came
            return True
        while came and self._polls:
            poll = self._polls.popleft()
            if not poll.done():
                poll.set_result(came.pop(0))
        self.count_credit()
        if came:
            self._hub.loop.call_soon(self.give_back, came)  # who wanted them has gone meanwhile
        return True

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        self.count_credit()

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        if consumer is self._waiter:
            self._waiter = None
        polls, self._polls = self._polls, deque()
        for poll in polls:
            if not poll.done():
                poll.set_result(None)

    def count_credit(self) -> None:
        """Have credit for as many messages as requests wait, beside what is held: claims were settled."""
        wanted = sum([not poll.done() for poll in self._polls])
        if self._waiter is None:
            if wanted and not self._is_waiter_coming:
                self._is_waiter_coming = True
                self._subscribe().then(self._take_waiter)
            return
        held = self._waiter.held_count
        if self._waiter.credit_max != held + wanted:
            self._client.consuming.set_credit(self._waiter, held + wanted)

    def _take_waiter(self, answer: Answer[Consumer]) -> None:
        """Have credit by the consumer that an answer brings, or tell the requests why there is none."""
        self._is_waiter_coming = False
        try:
            self._waiter = answer.result()
        except (QueueManagerError, StorageError) as error:
            for poll in self._polls:
                if not poll.done():
                    poll.set_exception(error)
            return
        self.count_credit()
        self._step_down()
        self._hub.want_settle()

    def _subscribe(self) -> Answer[Consumer]:
        return self._client.consuming.subscribe(
            self._queue,
            self._group,
            "#",
            self,
            consumer_id=CONSUMER_ID,
            credit_max=0,
            no_ack=False,
            exclusive=False,
            lease_ms=self._queue.policy.visibility_timeout_ms,
            is_told_offsets=self._tells_offsets,
            is_fetch=True,
        )


def _come(poll: asyncio.Future[Delivery | None]) -> Delivery | None:
    return poll.result() if poll.done() and not poll.cancelled() else None
