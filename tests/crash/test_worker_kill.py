"""Workers are killed -9 at random while clients of all of them work: every confirmed message is there."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from tests.crash.queue_clients import QUEUES, Ledger, clients, connected, take_rest
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.workers import is_there, pids
from tests.waiting import until

pytestmark = pytest.mark.extension

SEED = int(os.environ.get("CRASH_SEED", "20261126"))
WAIT_S_MAX = 6.0  # a publish that meets a worker which is away is refused after 2 s
DRAIN_S = 60.0


def run(directory: Path, kills: int, seed: int) -> Ledger:
    chance = random.Random(seed)
    ledger = Ledger()
    broker = BrokerProcess(directory, {"workers": 2}).start()

    def connect() -> pika.BlockingConnection:
        return connected(broker.amqp_port)

    for queue in QUEUES:
        connection = connect()
        connection.channel().queue_declare(queue, durable=True)
        connection.close()
    with clients(connect, ledger):
        for _ in range(kills):
            time.sleep(chance.uniform(0.5, 2.0))
            alive = [pid for pid in pids(broker) if is_there(pid)]
            if alive:
                os.kill(chance.choice(alive), signal.SIGKILL)
        time.sleep(2.0)
    with suppress(AssertionError):  # the ledger tells what is lost
        until(lambda: take_rest(connect, ledger), DRAIN_S)
    assert broker.stop() == 0
    return ledger


def check(ledger: Ledger, seed: int) -> None:
    assert ledger.lost() == {}, f"CRASH_SEED={seed}"
    assert ledger.wrong == []
    assert all(ledger.confirmed.values())
    assert ledger.longest_wait_s < WAIT_S_MAX


def test_nothing_confirmed_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    check(run(tmp_path, 3, SEED), SEED)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_nothing_confirmed_is_lost_in_many_kills(tmp_path: Path, seed: int) -> None:
    check(run(tmp_path, 40, seed), seed)
