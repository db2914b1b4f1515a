"""`sluicemq bench`: of a broker of its own, and of one that runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(90)

QUICK = ("--seconds", "0.2", "--devices", "3")


def test_bench_measures_a_broker_that_it_starts_and_ends(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", *QUICK, "--directory", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["disk_sync"]["count"] > 0
    assert 0 < told["lone_confirm"]["p50_ms"] <= told["lone_confirm"]["p99_ms"]
    assert told["one_to_one"]["per_second"] > 0
    assert (told["fleet_devices"], told["fleet"]["count"] > 0) == (3, True)
    assert not list(tmp_path.iterdir())


def test_bench_of_a_running_broker_leaves_nothing_in_it(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    users = tmp_path / "users.yaml"
    added = ["user", "add", "boss", "--file", str(users), "--password-stdin", "--tag", "administrator"]
    CliRunner().invoke(app, added, input="pw\n")
    broker = own_broker({"access": {"users_file": str(users)}})
    login = ["--url", broker.http_url, "--user", "boss", "--password-stdin"]
    done = CliRunner().invoke(app, ["bench", *QUICK, *login], input="pw\n")
    assert done.exit_code == 0, done.output
    assert "MESSAGES/S" in done.stdout
    assert "disk" not in done.stdout
    listed = CliRunner().invoke(app, ["queue", "ls", "--json", *login], input="pw\n")
    assert json.loads(listed.stdout) == []


def test_bench_without_a_broker_there_says_so() -> None:
    assert CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:9"]).exit_code == 3
