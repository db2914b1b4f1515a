"""Local transactions (AMQP 1.0, part 4): publishes and settlements of a session that take effect together.

What is published is planned at once and kept; what is settled leaves the unsettled deliveries at once. The
discharge does all of it within one commit of the store, in order, or none of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.amqp.connection.shared import Room
from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.settling.delivery_outcomes import Outcomes
from broker.amqp10.settling.unsettled import Unsettled
from broker.engine.answers import Answer
from broker.engine.traffic import Claim, Judgement, PublishPlan
from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.events import DispositionRun, TransferRun
from protocols.amqp10.hot import ACCEPTED as ACCEPTED_STATE
from protocols.amqp10.hot import ranges_of
from queue_manager import outcomes
from queue_manager.errors import LimitReached, QueueManagerError

Planner = Callable[[int], list[tuple[PublishPlan, list[bytes], None]]]
"""Gives, at a time, where publishes go."""


class _Settlement(NamedTuple):
    """Claims by their delivery IDs, with the outcome that they are to have; `settled`: by the client."""

    outcome: Any
    claims: dict[int, Claim]
    settled: bool


class Transaction:
    """What is to be done by one discharge."""

    __slots__ = ("id", "operation_count", "publishes", "settlements", "taken_bytes")

    def __init__(self) -> None:
        self.id = secrets.token_bytes(8)
        self.publishes: list[Planner] = []
        self.settlements: list[_Settlement] = []
        self.operation_count = 0
        self.taken_bytes = 0


class Transactions:
    """The transactions of a session that are under way."""

    __slots__ = ("_by_id", "_core", "_hub", "_room", "_session", "_unsettled")

    def __init__(self, session: Session, unsettled: Unsettled, room: Room) -> None:
        """`room` is what all clients have for transactions."""
        self._session = session
        self._core = session.core
        self._hub = session.hub
        self._unsettled = unsettled
        self._room = room
        self._by_id: dict[bytes, Transaction] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def declare(self) -> Transaction:
        """Begin one; raises LimitReached."""
        if len(self._by_id) >= limits.AMQP10_TRANSACTIONS_PER_SESSION_MAX:
            most = limits.AMQP10_TRANSACTIONS_PER_SESSION_MAX
            raise LimitReached(f"a session has at most {most} transactions under way")
        transaction = Transaction()
        self._by_id[transaction.id] = transaction
        return transaction

    def find(self, state: p.TransactionalState | p.Discharge) -> Transaction:
        """Return the one that is named; raises AmqpError."""
        transaction = self._by_id.get(state.txn_id)
        if transaction is None:
            raise AmqpError(c.UNKNOWN_TRANSACTION, "there is no transaction of that ID in this session")
        return transaction

    def publish(self, transaction: Transaction, count: int, size_bytes: int, planner: Planner) -> None:
        """Take publishes; raises LimitReached."""
        self._take_room(transaction, count, size_bytes)
        transaction.publishes.append(planner)

    def settle(self, run: DispositionRun) -> None:
        """Take settlements; raises AmqpError, LimitReached."""
        state = run.state
        transaction = self.find(state)
        if state.outcome is None:
            return
        self._unsettled.check(state.outcome)
        claims = self._unsettled.take(run.ranges)
        self._take_room(transaction, len(claims), 0)
        transaction.settlements.append(_Settlement(state.outcome, claims, run.settled))

    def commit(self, transaction: Transaction, then: Callable[[AmqpError | None], None]) -> None:
        """Do all of it within the open commit, then call `then`; with an error (rolled back) where it cannot
        be done. What goes to queues of other shards is done first: it is a commit of its own there.
        """
        judged, error = self._judge(transaction)
        if error is not None:
            then(error)
            return
        answer = self._core.publishing.publish_elsewhere(judged)
        if answer.is_done:
            self._commit_here(transaction, answer, judged, then)
        else:
            answer.then(lambda answer: self._commit_here(transaction, answer, None, then))

    def _judge(self, transaction: Transaction) -> tuple[Sequence[Judgement], AmqpError | None]:
        """Find what becomes of a transaction in this shard, or why it is rolled back."""
        now_ms = self._hub.clock.now_ms()
        if any(not claim.is_in_flight for each in transaction.settlements for claim in each.claims.values()):
            reason = "the leases of deliveries ended before the discharge"
            return (), self._rolled_back(transaction, reason)
        try:
            wanted = [one for planner in transaction.publishes for one in planner(now_ms)]
            judged = self._core.publishing.judge(wanted, now_ms)
        except QueueManagerError as error:
            return (), self._rolled_back(transaction, self._session.refused(error).description)
        if judged and judged[-1].outcome != outcomes.ACCEPTED:
            self._hub.counters.refuse_publishes(transaction.operation_count)
            return (), self._rolled_back(transaction, outcomes.why_not(judged[-1]))
        return judged, None

    def _commit_here(
        self,
        transaction: Transaction,
        elsewhere: Answer[None],
        judged: Sequence[Judgement] | None,
        then: Callable[[AmqpError | None], None],
    ) -> None:
        """Do what is for this shard, as judged; None: that was before something else may have happened."""
        if transaction.id not in self._by_id:
            return  # rolled back: its session or coordinator ended meanwhile
        try:
            elsewhere.result()
        except QueueManagerError as error:
            then(self._rolled_back(transaction, self._session.refused(error).description))
            return
        if judged is None:
            judged, refusal = self._judge(transaction)
            if refusal is not None:
                then(refusal)
                return
        now_ms, publishing = self._hub.clock.now_ms(), self._core.publishing
        del self._by_id[transaction.id]
        self._room.give_back(transaction.taken_bytes)
        for one in judged:
            if one.plan.leads_anywhere:
                publishing.apply(one, now_ms)
        for settlement in transaction.settlements:
            self._apply(settlement)
        then(None)

    def _apply(self, settlement: _Settlement) -> None:
        settling = self._hub.client.settling
        claims = list(settlement.claims.values())
        groups = {settling.durable_group_of(claim): None for claim in claims}
        self._unsettled.act(settlement.outcome, claims)
        for group in groups:
            if group is not None:
                settling.write_soon(group)
        if not settlement.settled:
            session = self._session
            ranges = ranges_of(settlement.claims)
            session.connection.settle(session.channel, ranges, settlement.outcome, role=c.SENDER)

    def roll_back(self, transaction: Transaction) -> None:
        """Forget all of it: what the client had settled returns as a failed attempt, the rest is
        unsettled, or returns where its link is gone.
        """
        del self._by_id[transaction.id]
        self._room.give_back(transaction.taken_bytes)
        settling = self._hub.client.settling
        for settlement in transaction.settlements:
            if settlement.settled:
                claims = list(settlement.claims.values())
                settling.requeue(claims, self._hub.clock.now_ms(), delay_ms=0)
            else:
                gone = self._unsettled.restore(settlement.claims)
                settling.release(gone, self._hub.clock.now_ms(), delay_ms=0)

    def close(self) -> None:
        """Roll back all that is under way: the session, or the link to the coordinator, ends."""
        for transaction in list(self._by_id.values()):
            self.roll_back(transaction)

    def _rolled_back(self, transaction: Transaction, reason: str) -> AmqpError:
        self.roll_back(transaction)
        return AmqpError(c.TRANSACTION_ROLLBACK, reason)

    def _take_room(self, transaction: Transaction, count: int, size_bytes: int) -> None:
        if transaction.operation_count + count > limits.TRANSACTION_OPERATIONS_MAX:
            raise LimitReached(f"a transaction has at most {limits.TRANSACTION_OPERATIONS_MAX} operations")
        size_bytes += limits.TRANSACTION_STEP_BYTES * count
        self._room.take(size_bytes)
        transaction.taken_bytes += size_bytes
        transaction.operation_count += count


class Coordinator:
    """The link that transactions are declared and discharged on."""

    settles = True

    def __init__(self, session: Session, transactions: Transactions, told: Outcomes) -> None:
        self._session = session
        self._transactions = transactions
        self._outcomes = told

    def take(self, run: TransferRun) -> None:
        """Take commands; raises AmqpError for what is none."""
        for index, payload in enumerate(run.payloads):
            number = run.first_id + index & c.UINT_MAX
            command = _command(payload)
            try:
                self._act(number, command)
            except AmqpError as error:
                self._reject(number, error)
            except QueueManagerError as error:
                self._reject(number, self._session.refused(error))

    def _act(self, number: int, command: p.Declare | p.Discharge) -> None:
        if isinstance(command, p.Declare):
            if command.global_id is not None:
                raise AmqpError(c.NOT_IMPLEMENTED, "transactions are local")
            transaction = self._transactions.declare()
            self._outcomes.tell(number, 1, self, p.encode(p.Declared(transaction.id)))
            return
        transaction = self._transactions.find(command)
        if command.fail:
            self._transactions.roll_back(transaction)
            self._outcomes.tell(number, 1, self, ACCEPTED_STATE)
        else:
            self._transactions.commit(transaction, partial(self._committed, number))

    def _committed(self, number: int, error: AmqpError | None) -> None:
        if error is None:
            self._outcomes.wait(number, 1, self, ACCEPTED_STATE)
        else:
            self._reject(number, error)
        self._session.transport.want_flush()
        self._session.hub.want_settle()

    def _reject(self, number: int, error: AmqpError) -> None:
        state = p.Rejected(p.Error(error.condition, error.description))
        self._outcomes.tell(number, 1, self, p.encode(state))

    def told(self, count: int) -> None:
        """See `broker.amqp10.settling.delivery_outcomes.Source`."""

    def close(self) -> None:
        """Roll back what is under way."""
        self._transactions.close()


def _command(payload: bytes) -> p.Declare | p.Discharge:
    at = 0
    while at < len(payload):
        section, at = t.decode_value(payload, at, len(payload))
        if type(section) is t.Described and type(section.value) is t.Described:
            command = p.compose(section.value)
            if isinstance(command, p.Declare | p.Discharge):
                return command
    raise AmqpError(c.NOT_ALLOWED, "a coordinator takes declare and discharge")
