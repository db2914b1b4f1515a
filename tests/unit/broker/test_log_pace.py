from broker.logs.log_pace import LogPace


def test_first_is_told_and_the_next_ones_with_the_first_after_the_interval():
    pace = LogPace(1_000)
    assert pace.turn(50) == 1
    assert pace.turn(60) == 0
    assert pace.turn(1_049, count=5) == 0
    assert pace.turn(1_050) == 7
    assert pace.turn(1_051) == 0
    assert pace.turn(9_000) == 2


def test_clock_that_was_set_back_does_not_silence_it():
    pace = LogPace(1_000)
    pace.turn(5_000)
    assert pace.turn(10) == 1
