"""What a cursor gives up: to the dead letters, or kept as failed where there are none or they refuse."""

import pytest

from queue_manager.claims.claim import DONE, FAILED, Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import EXPIRED, REJECTED, Failures
from queue_manager.model import Message
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


class Letters:
    """A dead-letter queue that takes what it is told to."""

    def __init__(self, *, is_wanted: bool, takes: bool) -> None:
        self._is_wanted = is_wanted
        self._takes = takes
        self.sent: list[tuple[str, int, int, str]] = []

    def is_wanted(self) -> bool:
        return self._is_wanted

    def send(self, group_id: str, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        if self._is_wanted and self._takes:
            self.sent.append((group_id, message.offset, attempts, reason))
        return self._is_wanted and self._takes


NONE = Letters(is_wanted=False, takes=False)


def begin(letters: Letters) -> tuple[Cursor, Claim, Failures[Cursor]]:
    """The cursor of a group that was given the first of three messages and returned it, and its claim."""
    manager = make_manager()
    queue = make_queue(manager)
    _, sink = consume(manager, queue, "g", credit_max=1)
    publish(manager, 3)
    manager.dispatch(NOW_MS)
    cursor = queue.groups.find("g").cursors[0]
    failures = Failures(cursor, cursor.retention, cursor.claims, cursor.stored, letters)
    return cursor, cursor.claims.put_back(sink.claims[0], NOW_MS), failures


def everything(message: Message) -> bool:
    return True


def test_what_dead_letters_take_is_done() -> None:
    letters = Letters(is_wanted=True, takes=True)
    _, claim, failures = begin(letters)
    failures.give_up(claim, REJECTED, NOW_MS)
    assert (claim.state, letters.sent) == (DONE, [("g", 0, 1, REJECTED)])


@pytest.mark.parametrize("letters", [NONE, Letters(is_wanted=True, takes=False)], ids=["none", "refused"])
def test_what_nobody_takes_is_kept_as_failed_with_its_payload(letters: Letters) -> None:
    cursor, claim, failures = begin(letters)
    failures.give_up(claim, REJECTED, NOW_MS)
    assert (claim.state, cursor.claims.buckets.failed_count) == (FAILED, 1)
    assert cursor.progress.failed.contains(0)


def test_discarded_claim_is_done_where_no_dead_letters_are_wanted() -> None:
    cursor, claim, failures = begin(NONE)
    failures.discard(claim, EXPIRED, NOW_MS + 5)
    assert (claim.state, claim.at_ms, cursor.claims.buckets.failed_count) == (DONE, NOW_MS + 5, 0)


def test_fresh_messages_that_dead_letters_refuse_are_kept_as_failed() -> None:
    cursor, _, failures = begin(Letters(is_wanted=True, takes=False))
    messages = cursor.backlog.take(2)
    done_with, count = failures.discard_fresh(messages, lambda m: m.offset == 1, EXPIRED, NOW_MS)
    assert count == 2
    assert [message.offset for message in done_with] == [2], "which is nothing for the group"
    assert cursor.progress.failed.contains(1)
    assert failures.discard_fresh(messages, everything, "", NOW_MS) == (messages, 2), "no reason to tell"


def test_revived_claim_is_untried_and_the_log_stands_for_it_again() -> None:
    cursor, claim, failures = begin(NONE)
    failures.give_up(claim, REJECTED, NOW_MS)
    assert claim.bucket is not None
    new = failures.revive(claim.bucket, claim, NOW_MS)
    assert (new.attempts, cursor.claims.buckets.failed_count) == (0, 0)
    assert not cursor.progress.failed.contains(0)
