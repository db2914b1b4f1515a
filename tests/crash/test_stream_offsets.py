"""A reader of a stream keeps its own offset; kill -9 after kill -9 it resumes behind the last one it saw."""

import os
import random
from contextlib import suppress

import pytest
from pamqp import commands

from tests.crash import clients as crash_clients
from tests.crash.clients import QUEUE, AmqpPublisher, Client, Stage, wait_for_a_while
from tests.crash.ledger import Ledger
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_amqp import RawAmqp
from tests.waiting import until

pytestmark = pytest.mark.extension

LARGE = b" " + b"." * 50_000  # so that there is always a commit on its way to the disk
SEED = int(os.environ.get("CRASH_SEED", "20261122"))
DRAIN_S = 30.0


class OwnOffset(Client):
    """Reads without a group. `seen`: the body at each offset; the next one is asked for after a crash."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        self.seen: dict[int, str] = {}

    def work(self, life: int) -> None:
        connection = RawAmqp(self.stage.broker.amqp_port)
        connection.open_channel()
        arguments = {"x-stream-offset": len(self.seen)}
        consume = commands.Basic.Consume(0, QUEUE, "c", no_ack=True, arguments=arguments)
        connection.call(1, consume, commands.Basic.ConsumeOk)
        while not self.stage.stopped.is_set():
            try:
                content = connection.read_content(commands.Basic.Deliver, 0.5)
            except TimeoutError:
                continue
            offset = content.properties.properties.headers["x-stream-offset"]
            if offset != len(self.seen):
                self.ledger.fail(f"life {life}: offset {offset!r} came instead of {len(self.seen)}")
            self.seen[offset] = content.body.split(b" ", 1)[0].decode()  # type: ignore[index]
        connection.drop()


@pytest.fixture(autouse=True)
def large_commits(monkeypatch):
    monkeypatch.setattr(crash_clients, "PADDING", LARGE)
    monkeypatch.setattr(crash_clients, "PAUSE_S", 0.001)


def run(directory, kills):
    rng = random.Random(SEED)
    ledger = Ledger()
    broker = BrokerProcess(directory, {"queues": [{"name": QUEUE, "type": "stream"}]}).start()
    stage = Stage(broker, ledger)
    reader = OwnOffset(stage, "reader")
    clients = [AmqpPublisher(stage, "a"), AmqpPublisher(stage, "b"), reader]
    try:
        for client in clients:
            client.start()
        stage.serving.set()
        stage.publishing.set()
        for _ in range(kills):
            wait_for_a_while(rng, 0.3, 0.9)
            stage.kill()
            stage.start()
        stage.draining.set()
        with suppress(AssertionError):  # the ledger tells what is missing
            until(lambda: ledger.confirmed <= set(reader.seen.values()), DRAIN_S)
    finally:
        for event in (stage.draining, stage.publishing, stage.stopped):
            event.set()
        for client in clients:
            client.join(10)
        broker.kill9()
    return ledger, reader


def check(directory, kills):
    ledger, reader = run(directory, kills)
    story = f"seed {SEED}, {len(ledger.confirmed)} confirmed, {len(reader.seen)} read"
    print(story)
    assert ledger.failures == [], story
    assert len(ledger.confirmed) > 20 * kills, story
    read = set(reader.seen.values())
    assert sorted(ledger.confirmed - read)[:20] == [], story
    assert len(read) == len(reader.seen), f"read twice: {story}"


@pytest.mark.timeout(120)
def test_reader_that_keeps_its_own_offset_misses_nothing_over_six_kills(tmp_path):
    check(tmp_path, 6)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_reader_that_keeps_its_own_offset_misses_nothing_over_sixty_kills(tmp_path):
    check(tmp_path, 60)
