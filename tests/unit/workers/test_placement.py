"""Which worker a new queue goes to."""

from __future__ import annotations

import pytest

from broker.workers.placement import Placement


def placement(*busy: float) -> Placement:
    """As worker 0 sees it, where the workers are so busy."""
    made = Placement(0)
    for worker, share in enumerate(busy):
        made.note(worker, share)
    return made


@pytest.mark.parametrize(
    ("busy", "worker"),
    [
        ((), 0),
        ((0.9,), 0),
        ((0.4, 0.0), 0),  # it has enough left
        ((0.9, 0.8), 0),
        ((0.9, 0.1), 1),
        ((0.9, 0.2, 0.1), 2),
        ((0.9, 0.9, 0.9, 0.1), 0),
        ((0.2, 0.9), 0),
    ],
)
def test_a_queue_goes_elsewhere_only_from_a_worker_much_busier_than_the_others(
    busy: tuple[float, ...], worker: int
) -> None:
    assert placement(*busy).choose() == worker


def test_a_worker_that_is_gone_is_given_nothing() -> None:
    made = placement(0.9, 0.1)
    made.forget(1)
    assert made.choose() == 0
