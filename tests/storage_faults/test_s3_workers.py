"""Brokers of several workers on an object store: a shard for each below one URL."""

import asyncio
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.nodes.node_keeper import FOLDER
from broker.nodes.shard_map import MAP_KEY
from storage.object_records import ObjectRecords
from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerFailed, BrokerProcess, command_line
from tests.storage_faults.s3 import BUCKET, s3_endpoint
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def broker_on_s3(tmp_path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers, not started, on a prefix of this test alone."""
    made: list[BrokerProcess] = []
    with s3_endpoint() as environment:

        def make(config: dict[str, Any]) -> BrokerProcess:
            url = f"s3://{BUCKET}/{uuid.uuid4().hex}/x"
            directory = tmp_path / str(len(made))
            made.append(BrokerProcess(directory, config, storage=url, environment=environment))
            return made[-1]

        yield make
        for process in made:
            process.kill9()


def declare_everywhere(broker: BrokerProcess) -> None:
    """Declare queues until both workers have been connected to, which is likely with so many."""
    for number in range(24):
        connection = amqp.connect(broker.amqp_port)
        connection.channel().queue_declare(f"q{number}", durable=True)
        connection.close()


def pids(broker: BrokerProcess) -> list[int]:
    return list(json.loads(broker.ready_file.read_text("utf-8"))["workers"])


def test_queues_of_other_shards_are_not_left_behind(broker_on_s3):
    broker = broker_on_s3({"workers": 2})
    broker.start(60)
    declare_everywhere(broker)
    assert broker.stop() == 0
    broker.config = {}
    with pytest.raises(BrokerFailed, match="exited with 1"):
        broker.start()
    assert f"opening: {broker.storage}/shard-1 holds queues" in broker.log
    broker.config = {"workers": 2}
    assert broker.start(60).stop() == 0


def test_worker_that_was_killed_comes_back_soon(broker_on_s3):
    broker = broker_on_s3({"workers": 2})
    broker.start(60)
    before = pids(broker)
    began = time.monotonic()
    os.kill(before[1], signal.SIGKILL)
    until(lambda: pids(broker) != before)
    assert time.monotonic() - began < 15, "nobody waits for the end of a process that is gone"
    assert broker.stop() == 0


def test_one_worker_starts_where_other_shards_hold_nothing(broker_on_s3):
    broker = broker_on_s3({"workers": 2})
    assert broker.start(60).stop() == 0
    broker.config = {}
    assert broker.start(60).stop() == 0


@pytest.mark.parametrize("journal", ["none", "local"])
def test_shards_are_merged_where_they_are_and_the_others_left_empty(broker_on_s3, tmp_path, journal):
    storage = (
        {"journal": journal, "journal_directory": str(tmp_path / "journal")} if journal == "local" else {}
    )
    broker = broker_on_s3({"workers": 2, "storage": storage})
    broker.start(60)
    declare_everywhere(broker)
    channel = amqp.connect(broker.amqp_port).channel()
    channel.confirm_delivery()
    for number in range(24):
        amqp.publish(channel, f"q{number}", f"m{number}")
    broker.kill9()
    command = ["store", "merge", "--config", str(broker.config_file), "--storage", broker.storage, "--json"]
    for moved in (1, 0):
        done = subprocess.run(
            command_line(*command),
            cwd=WORKING_DIRECTORY,
            env={**os.environ, **broker.environment},
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)) == moved
    for count in (1, 2):  # and a worker may use what was left
        broker.config = {"workers": count, "storage": storage}
        broker.start(60)
        channel = amqp.connect(broker.amqp_port).channel()
        for number in range(24):
            got = amqp.get(channel, f"q{number}", auto_ack=False)
            assert got is not None
            assert got.body == b"m%d" % number
        assert broker.stop() == 0


def test_shards_of_nodes_are_not_merged(broker_on_s3, monkeypatch):
    broker = broker_on_s3({})
    for name, value in broker.environment.items():
        monkeypatch.setenv(name, value)
    asyncio.run(ObjectRecords(broker.storage, FOLDER, 10).put(MAP_KEY, b"{}", None))
    done = subprocess.run(
        command_line("store", "merge", "--storage", broker.storage),
        cwd=WORKING_DIRECTORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "is the storage of nodes (cluster.listen)" in " ".join(done.stderr.split())
