"""What one waiter is told of several shards: in its order, refusals first."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from broker.workers.waits import Entry, Gate, Part, Parts
from queue_manager.outcomes import REFUSED_DEPTH, REFUSED_LOST


class Listening:
    """A publisher's waiter that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        self.told.append((f"refused {outcome}", list(tokens)))

    def committed(self, tokens: list[int]) -> None:
        self.told.append(("committed", list(tokens)))


@pytest.fixture
def waiter() -> Listening:
    return Listening()


@pytest.fixture
def gate(waiter: Listening) -> Gate:
    return Gate(waiter, {})


def entry(gate: Gate, tokens: list[int]) -> Entry:
    made = Entry(gate, tokens, 0)
    gate.entries.append(made)
    return made


def test_tokens_are_told_in_order_whichever_link_is_first(waiter: Listening, gate: Gate) -> None:
    slow, quick = Parts(), Parts()
    slow.add(Part(entry(gate, [1]), 1, 1, (1,)))
    quick.add(Part(entry(gate, [2]), 1, 1, (2,)))
    quick.done(1)
    assert waiter.told == []
    slow.done(1)
    assert waiter.told == [("committed", [1]), ("committed", [2])]


def test_an_entry_waits_for_all_its_links_and_the_own_shard(waiter: Listening, gate: Gate) -> None:
    one, other = Parts(), Parts()
    waited = entry(gate, [7])
    one.add(Part(waited, 1, 1, (7,)))
    other.add(Part(waited, 5, 5, (7,)))
    waited.open_count += 1  # this shard's commit
    one.done(1)
    waited.committed([0])
    assert waiter.told == []
    other.done(9)
    assert waiter.told == [("committed", [7])]


def test_publishes_of_one_turn_wait_for_the_own_shard_together(waiter: Listening, gate: Gate) -> None:
    parts = Parts()
    waited = entry(gate, [2])
    for number in (1, 2):
        parts.add(Part(waited, number, number, (number,)))
        waited.open_count += 1
    parts.done(2)
    assert waiter.told == []
    waited.committed([0, 0])  # one commit, which was asked for twice
    assert waiter.told == [("committed", [2])]


def test_a_refusal_names_the_token_of_its_publish_before_that_is_committed(
    waiter: Listening, gate: Gate
) -> None:
    parts = Parts()
    parts.add(Part(entry(gate, [13]), 21, 23, range(11, 14)))
    parts.refused(22, REFUSED_DEPTH)
    parts.done(23)
    assert waiter.told == [(f"refused {REFUSED_DEPTH}", [12]), ("committed", [13])]


def test_what_a_lost_link_did_not_confirm_is_refused(waiter: Listening, gate: Gate) -> None:
    parts = Parts()
    parts.add(Part(entry(gate, [1]), 1, 1, (1,)))
    parts.add(Part(entry(gate, [3]), 2, 3, (2, 3)))
    parts.done(1)
    parts.lost()
    assert waiter.told == [("committed", [1]), (f"refused {REFUSED_LOST}", [2, 3]), ("committed", [3])]


@pytest.mark.parametrize("seed", range(50))
def test_every_token_is_told_once_and_in_order_with_links_late_at_random(seed: int) -> None:
    chance = random.Random(seed)
    waiter = Listening()
    gates: dict[object, Gate] = {}
    gate = gates[waiter] = Gate(waiter, gates)  # type: ignore[arg-type]
    links = [Parts() for _ in range(3)]
    sent, confirmed = [0, 0, 0], [0, 0, 0]
    own: list[Entry] = []
    token = 0
    while token < 60 or own or confirmed != sent:
        if token < 60 and chance.random() < 0.5:
            token += 1
            waited = entry(gate, [token])
            for number in chance.sample(range(3), chance.randint(0, 3)):
                sent[number] += 1
                links[number].add(Part(waited, sent[number], sent[number], (token,)))
            if not waited.open_count or chance.random() < 0.3:
                waited.open_count += 1
                own.append(waited)
        elif own and chance.random() < 0.5:
            own.pop(0).committed([0])
        else:
            number = chance.randrange(3)
            if confirmed[number] < sent[number]:
                confirmed[number] = chance.randint(confirmed[number] + 1, sent[number])
                links[number].done(confirmed[number])
    assert waiter.told == [("committed", [number]) for number in range(1, 61)]
    assert gates == {}
