"""Which states of a claim lead to which."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_manager.claims.claim import (
    AVAILABLE,
    DONE,
    FAILED,
    IN_FLIGHT,
    STALE,
    Bucket,
    Claim,
    Consumer,
    IllegalMove,
)
from queue_manager.claims.ledger import Claims, acknowledge
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


def make_claim(state: int) -> tuple[Claims, Consumer, Claim]:
    """Give a claim in that state, with its ledger and the consumer that had it."""
    manager = make_manager()
    queue = make_queue(manager)
    consumer, sink = consume(manager, queue)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    ledger = queue.groups.find("").cursors[0].claims
    [claim] = sink.claims
    if state == DONE:
        claim.finish()
    elif state == STALE:
        ledger.put_back(claim, NOW_MS)
    elif state != IN_FLIGHT:
        claim = ledger.put_back(claim, NOW_MS)
        if state == FAILED:
            ledger.fail(claim)
    assert claim.state == state
    return ledger, consumer, claim


def bucket_of(claim: Claim) -> Bucket:
    assert claim.bucket is not None
    return claim.bucket


Move = Callable[[Claims, Consumer, Claim], None]


def claim_again(ledger: Claims, consumer: Consumer, claim: Claim) -> None:
    ledger.claim_again(claim, consumer, NOW_MS)


def finish(ledger: Claims, consumer: Consumer, claim: Claim) -> None:
    claim.finish()


def fail(ledger: Claims, consumer: Consumer, claim: Claim) -> None:
    ledger.fail(claim)


def put_back(ledger: Claims, consumer: Consumer, claim: Claim) -> None:
    ledger.put_back(claim, NOW_MS)


def revive(ledger: Claims, consumer: Consumer, claim: Claim) -> None:
    ledger.revive(bucket_of(claim), claim, NOW_MS)


@pytest.mark.parametrize(
    ("state", "move", "after"),
    [
        (AVAILABLE, claim_again, IN_FLIGHT),
        (AVAILABLE, finish, DONE),
        (AVAILABLE, fail, FAILED),
        (IN_FLIGHT, finish, DONE),
        (IN_FLIGHT, put_back, STALE),
        (FAILED, revive, STALE),
    ],
)
def test_a_claim_goes_on_as_its_state_leads_to(state: int, move: Move, after: int) -> None:
    ledger, consumer, claim = make_claim(state)
    move(ledger, consumer, claim)
    assert claim.state == after


@pytest.mark.parametrize(
    ("states", "move"),
    [
        ((IN_FLIGHT, DONE, FAILED, STALE), claim_again),
        ((DONE, FAILED, STALE), finish),
        ((IN_FLIGHT, DONE, FAILED, STALE), fail),
        ((DONE, STALE), put_back),
        ((DONE, STALE), revive),
    ],
)
def test_a_move_the_state_does_not_lead_to_is_refused(states: tuple[int, ...], move: Move) -> None:
    for state in states:
        ledger, consumer, claim = make_claim(state)
        with pytest.raises(IllegalMove):
            move(ledger, consumer, claim)
        assert claim.state == state


@pytest.mark.parametrize("state", [AVAILABLE, DONE, FAILED, STALE])
def test_an_acknowledgement_of_what_is_not_in_flight_changes_nothing(state: int) -> None:
    ledger, _, claim = make_claim(state)
    open_count = bucket_of(claim).open_count
    assert acknowledge([claim], NOW_MS + 1) == 1
    assert (claim.state, bucket_of(claim).open_count) == (state, open_count)


def test_claims_that_are_acknowledged_are_held_by_nobody() -> None:
    _, consumer, claim = make_claim(IN_FLIGHT)
    assert acknowledge([claim], NOW_MS + 1) == 0
    assert (claim.state, claim.at_ms, bucket_of(claim).open_count) == (DONE, NOW_MS + 1, 0)
    assert (consumer.in_flight, consumer.bytes_in_flight) == ({}, 0)
