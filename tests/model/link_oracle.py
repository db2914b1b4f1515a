"""What became of every message at every queue, as far as that is certain: the oracle of `test_links_model`.

Calls at several workers cross. So a queue `is_certain` only while nothing that is under way could make or end
it, and a copy in it only if nothing since it was published could have taken it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from queue_manager.outcomes import FULL, REFUSED_IN_PART, REFUSED_LOST, UNROUTED

UNSURE_S: Final = 3.0  # what was settled so long before a break is settled for good

KEPT: Final = "kept"
SETTLED: Final = "settled"
MOVED: Final = "moved"
REFUSED: Final = "refused"

ROLLED_BACK: Final = -1  # of a transaction that did nothing
PERHAPS: Final = -2  # of one of which a part was done, or not


@dataclass(eq=False, slots=True, repr=False)
class Hold:
    """A delivery that a client has not settled. `is_broken`: the way to the queue ended since; `loss_count`:
    the losses of the queue by then.
    """

    copy: Copy
    claim: Any
    channel: Any
    consumer: Any
    is_broken: bool = False
    loss_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.loss_count = self.copy.queue.loss_count

    @property
    def is_good(self) -> bool:
        """Whether nobody else may be given the message now."""
        return not self.is_broken and bool(self.claim.is_in_flight)

    def check_lasts(self) -> None:
        """Fail if the client holds it no more, though nothing ended that."""
        queue = self.copy.queue
        may_be_deleted = queue.loss_count > self.loss_count or queue.changing_count
        may_have_ended = self.is_broken or may_be_deleted
        assert self.claim.is_in_flight or may_have_ended, (
            f"{queue.name}: the claim of {self.copy.message.body!r} is over, and nobody ended it"
        )


@dataclass(eq=False, slots=True, repr=False)
class Copy:
    """A message at one queue. `is_certain`: it was put there for sure, and nothing took it away but who
    settled it; `is_unsure`: whether it was settled is not certain.
    """

    message: Published
    queue: QueueModel
    is_certain: bool
    state: str = KEPT
    is_unsure: bool = False
    hold: Hold | None = None
    moved_to: Copy | None = None

    def settle(self, state: str) -> None:
        """Note that a client is done with it."""
        self.state = state
        self.hold = None

    def has_to_be_there(self) -> bool:
        """Whether the queue has it, if it was confirmed."""
        return self.is_certain and self.state == KEPT

    def may_be_there(self) -> bool:
        """Whether the queue may have it."""
        return self.state == KEPT or self.is_unsure or not self.is_certain


@dataclass(eq=False, slots=True, repr=False)
class Published:
    """One message. `outcome`: what its publisher was told, None: nothing yet."""

    body: bytes
    publisher: object
    number: int
    copies: dict[str, Copy] = field(default_factory=dict)
    outcome: int | None = None


@dataclass(eq=False, slots=True, repr=False)
class QueueModel:
    """A queue by its name, there or not: `is_certain` says whether `is_there` is known to all workers.

    `is_ordered`: what a publisher sent comes in its order at a first delivery. `bound`: routing keys, with
    whether that is certain; what is missing is bound to nothing for sure. `sharers`: channels that give back
    what their limit has no room for, which comes to others behind what they have.
    """

    name: str
    durable: bool
    depth_max: int = 0
    dead: str = ""
    is_there: bool = False
    is_certain: bool = True
    is_ordered: bool = True
    changing_count: int = 0
    change_count: int = 0
    loss_count: int = 0
    copies: dict[bytes, Copy] = field(default_factory=dict)
    bound: dict[str, bool] = field(default_factory=dict)
    has_auto_ack: bool = False
    sharers: set[object] = field(default_factory=set)

    def disturb(self) -> None:
        """Note that what is in it may go."""
        for copy in self.copies.values():
            copy.is_certain = False

    def lose(self) -> None:
        """Note that it may be there, or not."""
        self.disturb()
        self.change_count += 1
        self.loss_count += 1
        self.is_certain = False
        self.bound = dict.fromkeys(self.bound, False)

    def change_begins(self) -> int:
        """Note that something is done to it; gives what tells later whether it was the only one."""
        self.changing_count += 1
        self.change_count += 1
        return self.change_count

    def change_ends(self, number: int) -> bool:
        """Note the end of that; whether nothing else was done to it meanwhile."""
        self.changing_count -= 1
        self.change_count += 1
        return not self.changing_count and self.change_count == number + 1

    def is_ordered_for(self, sharer: object) -> bool:
        """Whether what a publisher sent comes in its order to a consumer under the limit of this channel;
        None: to one that is under none.
        """
        return self.is_ordered and self.sharers <= {sharer}

    @property
    def takes_all(self) -> bool:
        """Whether what is published to it is in it, once that is confirmed."""
        return self.is_there and self.is_certain


class Ledger:
    """All messages and queues."""

    def __init__(self, queues: Sequence[QueueModel]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.messages: dict[bytes, Published] = {}
        self._recent: list[tuple[float, Copy]] = []
        self.now_s = 0.0
        self.has_broken = False

    def published(self, publisher: object, number: int, body: bytes, names: Sequence[str]) -> None:
        """Note that a message is on its way to these queues."""
        message = self.messages[body] = Published(body, publisher, number)
        for name in names:
            queue = self.queues[name]
            queue.copies[body] = message.copies[name] = Copy(message, queue, queue.takes_all)

    def told(self, body: bytes, outcome: int) -> None:
        """Note what a publisher was told of a message: once."""
        message = self.messages[body]
        assert message.outcome is None, f"{body!r} was answered twice"
        message.outcome = outcome
        copies = message.copies.values()
        if outcome == UNROUTED:
            assert not any(copy.is_certain for copy in copies), f"{body!r} had somewhere to go"
        elif outcome in FULL:
            assert any(copy.queue.depth_max for copy in copies), (
                f"{body!r} was refused by {list(message.copies)}"
            )
        elif outcome == REFUSED_LOST:
            assert self.has_broken, f"{body!r} was lost, and nothing broke"
        is_one_refused = outcome in FULL and outcome != REFUSED_IN_PART and len(copies) == 1
        if is_one_refused or outcome == ROLLED_BACK:
            for copy in copies:
                assert copy.hold is None or copy.is_unsure, f"{body!r} was refused, and delivered"
                copy.settle(REFUSED)

    def may_go_to(self, body: bytes, names: Sequence[str]) -> None:
        """Note that a message may be at these queues, too."""
        message = self.messages[body]
        for name in names:
            if name not in message.copies:
                queue = self.queues[name]
                queue.copies[body] = message.copies[name] = Copy(message, queue, False)

    def delivered(self, hold: Hold) -> None:
        """Note a delivery, which settles the message if it is no claim."""
        copy = hold.copy
        if hold.is_broken:  # it was on its way when the link ended
            copy.is_unsure = copy.is_unsure or hold.claim is None
            return
        self.check_may_come(copy)
        assert copy.hold is None or not copy.hold.is_good, (
            f"{copy.queue.name}: {copy.message.body!r} is with two consumers"
        )
        if hold.claim is None:
            self._settle(copy, SETTLED)
        else:
            copy.hold = hold

    def check_may_come(self, copy: Copy) -> None:
        """Fail for what is settled for sure, or was refused by all."""
        where = f"{copy.queue.name}: {copy.message.body!r}"
        assert copy.may_be_there(), f"{where} comes again, though it is {copy.state}"

    def settled(self, hold: Hold, state: str) -> None:
        """Note that a client is done with a delivery."""
        copy = hold.copy
        if not hold.is_good:
            copy.is_unsure = True
            return
        self._settle(copy, state)
        if state == MOVED and copy.queue.dead:
            dead = self.queues[copy.queue.dead]
            moved = dead.copies.get(copy.message.body)
            if moved is None:
                moved = Copy(copy.message, dead, dead.takes_all and copy.is_certain)
                dead.copies[copy.message.body] = moved
            copy.moved_to = moved

    def _settle(self, copy: Copy, state: str) -> None:
        copy.settle(state)
        self._recent.append((self.now_s, copy))

    def emptied(self, queue: QueueModel) -> None:
        """Note that a queue is purged or deleted: what was rejected just before may go, too."""
        queue.disturb()
        for at_s, copy in self._recent:
            if copy.queue is queue and copy.moved_to is not None and at_s > self.now_s - UNSURE_S:
                copy.moved_to.is_certain = False

    def returned(self, hold: Hold) -> None:
        """Note that a client gave a delivery back."""
        if hold.copy.hold is hold:
            hold.copy.hold = None

    def broke(self) -> None:
        """Note that a worker or link ended: what was settled just before may come again."""
        self.has_broken = True
        recent, self._recent = self._recent, []
        for at_s, copy in recent:
            if at_s > self.now_s - UNSURE_S:
                copy.is_unsure = True
                if copy.moved_to is not None:
                    copy.moved_to.is_certain = False
        for queue in self.queues.values():
            queue.is_ordered = False
        self.lose_on_their_way()

    def lose_on_their_way(self) -> None:
        """Note that what was given to consumers that settle nothing may never have come."""
        for queue in self.queues.values():
            if queue.has_auto_ack:
                queue.disturb()
