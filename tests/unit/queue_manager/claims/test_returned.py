"""The order in which claims that came back go out again."""

from queue_manager.claims.claim import AVAILABLE, DONE, Claim
from queue_manager.claims.ledger import Returned
from queue_manager.model import Message
from storage.envelope import EnvelopeTemplate


def make(offset: int, state: int = AVAILABLE) -> Claim:
    message = Message(offset, offset, b"", EnvelopeTemplate("t"), 0)
    return Claim(message, 100 - offset, None, 1, state, None, 0)


def begin(*claims: Claim) -> Returned:
    returned = Returned()
    for claim in claims:
        returned.add(claim)
    return returned


def offsets(claims: list[Claim]) -> list[int]:
    return sorted(claim.message.offset for claim in claims)


def test_claims_go_out_in_order_of_offsets_however_they_came() -> None:
    returned = begin(make(5), make(2))
    returned.add_all([make(9), make(1)])
    taken = []
    while (first := returned.first()) is not None:
        assert returned.pop() is first
        taken.append(first.message.offset)
    assert taken == [1, 2, 5, 9]


def test_what_has_ended_is_not_taken_and_can_be_forgotten() -> None:
    returned = begin(make(1, DONE), make(3), make(2, DONE))
    assert offsets(returned.available()) == [3]
    returned.forget_ended()
    assert len(returned.heap) == 1
    assert offsets(returned.take_all()) == [3]
    assert returned.first() is None


def test_what_is_not_kept_is_taken_out_and_the_rest_stays_in_order() -> None:
    returned = begin(*map(make, (7, 1, 4, 2, 6)))
    assert offsets(returned.take_unless(lambda message: message.offset % 2 == 0)) == [1, 7]
    assert [returned.pop().message.offset for _ in range(3)] == [2, 4, 6]
