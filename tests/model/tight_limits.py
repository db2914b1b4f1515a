"""Limits so small that a few messages leave memory, fill entries and buckets, and take many steps."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

from config import limits
from storage import sequence

Limits = Mapping[ModuleType, Mapping[str, int]]
TIGHT: Limits = {
    limits: {
        "TAIL_BYTES_PER_QUEUE_MIN": 2_000,
        "LOAD_MESSAGES_MAX": 7,
        "LOAD_BYTES_MAX": 3_000,
        "LOADED_LOW_WATER": 3,
        "LOG_ENTRY_MESSAGES_MAX": 5,
        "LOG_ENTRY_BYTES_MAX": 600,
        "LOG_INDEX_ENTRIES_MAX": 4,
        "NO_ACK_BURST_MAX": 6,
        "DISPATCHED_PER_TURN_MAX": 9,
        "UNWRITTEN_BUCKETS_MAX": 1,
        "PART_COST_MAX": 25,
        "PART_BUCKETS_MIN": 1,
        "RETURNED_PER_STEP_MAX": 2,
        "PURGED_MESSAGES_PER_SWEEP_MAX": 3,
        "SETTLEMENTS_PER_BUCKET_MAX": 2,
        "ATTEMPTS_KEPT_MAX": 2,
        "ATTEMPTS_LOGS_PER_GROUP_MAX": 3,
        "BACKGROUND_DELETES_PER_COMMIT_MAX": 5,
        "PATTERN_SCAN_MESSAGES_MAX": 20,
        "SELECTOR_SCAN_MESSAGES_MAX": 20,
        "SELECTOR_SCAN_STEP_MESSAGES": 3,
        "SELECTED_MESSAGES_MAX": 4,
        "SELECTED_BYTES_PER_GROUP_MAX": 200,
        "FILTER_FIELDS_KEPT_MAX": 3,
        "FILTER_VERDICTS_KEPT_MAX": 3,
        "PLACED_MESSAGES_PER_GROUP_MAX": 5,
        "PLACED_BYTES_PER_GROUP_MAX": 40,
        "PLACED_STEP_MESSAGES_MAX": 3,
        "MESSAGE_GROUPS_BOUND_MAX": 2,
        "LOAD_ENTRIES_PER_SCAN": 2,
        "RECOVERY_ROWS_PER_SCAN": 3,
        "RECOVERY_DONE_ROWS_PER_SCAN": 2,
        "REMOVAL_ENTRIES_PER_STEP": 2,
        "DONE_BODY_BYTES_MAX": 1_000,
    },
    sequence: {"BLOCK_SIZE": 64},
}


class TightLimits:
    """Sets limits, those of `TIGHT` unless told otherwise, until `undo`."""

    def __init__(self, values_of: Limits = TIGHT) -> None:
        self._before: list[tuple[ModuleType, str, int]] = []
        for module, values in values_of.items():
            for name, value in values.items():
                self._before.append((module, name, getattr(module, name)))
                setattr(module, name, value)

    def undo(self) -> None:
        """Set them back."""
        for module, name, value in self._before:
            setattr(module, name, value)
        self._before = []


@contextmanager
def tight_limits(really: bool = True) -> Iterator[None]:
    """As a context."""
    if not really:
        yield
        return
    tight = TightLimits()
    try:
        yield
    finally:
        tight.undo()
