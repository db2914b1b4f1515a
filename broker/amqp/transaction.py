"""tx.select, commit and rollback: publishes and settlements of a channel that take effect together.

What is published is checked at once and kept; what is settled leaves the channel's unacknowledged deliveries
at once. tx.commit does all of it within one commit of the store, in order, or none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pamqp import commands

from broker.amqp.channel import AmqpChannel
from broker.amqp.confirms import Confirms
from broker.amqp.errors import channel_error
from broker.amqp.held_events import HeldEvents
from broker.amqp.publishing import Publisher
from broker.amqp.unacked import Settlement, Unacked
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091.events import PublishRun, SettleRun
from queue_manager.errors import LimitReached


class Transaction:
    """The transactions of a channel, one after the other; `is_on` from tx.select on."""

    __slots__ = (
        "_channel",
        "_confirms",
        "_held",
        "_operation_count",
        "_publisher",
        "_runs",
        "_settlements",
        "_taken_bytes",
        "_unacked",
        "is_on",
    )

    def __init__(
        self,
        channel: AmqpChannel,
        held: HeldEvents,
        confirms: Confirms,
        publisher: Publisher,
        unacked: Unacked,
    ) -> None:
        self._channel = channel
        self._held = held
        self._confirms = confirms
        self._publisher = publisher
        self._unacked = unacked
        self._runs: list[PublishRun] = []
        self._settlements: list[Settlement] = []
        self._taken_bytes = 0
        self._operation_count = 0
        self.is_on = False

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
        self._take_room(len(run.bodies), sum(map(len, run.bodies)))
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and last.shape is run.shape
            and len(last.bodies) < limits.TRANSACTION_RUN_PUBLISHES
        ):
            last.bodies += run.bodies  # commit costs by the run far more than by the message
        else:
            self._runs.append(run)

    def settle(self, event: SettleRun) -> None:
        """Take settlements; raises a channel error for a tag that means nothing."""
        self._take_room(len(event.delivery_tags), 0)
        self._settlements.append(self._unacked.set_aside(event))

    def commit(self, method: commands.Tx.Commit) -> None:
        """Do all of it, and answer once that is durable; raises a channel error, and nothing is done."""
        self._check_on()
        self._unacked.check_aside()
        judged = self._publisher.judge(self._runs)
        self._runs = []
        settlements, self._settlements = self._settlements, []
        self._give_back_room()
        for run, judgement in judged:
            self._publisher.apply(run, judgement)
        self._unacked.apply(settlements)
        self._held.reply_when_durable(commands.Tx.CommitOk())

    def rollback(self, method: commands.Tx.Rollback) -> None:
        """Forget all of it: what was settled is unacknowledged again."""
        self._check_on()
        self.end()
        self._channel.send(commands.Tx.RollbackOk())

    def end(self) -> None:
        """As `rollback`, when the channel ends."""
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
        self._channel.client.shared.transaction_room.take(size_bytes)
        self._taken_bytes += size_bytes
        self._operation_count += count

    def _give_back_room(self) -> None:
        self._channel.client.shared.transaction_room.give_back(self._taken_bytes)
        self._taken_bytes = 0
        self._operation_count = 0


METHODS: Final[dict[type, Callable[[Transaction, Any], None]]] = {
    commands.Tx.Select: Transaction.select,
    commands.Tx.Commit: Transaction.commit,
    commands.Tx.Rollback: Transaction.rollback,
}
