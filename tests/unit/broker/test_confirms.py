"""Refusals that are told when they are durable, among the confirms of the same commits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.settling.confirms import Confirms
from broker.engine.client.commits import CommitClient
from protocols.amqp091 import hot
from queue_manager.shard.commit import Commit


class Connection:
    """What confirms need of the objects around them."""

    def __init__(self) -> None:
        self.output: list[bytes] = []
        self.manager = SimpleNamespace(context=SimpleNamespace(commit=Commit()))
        client: Any = SimpleNamespace(connection=self, transport=self)
        shard: Any = SimpleNamespace(manager=self.manager)
        client.hub = SimpleNamespace(client=SimpleNamespace(commits=CommitClient(shard)))
        self.confirms = Confirms(AmqpChannel(client, 1))
        self.confirms.select()

    def channel_is_open(self, number: int) -> bool:
        return number == 1

    def guard(self, call: Any, *arguments: Any) -> None:
        call(*arguments)

    def want_answer(self) -> None:
        pass

    def refuse(self) -> None:
        self.confirms.nack_when_durable()

    def commit(self, commit: Commit) -> None:
        for waiter, tokens in commit.waiters.items():
            waiter.committed(tokens)

    def seal(self) -> Commit:
        commit: Commit = self.manager.context.commit
        self.manager.context.commit = Commit()
        return commit


def ack(number: int, multiple: bool) -> bytes:
    return hot.encode_ack(1, number, multiple)


def nack(number: int) -> bytes:
    return hot.encode_nack(1, number)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("prp", [nack(2), ack(3, True)]),
        ("rp", [nack(1), ack(2, True)]),
        ("prr", [ack(1, False), nack(2), nack(3)]),
        ("rpr", [nack(1), nack(3), ack(2, True)]),
    ],
)
def test_a_refusal_is_told_before_what_a_confirm_stands_for(pattern: str, told: list[bytes]) -> None:
    connection = Connection()
    for letter in pattern:
        if letter == "p":
            connection.confirms.confirm(1, durable=True)
        else:
            connection.refuse()
    assert not connection.output
    connection.commit(connection.seal())
    assert connection.output == told
    assert connection.confirms._waiting == 0


def test_what_is_not_durable_waits_for_a_refusal_before_it() -> None:
    connection = Connection()
    connection.refuse()
    first = connection.seal()
    connection.confirms.confirm(1, durable=False)
    second = connection.seal()
    assert not connection.output
    connection.commit(first)
    assert connection.output == [nack(1)]
    connection.commit(second)
    assert connection.output == [nack(1), ack(2, True)]
