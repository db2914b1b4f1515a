import os
import time
from types import SimpleNamespace

import pytest

from config import limits
from storage.local_garbage import LocalGarbage
from storage.local_sync import OnDisk, wal_ids, wal_name, wall_s


class Admin:
    """Answers for manifests, and counts what it is told to collect."""

    def __init__(self, replay_after: dict[int, int], checkpoints: tuple[int, ...] = ()) -> None:
        self._replay_after = replay_after
        self._checkpoints = [SimpleNamespace(manifest_id=number) for number in checkpoints]
        self.collected_count = 0

    async def read_manifest(self, number):
        number = max(self._replay_after) if number is None else number
        return SimpleNamespace(replay_after_wal_id=self._replay_after[number], checkpoints=self._checkpoints)

    async def run_gc_once(self, options):
        assert options.wal_options is None
        assert options.manifest_options is None
        self.collected_count += 1


@pytest.fixture
def database(tmp_path):
    for folder, names in {
        "wal": [wal_name(number) for number in range(1, 13)],
        "manifest": [f"{number:020d}.manifest" for number in range(1, 7)],
        "compactions": [f"{number:020d}.compactions" for number in range(1, 4)],
    }.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    return tmp_path


def on_disk(*, next_wal_id: int = 13, ago_s: float = 0.0) -> OnDisk:
    """Manifest 4 and compaction state 2 were there when the last whole sweep began."""
    return OnDisk(4, 2, next_wal_id, wall_s() - ago_s, time.monotonic() - ago_s)


def numbers(folder) -> list[int]:
    return sorted(int(name.split(".")[0]) for name in os.listdir(folder))


async def test_nothing_goes_that_a_manifest_not_on_disk_replaced(database):
    """Manifest 6 would do without the log up to 12, but only manifest 4 is on disk."""
    garbage = LocalGarbage(database, Admin({4: 7, 6: 12}))
    await garbage.collect(on_disk())
    assert wal_ids(database) == list(range(1, 13)), "what is superfluous now goes the next time"
    await garbage.collect(OnDisk(6, 3, 13, wall_s(), time.monotonic()))
    assert wal_ids(database) == list(range(7, 13))
    assert numbers(database / "manifest") == [4, 5, 6]
    assert numbers(database / "compactions") == [2, 3]


async def test_log_object_that_is_still_to_be_synced_stays(database):
    garbage = LocalGarbage(database, Admin({4: 7}))
    for _ in range(2):
        await garbage.collect(on_disk(next_wal_id=5))
    assert wal_ids(database) == list(range(5, 13))


async def test_manifest_that_a_checkpoint_names_stays(database):
    garbage = LocalGarbage(database, Admin({4: 7}, checkpoints=(2,)))
    for _ in range(2):
        await garbage.collect(on_disk())
    assert numbers(database / "manifest") == [2, 4, 5, 6]


@pytest.mark.parametrize(
    ("took_s", "stepped_s", "collected_count"),
    [(0, 0, 1), (limits.STORE_COMPACTED_AGE_MIN_S, 0, 0), (0, 3_600, 0)],
    ids=["quick sweep", "slow sweep", "the clock was set"],
)
async def test_tables_are_collected_only_behind_a_quick_sweep(database, took_s, stepped_s, collected_count):
    admin = Admin({4: 7})
    garbage = LocalGarbage(database, admin)
    await garbage.collect(on_disk())
    admin.collected_count = 0
    state = on_disk(ago_s=took_s)
    await garbage.collect(state._replace(begun_wall_s=state.begun_wall_s - stepped_s))
    assert admin.collected_count == collected_count
