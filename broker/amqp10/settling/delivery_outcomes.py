"""Outcomes of what the client publishes on a session: which are told, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from broker.amqp10.connection.amqp10_session import Session
from broker.clients.late_refusals import note_refused
from protocols.amqp10 import constants as c
from protocols.amqp10.hot import ACCEPTED, RELEASED
from protocols.amqp10.performatives import Error, Modified, Rejected, encode
from protocols.amqp10.types import Symbol
from queue_manager import outcomes

_MASK: Final = 0xFFFFFFFF
_LOST: Final = encode(Modified(delivery_failed=True))


class Source(Protocol):
    """A link that deliveries came on; `settles` is whether outcomes settle them (first settle mode of the
    receiver), else the client does.
    """

    @property
    def settles(self) -> bool: ...

    def told(self, count: int) -> None:
        """Note that so many of its deliveries were told their outcome: others may come for them."""


class Outcomes:
    """Deliveries are told their outcome, and settled with it: accepted once the commit that holds them is
    durable, in ranges; all else at once, though others before it wait.

    `_waiting` are those that wait, oldest first: the token of the last, first delivery ID, count, state, and
    where they came from. `_refused`: by token, the states of those that a queue elsewhere refused after all.
    """

    __slots__ = ("_commits", "_refused", "_session", "_token", "_waiting")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._commits = session.core.commits
        self._token = 0
        self._waiting: deque[tuple[int, int, int, bytes, Source]] = deque()
        self._refused: dict[int, bytes] = {}

    def accept(self, first: int, count: int, source: Source, *, durable: bool) -> None:
        """Accept deliveries: now, or when what was done so far is durable."""
        if durable:
            self.wait(first, count, source, ACCEPTED)
        else:
            self.tell(first, count, source, ACCEPTED)

    def release(self, first: int, count: int, source: Source) -> None:
        """Release deliveries: there is no queue for them."""
        self.tell(first, count, source, RELEASED)

    def wait(self, first: int, count: int, source: Source, state: bytes) -> None:
        """Tell a state once what was done so far is durable."""
        self._token += count
        self._waiting.append((self._token, first, count, state, source))
        self._commits.wait_up_to(self, self._token)

    def tell(self, first: int, count: int, source: Source, state: bytes) -> None:
        """Tell a state now."""
        session = self._session
        range_told = [(first, first + count - 1 & _MASK)]
        session.connection.settle(session.channel, range_told, state, settled=source.settles)
        source.told(count)
        session.transport.want_answer()

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `broker.engine.traffic.PublishWaiter`."""
        session = self._session
        if outcome != outcomes.UNROUTED:
            note_refused(session.hub, session.transport, outcome, len(tokens))
        self._refused |= dict.fromkeys(tokens, _state_of(outcome))

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`: everything up to the last token is durable."""
        self._session.transport.guard(self._committed, tokens[-1])

    def _committed(self, token: int) -> None:
        waiting = self._waiting
        if self._session.closed:
            waiting.clear()
            self._refused.clear()
            return
        counts: dict[Source, int] = {}
        ranges: dict[tuple[bytes, bool], list[tuple[int, int]]] = {}
        while waiting and waiting[0][0] <= token:
            last_token, first, count, state, source = waiting.popleft()
            parts: Iterable[tuple[int, int, bytes]] = ((first, count, state),)
            if self._refused:
                parts = self._parts(last_token, first, count, state)
            for first_of_part, count_of_part, state_of_part in parts:
                _add(ranges.setdefault((state_of_part, source.settles), []), first_of_part, count_of_part)
            counts[source] = counts.get(source, 0) + count
        for (state, settles), alike in ranges.items():
            self._session.connection.settle(self._session.channel, alike, state, settled=settles)
        for source, count in counts.items():
            source.told(count)
        self._session.transport.want_answer()

    def _parts(
        self, last_token: int, first: int, count: int, state: bytes
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield deliveries by the state that they have after all: first delivery ID, count, state."""
        begin = 0
        for index in range(count):
            refused = self._refused.pop(last_token - count + 1 + index, None)
            if refused is None:
                continue
            if begin < index:
                yield first + begin & _MASK, index - begin, state
            yield first + index & _MASK, 1, refused
            begin = index + 1
        if begin < count:
            yield first + begin & _MASK, count - begin, state


def _add(alike: list[tuple[int, int]], first: int, count: int) -> None:
    """Add deliveries to ranges of such that are told the same."""
    last = first + count - 1 & _MASK
    if alike and alike[-1][1] + 1 & _MASK == first:
        alike[-1] = (alike[-1][0], last)
    else:
        alike.append((first, last))


def _state_of(outcome: int) -> bytes:
    """Return the state of a message that a queue elsewhere refused."""
    if outcome == outcomes.UNROUTED:
        return RELEASED
    if outcome == outcomes.REFUSED_LOST:
        return _LOST
    condition = c.PRECONDITION_FAILED
    if outcome == outcomes.REFUSED_SIZE:
        condition = c.MESSAGE_SIZE_EXCEEDED
    elif outcome in (*outcomes.FULL, outcomes.REFUSED_SESSION):
        condition = c.RESOURCE_LIMIT_EXCEEDED
    return rejected(condition, outcomes.REASONS[outcome])


def rejected(condition: str, description: str, info: dict[str, str] | None = None) -> bytes:
    """Return the state of what is rejected for that reason."""
    told = None if info is None else {Symbol(name): value for name, value in info.items()}
    return encode(Rejected(Error(condition, description, told)))
