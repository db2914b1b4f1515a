"""Backups of a broker with several workers, and what is seen of its shards without it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from storage.layout import INDEX_NAME
from tests.e2e import amqp
from tests.e2e.test_workers_admin import PASSWORD, TwoWorkers

pytestmark = pytest.mark.timeout(90)

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], TwoWorkers]]:
    made: list[TwoWorkers] = []

    def make(name: str) -> TwoWorkers:
        made.append(TwoWorkers(tmp_path / name))
        return made[-1]

    yield make
    for workers in made:
        if workers.brokers:
            workers.stop()


def run(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(
        app, list(arguments), env={"SLUICEMQ_USER": "boss", "SLUICEMQ_PASSWORD": PASSWORD}
    )
    assert done.exit_code == code, done.output
    if "--json" not in arguments:
        return done.output
    lines = done.stdout.splitlines()  # the workers of this process log there, too
    begin = next(index for index, line in enumerate(lines) if line in ("{", "["))
    end = max(index for index, line in enumerate(lines) if line in ("}", "]"))
    return json.loads("\n".join(lines[begin : end + 1]))


def fill(workers: TwoWorkers) -> None:
    for number in (0, 1):
        with workers.amqp(number) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare("x", "topic", durable=True)
            channel.queue_declare(f"q{number}", durable=True)
            channel.queue_bind(f"q{number}", "x", "#")
            for index in range(3):
                channel.basic_publish("", f"q{number}", f"{number}-{index}".encode(), PERSISTENT)


def drain(workers: TwoWorkers, at: int, queue: str) -> list[str]:
    bodies: list[str] = []
    with workers.amqp(at) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            bodies.append(got[2].decode())
    return bodies


def check_filled(workers: TwoWorkers) -> None:
    for number in (0, 1):
        assert drain(workers, number, f"q{number}") == [f"{number}-{index}" for index in range(3)]
    with workers.amqp(0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("x", "any", b"through", PERSISTENT, mandatory=True)
    assert [drain(workers, number, f"q{number}") for number in (0, 1)] == [["through"], ["through"]]


def test_backup_of_two_workers_is_restored_with_the_shards_of_both(make, tmp_path):
    workers = make("first")
    fill(workers)
    place = tmp_path / "backup"
    told = run("backup", str(place), "--url", workers.http_url, "--json")
    assert told["shards"] == 2
    with workers.amqp(1) as connection:
        connection.channel().queue_declare("later", durable=True)
    workers.stop()
    run("restore", str(place), "--check")
    restored = tmp_path / "second" / "data"
    run("restore", str(place), "--storage", str(restored))
    assert (restored / "shard-1").is_dir()
    second = make("second")
    check_filled(second)
    assert [view.name for view in second.call(second.brokers[0].admin.queues())] == ["q0", "q1"]


def test_backup_without_one_of_its_shards_is_not_restored(make, tmp_path):
    workers = make("first")
    fill(workers)
    workers.stop()
    place = tmp_path / "backup"
    run("backup", str(place), "--offline", "--storage", str(tmp_path / "first" / "data"))
    assert run("restore", str(place), "--check", "--json")["shards"] == 2
    (place / "shard-1" / INDEX_NAME).rename(tmp_path / "elsewhere")
    run("restore", str(place), "--storage", str(tmp_path / "second"), code=1)
    assert not (tmp_path / "second").exists()


def test_store_commands_walk_the_shards(make, tmp_path):
    workers = make("first")
    fill(workers)
    workers.stop()
    storage = str(tmp_path / "first" / "data")
    for command in ("inspect", "verify"):
        found = run("store", command, "--storage", storage, "--json")
        assert [each["shard"] for each in found] == [0, 1]
        assert all(each["tallies"]["queue specification"]["count"] >= 1 for each in found), found
    assert "shard 1" in run("store", "verify", "--storage", storage)
    keys = run("store", "keys", "--storage", storage, "--json")
    assert {each["shard"] for each in keys} == {0, 1}
    one = run("store", "inspect", "--storage", f"{storage}/shard-1", "--json")
    assert one["tallies"] == run("store", "inspect", "--storage", storage, "--json")[1]["tallies"]


def test_cut_of_both_shards_is_refused_while_a_worker_is_missing(make, tmp_path):
    workers = make("first")
    workers.stop_one(1)
    told = run("backup", str(tmp_path / "backup"), "--url", workers.http_url, code=1)
    assert "worker 1 is missing" in told
    workers.start_one(1)
    amqp.close_quietly(workers.amqp(1))
