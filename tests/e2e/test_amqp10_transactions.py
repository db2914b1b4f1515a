"""AMQP 1.0: transactions of a session, by a link to the coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.raw_amqp10 import RawAmqp10, message

COORDINATOR = 9


class Transacting:
    """A client with a session, a link to the coordinator and one to a queue."""

    def __init__(self, client: RawAmqp10, queue: str) -> None:
        self.client = client
        client.begin()
        target = p.Coordinator(("amqp:local-transactions",))
        attach = p.Attach(
            "control", COORDINATOR, c.SENDER, source=p.Source(), target=target, initial_delivery_count=0
        )
        assert client.attach(attach).target == target
        client.expect(p.Flow)
        client.attach_sender(f"/queues/{queue}")

    def command(self, command: p.Declare | p.Discharge) -> object:
        value = t.Described(t.ULong(0x77), p.as_described(command))
        number = self.client.transfer(t.encode_value(value), COORDINATOR)
        return self.client.outcomes(1)[number]

    def declare(self) -> bytes:
        declared = self.command(p.Declare())
        assert isinstance(declared, p.Declared)
        return declared.txn_id

    def publish(self, txn_id: bytes, body: bytes) -> object:
        number = self.client.transfer(message(body), state=p.TransactionalState(txn_id))
        state = self.client.outcomes(1)[number]
        assert isinstance(state, p.TransactionalState)
        assert state.txn_id == txn_id
        return state.outcome

    def receive_one(self, queue: str) -> int:
        self.client.attach_receiver(f"/queues/{queue}", credit=1)
        return self.client.receive().transfer.delivery_id or 0

    def settle(self, txn_id: bytes, number: int, *, settled: bool = True) -> None:
        self.client.settle(number, p.TransactionalState(txn_id, p.Accepted()), settled=settled)


@pytest.fixture
def transacting(raw_amqp10: Callable[..., RawAmqp10], queue: str) -> Transacting:
    return Transacting(raw_amqp10(), queue)


def count(channel: amqp.BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_what_is_published_is_there_once_it_is_discharged(
    transacting: Transacting, channel: amqp.BlockingChannel, queue: str
) -> None:
    txn_id = transacting.declare()
    assert transacting.publish(txn_id, b"1") == p.Accepted()
    assert transacting.publish(txn_id, b"2") == p.Accepted()
    assert count(channel, queue) == 0
    assert transacting.command(p.Discharge(txn_id)) == p.Accepted()
    assert count(channel, queue) == 2


def test_what_is_rolled_back_was_never_published(
    transacting: Transacting, channel: amqp.BlockingChannel, queue: str
) -> None:
    txn_id = transacting.declare()
    transacting.publish(txn_id, b"1")
    assert transacting.command(p.Discharge(txn_id, True)) == p.Accepted()
    assert count(channel, queue) == 0


def test_a_settlement_takes_effect_with_the_publishes(
    transacting: Transacting, channel: amqp.BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"asked")
    number = transacting.receive_one(queue)
    txn_id = transacting.declare()
    transacting.settle(txn_id, number)
    transacting.publish(txn_id, b"answer")
    assert transacting.command(p.Discharge(txn_id)) == p.Accepted()
    transacting.client.drop()
    assert count(channel, queue) == 1
    assert channel.basic_get(queue, auto_ack=True)[2] == b"answer"


@pytest.mark.parametrize("settled", [True, False])
def test_a_settlement_that_is_rolled_back_leaves_the_message(
    transacting: Transacting, channel: amqp.BlockingChannel, queue: str, settled: bool
) -> None:
    channel.basic_publish("", queue, b"x")
    number = transacting.receive_one(queue)
    txn_id = transacting.declare()
    transacting.settle(txn_id, number, settled=settled)
    transacting.command(p.Discharge(txn_id, True))
    if not settled:
        assert count(channel, queue) == 0
        transacting.client.settle(number, p.Released())
    transacting.client.give_credit(1, delivery_count=1)
    assert transacting.client.receive().header.delivery_count == (1 if settled else 0)


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("settled", [True, False])
def test_what_was_settled_outlives_the_link_that_it_came_on(
    transacting: Transacting, channel: amqp.BlockingChannel, queue: str, settled: bool, fail: bool
) -> None:
    """A consumer may be closed before the transaction it received in is committed."""
    channel.basic_publish("", queue, b"x")
    number = transacting.receive_one(queue)
    txn_id = transacting.declare()
    transacting.settle(txn_id, number, settled=settled)
    transacting.client.send(0, p.Detach(1, closed=True))
    transacting.client.expect(p.Detach)
    assert count(channel, queue) == 0
    assert transacting.command(p.Discharge(txn_id, fail)) == p.Accepted()
    assert count(channel, queue) == int(fail)


def test_a_transaction_that_a_queue_has_no_room_for_is_refused_whole(
    raw_amqp10: Callable[..., RawAmqp10], channel: amqp.BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    transacting = Transacting(raw_amqp10(), name)
    txn_id = transacting.declare()
    transacting.publish(txn_id, b"1")
    transacting.publish(txn_id, b"2")
    outcome = transacting.command(p.Discharge(txn_id))
    assert isinstance(outcome, p.Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == c.TRANSACTION_ROLLBACK
    assert count(channel, name) == 0


def test_a_lost_client_leaves_nothing_of_its_transaction(
    transacting: Transacting, channel: amqp.BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x")
    number = transacting.receive_one(queue)
    txn_id = transacting.declare()
    transacting.settle(txn_id, number)
    transacting.publish(txn_id, b"y")
    transacting.client.send(0, p.Close())
    transacting.client.expect(p.Close)
    assert count(channel, queue) == 1
    assert channel.basic_get(queue, auto_ack=True)[2] == b"x"


def test_what_a_transaction_cannot_take_settled_ends_its_link(transacting: Transacting) -> None:
    """The client would be told nothing otherwise, and commit without it."""
    txn_id = transacting.declare()
    client = transacting.client
    client.transfer(message(b"x", user_id=b"other"), settled=True, state=p.TransactionalState(txn_id))
    ended = client.expect(p.Detach)
    assert ended.error is not None
    assert ended.error.condition == c.PRECONDITION_FAILED


def test_an_unknown_transaction_is_told_so(transacting: Transacting) -> None:
    outcome = transacting.command(p.Discharge(b"nothing"))
    assert isinstance(outcome, p.Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == c.UNKNOWN_TRANSACTION
