"""tx.select, commit and rollback: publishes and settlements of a channel that take effect together.

What is published is checked at once and kept; what is settled leaves the channel's unacknowledged deliveries
at once. tx.commit does all of it within one commit of the store, in order, or none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pamqp import commands

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import channel_error
from broker.amqp.connection.held_events import HeldEvents
from broker.amqp.connection.shared import Room
from broker.amqp.publishing.publish import Publisher
from broker.amqp.settling.confirms import Confirms
from broker.amqp.settling.unacked import Settlement, Unacked
from broker.engine.answers import Answer
from broker.engine.traffic import Judgement
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091.events import PublishRun, SettleRun, VariedPublishRun
from queue_manager.errors import LimitReached

Judged = list[tuple[PublishRun | VariedPublishRun, Judgement | None]]
"""The publishes of a transaction, with what becomes of them; None: they go to a requester."""


@dataclass(eq=False, repr=False, slots=True)
class Transaction:
    """The transactions of a channel, one after the other; `is_on` from tx.select on."""

    _channel: AmqpChannel
    _held: HeldEvents
    _confirms: Confirms
    _publisher: Publisher
    _unacked: Unacked
    _room: Room = field(init=False)
    _runs: list[PublishRun | VariedPublishRun] = field(default_factory=list, init=False)
    _settlements: list[Settlement] = field(default_factory=list, init=False)
    _taken_bytes: int = field(default=0, init=False)
    _operation_count: int = field(default=0, init=False)
    is_on: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._room = self._channel.client.shared.transaction_room

    def select(self, method: commands.Tx.Select) -> None:
        """Have what follows wait for tx.commit; raises a channel error."""
        if self._confirms.is_on:
            raise channel_error(c.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        self.is_on = True
        self._channel.send(commands.Tx.SelectOk())

    def publish(self, run: PublishRun) -> None:
        """Take publishes; raises QueueManagerError, or a channel error, for what commit would refuse."""
        if not self._publisher.check(run):
            self._publisher.publish(run)  # a call, which is done at once
            return
        run = self._publisher.addressed(run)
        self._take_room(len(run.bodies), sum(map(len, run.bodies)))
        last = self._runs[-1] if self._runs else None
        if last is None or len(last.bodies) >= limits.TRANSACTION_RUN_PUBLISHES:
            self._runs.append(run)
        elif isinstance(last, PublishRun) and last.shape is run.shape:
            last.bodies += run.bodies
        elif not self._join(run, last):
            self._runs.append(run)

    def publish_varied(self, run: VariedPublishRun) -> bool:
        """Publish as `publish`, with properties of their own; False: they have to come one by one."""
        if not self._publisher.check_varied(run):
            return False
        self._take_room(len(run.bodies), sum(map(len, run.bodies)))
        last = self._runs[-1] if self._runs else None
        if (
            isinstance(last, VariedPublishRun)
            and last.address is run.address
            and len(last.bodies) < limits.TRANSACTION_RUN_PUBLISHES
        ):
            _extend(last, run)
        else:
            self._runs.append(run)
        return True

    def _join(self, run: PublishRun, last: PublishRun | VariedPublishRun) -> bool:
        """Add a lone publish to those before it, if all of them go to one address with properties that ask
        nothing; whether it was. A commit costs by the run far more than by the message.
        """
        if last.address is not run.address or len(run.bodies) > 1:
            return False
        if isinstance(last, PublishRun):
            if len(last.bodies) > 1:
                return False
            last = last.varied()
            if not self._publisher.check_varied(last):
                return False
        varied = run.varied()
        if not self._publisher.check_varied(varied):
            return False
        _extend(last, varied)
        self._runs[-1] = last
        return True

    def settle(self, event: SettleRun) -> None:
        """Take settlements; raises a channel error for a tag that means nothing."""
        self._take_room(len(event.delivery_tags), 0)
        self._settlements.append(self._unacked.set_aside(event))

    def commit(self, method: commands.Tx.Commit) -> None:
        """Do all of it, and answer once that is durable; raises a channel error, and nothing is done.

        What goes to queues of other shards is done first: it is a commit of its own there.
        """
        self._check_on()
        self._unacked.check_aside()
        judged = self._publisher.judge(self._runs)
        answer = self._publisher.publish_elsewhere(judged)
        known = judged if answer.is_done else None
        self._held.expect(answer, partial(self._commit_here, known), method.index)

    def _commit_here(self, judged: Judged | None, elsewhere: Answer[None]) -> None:
        """Do what is for this shard, as judged; None: that was before something else may have happened.
        Raises a channel error.
        """
        elsewhere.result()
        if judged is None:
            self._unacked.check_aside()
            judged = self._publisher.judge(self._runs)
        self._runs = []
        settlements, self._settlements = self._settlements, []
        self._give_back_room()
        for run, judgement in judged:
            self._publisher.apply(run, judgement)
        self._unacked.apply(settlements)
        self._held.reply_when_durable(commands.Tx.CommitOk(), commands.Tx.Commit.index)

    def rollback(self, method: commands.Tx.Rollback) -> None:
        """Forget all of it: what was settled is unacknowledged again."""
        self._check_on()
        self.end()
        self._channel.send(commands.Tx.RollbackOk())

    def end(self) -> None:
        """Roll back as `rollback`, when the channel ends."""
        self._runs = []
        self._settlements = []
        self._give_back_room()
        self._unacked.restore_aside()

    def _check_on(self) -> None:
        if not self.is_on:
            raise channel_error(c.PRECONDITION_FAILED, "channel is not transactional")

    def _take_room(self, count: int, body_bytes: int) -> None:
        if self._operation_count + count > limits.TRANSACTION_OPERATIONS_MAX:
            raise LimitReached(f"a transaction has at most {limits.TRANSACTION_OPERATIONS_MAX} operations")
        size_bytes = body_bytes + limits.TRANSACTION_STEP_BYTES * count
        self._room.take(size_bytes)
        self._taken_bytes += size_bytes
        self._operation_count += count

    def _give_back_room(self) -> None:
        self._room.give_back(self._taken_bytes)
        self._taken_bytes = 0
        self._operation_count = 0


def _extend(run: VariedPublishRun, other: VariedPublishRun) -> None:
    """Add checked publishes to the same address to those before them."""
    plan, templates = run.context
    if other.context[0] is plan:  # else they are made anew
        templates += other.context[1]
    run.extend(other)


METHODS: Final[dict[type, Callable[[Transaction, Any], None]]] = {
    commands.Tx.Select: Transaction.select,
    commands.Tx.Commit: Transaction.commit,
    commands.Tx.Rollback: Transaction.rollback,
}
