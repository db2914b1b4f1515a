"""The broker is killed -9 at random while everybody works; then every message is accounted for."""

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.crash.clients import (
    QUEUE,
    AmqpConsumer,
    AmqpPublisher,
    Client,
    MqttConsumer,
    MqttPublisher,
    Stage,
    wait_for_a_while,
    wait_for_groups,
)
from tests.crash.ledger import Ledger
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.extension

SEED = int(os.environ.get("CRASH_SEED", "20261120"))
GROUPS = ("billing", "audit", "device")
DRAIN_S = 20.0


def kill_and_restart(stage: Stage, rng: random.Random, longest_life_s: float) -> None:
    """One life and its end; sometimes the next broker is killed too, while it still recovers."""
    wait_for_a_while(rng, 0.3, longest_life_s)
    stage.kill()
    if rng.random() < 0.2:
        stage.broker.spawn()
        wait_for_a_while(rng, 0.1, 0.8)
        stage.broker.kill9()
    stage.start()


def wait_drained(ledger: Ledger) -> None:
    with suppress(AssertionError):  # the ledger tells what is lost
        until(lambda: not any(ledger.lost(group) for group in GROUPS), DRAIN_S)
        until(ledger.is_surely_settled, DRAIN_S)


def run(
    directory: Path, kills: int, seed: int, make_broker: Callable[..., BrokerProcess] = BrokerProcess
) -> tuple[BrokerProcess, Ledger]:
    rng = random.Random(seed)
    ledger = Ledger()
    broker = make_broker(directory, {"queues": [{"name": QUEUE}]}).start()
    stage = Stage(broker, ledger)
    clients: list[Client] = [
        AmqpPublisher(stage, "a"),
        MqttPublisher(stage, "m"),
        AmqpConsumer(stage, "billing 1", "billing"),
        AmqpConsumer(stage, "billing 2", "billing"),
        AmqpConsumer(stage, "audit 1", "audit"),
        MqttConsumer(stage, "device-1", "device"),
    ]
    try:
        for client in clients:
            client.start()
        stage.serving.set()
        wait_for_groups(broker, *GROUPS)
        stage.publishing.set()
        for number in range(kills):
            kill_and_restart(stage, rng, 1.6 if number % 5 == 4 else 0.9)
        stage.draining.set()
        wait_drained(ledger)
    finally:
        stage.draining.set()
        stage.stopped.set()
        stage.publishing.set()
        for client in clients:
            client.join(10)
        ledger.killed_at[stage.life] = time.monotonic()
        broker.kill9()
    return broker, ledger


def check(broker: BrokerProcess, ledger: Ledger, kills: int) -> None:
    story = f"seed {SEED}, {ledger.summary()}"
    print(story)
    assert ledger.failures == [], story
    assert len(ledger.killed_at) == kills + 1, story
    assert len(ledger.confirmed) > 20 * kills, story
    assert ledger.invented() == set(), story
    for group in GROUPS:
        assert sorted(ledger.lost(group))[:20] == [], f"lost by {group}: {story}"
    assert ledger.delivered_after_ack()[:5] == [], story
    assert ledger.twice_in_a_life()[:5] == [], story
    assert ledger.out_of_order()[:5] == [], story
    for group in ("audit", "device"):
        assert ledger.first_deliveries_out_of_order(group)[:5] == [], f"{group}: {story}"
    assert ledger.not_flagged()[:5] == [], story
    assert any(delivery.redelivered for delivery in ledger.deliveries), story
    nothing_acked_is_left(broker, ledger, story)


def nothing_acked_is_left(broker: BrokerProcess, ledger: Ledger, story: str) -> None:
    """No group gets what it acked well before the last kill."""
    broker.start()
    connection = amqp.connect(broker.amqp_port)
    try:
        channel = connection.channel()
        consumers = {
            group: amqp.Collector(channel, QUEUE, arguments={"x-consumer-group": group}) for group in GROUPS
        }
        life = len(ledger.killed_at)
        for group, consumer in consumers.items():
            left = amqp.bodies(consumer.wait_quiet())
            assert [body for body in left if ledger.surely_acked(group, body, life)] == [], story
    finally:
        amqp.close_quietly(connection)
        broker.kill9()


def test_ten_crashes(tmp_path):
    broker, ledger = run(tmp_path, 10, SEED)
    check(broker, ledger, 10)


def test_crashes_of_an_encrypted_storage(tmp_path):
    key = tmp_path / "storage.key"
    key.write_text("ab" * 32)

    def encrypted(directory: Path, config: dict[str, Any]) -> BrokerProcess:
        keys = [{"id": "k", "file": str(key)}]
        return BrokerProcess(directory, {**config, "storage": {"encryption": {"keys": keys}}})

    broker, ledger = run(tmp_path / "broker", 4, SEED, encrypted)
    check(broker, ledger, 4)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(3))
def test_many_crashes(tmp_path, seed):
    broker, ledger = run(tmp_path, 100, SEED + seed)
    check(broker, ledger, 100)
