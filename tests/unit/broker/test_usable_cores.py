"""How many cores a process may use: its affinity, and the time of its control groups."""

import os
from pathlib import Path

import pytest

from broker.process.usable_cores import usable_cores

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, ALL),
        ({"": "max 100000"}, ALL),
        ({"a/b": "100000 100000"}, 1),
        ({"a": "50000 100000", "a/b": "max 100000"}, 1),
        ({"a/other": "100000 100000"}, ALL),
        ({"a/b": "nonsense"}, ALL),
    ],
)
def test_the_narrowest_group_around_the_process_bounds(
    tmp_path: Path, quotas: dict[str, str], cores: int
) -> None:
    groups = tmp_path / "groups"
    (groups / "a" / "b").mkdir(parents=True)
    for name, text in quotas.items():
        (groups / name).mkdir(exist_ok=True)
        (groups / name / "cpu.max").write_text(text)
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    assert usable_cores(own, groups) == cores


def test_without_control_groups_all_that_the_process_may_run_on_count(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path) == ALL
