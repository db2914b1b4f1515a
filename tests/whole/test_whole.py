"""Some seconds of fixed seeds, and every sequence that once found a defect."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.replay import read
from tests.whole.run import Host, work

FOUND = Path(__file__).parent / "found"


SEQUENCES = 30


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.end()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("restarts", "seconds", "workers"),
    [(0.0, 40, 1), (1.0, 20, 1), (0.0, 20, 2)],
    ids=["running", "restarted", "workers"],
)
def test_random_sequences_end_as_the_oracle_says(
    restarts: float, seconds: int, workers: int, tmp_path: Path
) -> None:
    """Seeds from 1 on, the same ones on every machine that is quick enough."""
    counts, ran, failed = work(1, 1, seconds, SEQUENCES, restarts, 1, tmp_path, workers=workers)
    assert not failed, "see what was printed"
    assert ran
    assert counts["messages published"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_sequence_that_found_a_defect_ends_as_the_oracle_says(path: Path, host: Host) -> None:
    mismatch = host.run(read(path))
    assert mismatch is None, str(mismatch)
