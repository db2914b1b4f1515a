"""broker.engine.log_steps: how many entries of a log are read at a time to be deleted."""

import pytest

from broker.engine.log_steps import FittingSteps
from config import limits


@pytest.mark.parametrize(
    ("entry_bytes", "entry_count"),
    [
        (60, limits.REMOVAL_ENTRIES_PER_STEP),
        (limits.REMOVAL_STEP_BYTES // 5, 4),
        (limits.REMOVAL_STEP_BYTES // 2, 1),
        (10 * limits.REMOVAL_STEP_BYTES, 1),
    ],
)
def test_no_more_entries_are_read_than_can_be_gone_through_in_a_turn(entry_bytes, entry_count):
    steps = FittingSteps()
    assert steps.entry_count == 1, "the first may be of any size"
    for _ in range(3):
        steps.read([(b"k", bytes(entry_bytes))] * steps.entry_count)
        assert steps.entry_count == entry_count
