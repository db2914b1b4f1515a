"""Two brokers, as processes, on one prefix of an S3 bucket."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.storage_faults.s3 import BUCKET, s3_endpoint
from tests.waiting import until

PATIENCE_S = 20


@pytest.fixture
def broker_on_s3(tmp_path) -> Iterator[Callable[[str], BrokerProcess]]:
    """Makes brokers, not started, that share a prefix."""
    made: list[BrokerProcess] = []
    with s3_endpoint() as environment:

        def make(name: str) -> BrokerProcess:
            made.append(BrokerProcess(tmp_path / name, storage=f"s3://{BUCKET}/x", environment=environment))
            return made[-1]

        yield make
        for process in made:
            process.kill9()


def until_logged(process: BrokerProcess, text: str) -> None:
    until(lambda: text in process.log, PATIENCE_S, told=lambda: f"{text}\n{process.log[-2000:]}")


@pytest.mark.timeout(120)
def test_second_start_says_whom_it_waits_for_and_serves_once_that_has_stopped(broker_on_s3):
    first, second = broker_on_s3("first"), broker_on_s3("second")
    first.start()
    channel = amqp.connect(first.amqp_port).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", "before")
    second.spawn()
    until_logged(second, f"waiting for process {first.pid} on ")
    second.process.terminate()
    assert second.wait_exit() == 0, "a start that waits can be stopped"
    amqp.publish(channel, "work", "after")
    second.spawn()
    assert first.stop() == 0
    second.wait_ready()
    heir = amqp.connect(second.amqp_port).channel()
    assert [heir.basic_get("work", auto_ack=True)[2] for _ in range(2)] == [b"before", b"after"]


@pytest.mark.timeout(120)
def test_start_does_not_wait_for_a_killed_process_of_the_same_machine(broker_on_s3):
    process = broker_on_s3("killed")
    process.start()
    began = time.monotonic()
    process.restart(kill=True)
    assert time.monotonic() - began < 15
    assert "waiting for" not in process.log
