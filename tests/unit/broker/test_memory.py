"""Giving memory back never does harm, wherever it is called."""

import threading

from broker.memory import memory_returner


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
