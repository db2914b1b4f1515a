"""Events of a channel that wait behind an earlier one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import channel_error
from broker.clients.when_durable import WhenDurable
from broker.connections.read_holds import Reading
from broker.engine.answers import Answer
from broker.engine.client.commits import CommitClient
from config import limits
from protocols.amqp091 import constants as c
from queue_manager.outcomes import ACCEPTED, REASONS

T = TypeVar("T")


@dataclass(eq=False, repr=False, slots=True)
class HeldEvents:
    """The events of a channel that wait, so that order is kept; nothing more is read from the client then. It
    is read while no event waits and only an answer is waited for: it has other channels.

    `is_holding`: events have to be added here instead of being handled. `has_promised`: there are answers
    that the client will get once what they tell is durable. `_is_unread`: they wait until the
    client has read what was sent to it. `_is_behind_replies`: until it was told all that is promised.
    """

    _channel: AmqpChannel
    _handle: Callable[[Any], None]
    _commits: CommitClient = field(init=False)
    _reading: Reading = field(init=False)
    _events: deque[Any] = field(default_factory=deque, init=False)
    _is_unread: bool = field(default=False, init=False)
    _is_behind_replies: bool = field(default=False, init=False)
    _promised_count: int = field(default=0, init=False)
    _is_let_off: bool = field(default=False, init=False)  # the client waits for no answers any more
    has_promised: bool = field(default=False, init=False)
    is_holding: bool = field(default=False, init=False)
    _stops_reading: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """`handle` takes the events once they may go on."""
        self._commits = self._channel.core.commits
        self._reading = self._channel.transport.reading

    def add(self, event: Any) -> None:
        """Keep an event; `is_holding`."""
        self._events.append(event)
        self._read_no_more()

    def hold(self) -> None:
        """Handle and read nothing more before `release`."""
        self.is_holding = True
        self._read_no_more()

    def _read_no_more(self) -> None:
        if not self._stops_reading:
            self._stops_reading = True
            self._reading.hold()

    def hold_with(self, event: Any) -> None:
        """Hold as `hold`; then `event` comes first."""
        self.hold()
        self.put_back(event)

    def put_back(self, event: Any) -> None:
        """Have `event` handled first; `is_holding`."""
        self._events.appendleft(event)
        self._read_no_more()

    def hold_until_read(self, event: Any) -> None:
        """Hold as `hold_with`, until `caught_up`."""
        self._is_unread = True
        self.hold_with(event)

    def expect(self, answer: Answer[T], then: Callable[[Answer[T]], None], index: int) -> None:
        """Go on by `then` once the answer of the core is there; what follows waits for it.

        What `then` raises is on account of the method of this index.
        """
        if answer.is_done:
            then(answer)
        else:
            self.is_holding = True
            answer.then(lambda answer: self.go_on(partial(then, answer), index))

    def reply(self, method: Any, *, durable: bool) -> None:
        """Answer with `method`: now, or (`durable`) once all that was done so far is durable, and in order.

        What follows waits for that only if it is in need of it: see `hold_behind_replies`.
        """
        if self._is_let_off:
            return
        if not durable and not self.has_promised:
            self._channel.send(method)
            return
        self._promised_count += 1
        self.has_promised = True
        self._commits.wait(WhenDurable(lambda tokens: self._keep_promise(method)), 0)

    def hold_behind_replies(self, event: Any) -> None:
        """Hold as `hold_with`, until everything promised was told; `has_promised`."""
        self._is_behind_replies = True
        self.hold_with(event)

    def has_room(self) -> bool:
        """Return whether more may be promised."""
        return self._promised_count < limits.AMQP_PROMISED_REPLIES_MAX

    def let_off(self) -> None:
        """Let the client end the channel: it waits for nothing that was, or would be, promised."""
        self._is_let_off = True
        self.has_promised = False

    def _keep_promise(self, method: Any) -> None:
        """Tell that what was promised is durable."""
        self._promised_count -= 1
        if self._channel.closed or self._is_let_off:
            return
        self._channel.send(method)
        self._channel.transport.want_flush()
        self.has_promised = self._promised_count > 0
        if self._is_behind_replies and not self.has_promised:
            self.release()

    def reply_when_durable(self, method: Any, index: int) -> None:
        """Answer the method of this index with `method` once all that was done so far is durable, or close
        the channel if it may not be, at another worker; what follows waits for it.
        """
        self.hold()
        self._commits.wait(_Reply(partial(self._reply_and_release, method, index)), 0)

    def _reply_and_release(self, method: Any, index: int, outcome: int) -> None:
        if outcome != ACCEPTED:
            self.go_on(partial(_refuse, outcome), index)
        elif not self._channel.closed:
            self._channel.send(method)
            self.release()

    def caught_up(self) -> None:
        """Note that the client has read what was sent."""
        if self._is_unread:
            self.release()

    def release(self) -> None:
        """Go on with what was held back."""
        self._channel.transport.guard(self._release)

    def go_on(self, act: Callable[[], None], index: int) -> None:
        """Go on as `release`, and call `act` first; what it raises is on account of the method of this
        index.
        """
        if not self._channel.closed:
            self.is_holding = True
            self._events.appendleft(Resumption(act, index))
            self.release()

    def end(self) -> deque[Any]:
        """Hold nothing any more; gives what was held back."""
        self._is_unread = self._is_behind_replies = False
        events, self._events = self._events, deque()
        self.is_holding = False
        if self._stops_reading:
            self._stops_reading = False
            self._reading.release()
        return events

    def _release(self) -> None:
        waiting = self.end()
        while waiting:
            self._handle(waiting.popleft())
            if self.is_holding:
                for event in waiting:
                    self.add(event)
                break
        self._channel.transport.want_flush()
        self._channel.hub.settle_turn()


@dataclass(slots=True, eq=False)
class Resumption:
    """The end of a wait: an event of the channel like those of the client."""

    act: Callable[[], None]
    index: int


class _Reply:
    """The waiter of one answer: calls with the outcome. Implements `broker.engine.traffic.PublishWaiter`."""

    __slots__ = ("_call", "_outcome")

    def __init__(self, call: Callable[[int], None]) -> None:
        self._call = call
        self._outcome = ACCEPTED

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `PublishWaiter`."""
        self._outcome = outcome

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`."""
        self._call(self._outcome)


def _refuse(outcome: int) -> None:
    raise channel_error(c.PRECONDITION_FAILED, REASONS[outcome])
