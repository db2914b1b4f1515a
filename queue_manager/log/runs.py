"""Runs of messages with consecutive offsets and message IDs: how payloads are counted up and deleted."""

from __future__ import annotations

from collections.abc import Iterable

Run = tuple[int, int, int]  # first offset, first message ID, count of consecutive ones


def add_to_runs(runs: list[Run], offset: int, message_id: int) -> None:
    """Add one message to runs."""
    if runs:
        first_offset, first_id, count = runs[-1]
        if offset == first_offset + count and message_id == first_id + count:
            runs[-1] = (first_offset, first_id, count + 1)
            return
    runs.append((offset, message_id, 1))


def runs_of(rows: Iterable[tuple[int, int, bool]]) -> tuple[list[Run], list[Run]]:
    """Return the runs of rows (see `removals.Row`): of those whose payload is theirs alone, and that share
    it.
    """
    runs: list[Run] = []
    shared_runs: list[Run] = []
    for offset, message_id, is_shared in rows:
        add_to_runs(shared_runs if is_shared else runs, offset, message_id)
    return runs, shared_runs
