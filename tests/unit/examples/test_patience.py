import pytest

pytest.importorskip("psutil")

from examples.pipeline_demo.patience import STILL_S, TELL_INTERVAL_S, Patience


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def test_what_moves_is_waited_for_and_told_of():
    clock = Clock()
    said: list[str] = []
    patience = Patience("the first batch", said.append, clock)
    for step in range(10):
        clock.now_s += STILL_S - 1
        patience.look(step)
    assert said[0] == f"waiting for the first batch: {STILL_S - 1} s"
    assert len(said) == 10
    assert STILL_S > TELL_INTERVAL_S


def test_what_stands_still_is_given_up():
    clock = Clock()
    patience = Patience("the first batch", lambda text: None, clock)
    patience.look("same")
    clock.now_s += STILL_S
    patience.look("same")
    clock.now_s += 1
    with pytest.raises(RuntimeError, match=f"waited {STILL_S + 1} s for the first batch"):
        patience.look("same")
