"""Giving memory back never does harm, wherever it is called."""

import threading

from broker.process.free_memory import ReturnTimes, memory_returner, resident_bytes
from config import limits


def test_from_any_thread_while_others_allocate() -> None:
    give_back = memory_returner()
    stop = threading.Event()
    failures: list[BaseException] = []

    def churn() -> None:
        try:
            while not stop.is_set():
                blocks = [bytes(size) for size in range(1_000, 60_000, 997)]
                assert all(len(block) >= 1_000 for block in blocks)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        give_back()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_memory_goes_back_once_a_busy_time_is_over_in_which_the_process_grew() -> None:
    resident = [100 * limits.MIB]
    times = ReturnTimes(lambda: resident[0], 0.0, 0.0)
    assert not times.look(1.0, 0.9)
    resident[0] += limits.MEMORY_GROWTH_BYTES
    assert not times.look(2.0, 1.8), "there is much to do"
    assert times.look(3.0, 1.9)
    times.given(3.0)
    assert not times.look(4.0, 1.9), "it has not grown since"


def test_memory_goes_back_from_time_to_time_however_busy_the_process_is() -> None:
    times = ReturnTimes(lambda: 0, 0.0, 0.0)
    late_s = float(limits.MEMORY_RETURN_INTERVAL_S)
    assert not times.look(late_s - 1, late_s - 1)
    assert times.look(late_s, late_s)
    times.given(late_s)
    assert not times.look(late_s + 1, late_s + 1)


def test_resident_bytes_are_those_of_this_process() -> None:
    assert resident_bytes() > limits.MIB
