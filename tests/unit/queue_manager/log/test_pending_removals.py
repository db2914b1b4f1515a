"""Which removals of groups a log waits for."""

from config import limits
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import GroupRemoval, PendingRemovals
from storage.records import DELETE, RELEASE
from tests.unit.queue_manager.managers import make_manager, make_queue


def begin() -> tuple[QueueLog, PendingRemovals]:
    log = make_queue(make_manager()).parts[0].log
    return log, PendingRemovals(log.context)


def free(*pairs: tuple[int, int]) -> RangeSet:
    ranges = RangeSet()
    ranges.add_pairs(pairs)
    return ranges


def test_removal_is_written_and_performed_until_it_has_ended() -> None:
    log, removals = begin()
    removal = GroupRemoval(log, "jobs", 7, RELEASE)
    removals.begin(removal, free((2, 4)))
    assert log.context.commit.puts[removal.key()] == removal.encode()
    assert log.context.take_removals() == [removal]
    assert [removals.end(removal), removals.end(removal), len(removals)] == [True, False, 0]
    assert removal.key() in log.context.commit.deletes


def test_log_is_kept_from_the_lowest_payload_that_has_yet_to_be_found() -> None:
    log, removals = begin()
    assert removals.lowest_free(9) == 9
    removals.begin(GroupRemoval(log, "jobs", 1, RELEASE), free((12, 14)))
    removals.begin(GroupRemoval(log, "jobs", 2, RELEASE), free((5, 6), (8, 9)))
    assert removals.lowest_free(9) == 5


def test_new_group_of_a_name_numbers_its_claims_behind_those_that_go() -> None:
    log, removals = begin()
    removals.begin(GroupRemoval(log, "jobs\x1fg", 1, DELETE, claim_end=200), free())
    removals.restore(GroupRemoval(log, "jobs\x1fg", 2, DELETE, claim_end=300))
    assert [removals.first_claim(group_id) for group_id in ("g", "other")] == [300, 0]


def test_only_so_many_wait_at_a_time() -> None:
    log, removals = begin()
    for number in range(limits.GROUP_REMOVALS_PER_QUEUE_MAX):
        assert not removals.is_full
        removals.restore(GroupRemoval(log, "jobs", number, RELEASE))
    assert removals.is_full
