"""Backups of a broker that goes on, and what is restored from them."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pika
import pytest
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerProcess, command_line
from tests.e2e.mqtt import MqttClient

Connect = Callable[..., pika.BlockingConnection]
pytestmark = pytest.mark.timeout(90)

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def run(*arguments: str, code: int = 0) -> Any:
    """What a command prints; read as JSON where that is asked for."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.output


def publish(broker: BrokerProcess, queue: str, *bodies: str) -> None:
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for body in bodies:
            channel.basic_publish("", queue, body.encode(), PERSISTENT)


def drain(broker: BrokerProcess, queue: str) -> list[str]:
    """Takes all messages that wait."""
    bodies = []
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            bodies.append(got[2].decode())
    return bodies


class Load:
    """Publishes numbers over AMQP, acknowledging every third, and over MQTT, until it is stopped.

    `confirmed` and `acknowledged` are what the broker had answered for.
    """

    def __init__(self, broker: BrokerProcess, mqtt: Callable[..., MqttClient]) -> None:
        self._broker = broker
        self._device = mqtt(broker, version=5)
        self._stop = threading.Event()
        self._moved = threading.Event()
        self.confirmed: list[str] = []
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        publish(self._broker, "load")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def go_on(self) -> None:
        """Waits until more was confirmed."""
        target = len(self.confirmed) + 40
        while len(self.confirmed) < target and self._thread.is_alive():
            self._moved.wait(1)
            self._moved.clear()

    def _run(self) -> None:
        with amqp.connect(self._broker.amqp_port) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            while not self._stop.is_set():
                number += 1
                channel.basic_publish("", "load", f"a{number}".encode(), PERSISTENT)
                self._device.publish("$queue/load", f"m{number}".encode(), qos=1)
                self.confirmed += [f"a{number}", f"m{number}"]
                if number % 3 == 0:
                    method, _, body = channel.basic_get("load")
                    channel.basic_ack(method.delivery_tag)
                    channel.queue_declare("load", passive=True)  # answered behind the acknowledgement
                    self.acknowledged.append(body.decode())
                self._moved.set()


def test_backup_under_load_has_what_was_confirmed_before_once_and_nothing_acknowledged(
    own_broker: Callable[..., BrokerProcess], mqtt: Callable[..., MqttClient], tmp_path: Path
) -> None:
    broker = own_broker()
    before: list[tuple[set[str], set[str], set[str]]] = []
    with Load(broker, mqtt) as load:
        for number in range(2):
            load.go_on()
            confirmed, acknowledged = set(load.confirmed), set(load.acknowledged)
            told = run("backup", str(tmp_path / str(number)), "--url", broker.http_url, "--json")
            assert told["journal_sequence"] > 0
            before.append((confirmed, acknowledged, set(load.acknowledged)))
        load.go_on()
    broker.kill9()
    stalls = [line for line in broker.log.splitlines() if "loop.stalled" in line]
    assert not [line for line in stalls if "cuts." in line or "backups." in line]
    for number, (confirmed, acknowledged, acknowledged_meanwhile) in enumerate(before):
        storage = str(tmp_path / f"restored-{number}")
        run("restore", str(tmp_path / str(number)), "--storage", storage)
        restored = own_broker(storage=storage)
        found = drain(restored, "load")
        assert len(found) == len(set(found))
        assert confirmed - acknowledged_meanwhile <= set(found)
        assert not acknowledged & set(found)
        assert restored.stop() == 0


def test_stopped_broker_is_backed_up_offline_and_a_running_one_only_through_itself(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    publish(broker, "work", "one", "two")
    config = str(broker.config_file)
    run("backup", str(tmp_path / "running"), "--offline", "--storage", broker.storage, code=1)
    assert broker.stop() == 0
    run("backup", str(tmp_path / "refused"), "--url", broker.http_url, code=3)
    run("backup", str(tmp_path / "usage"), "--config", config, code=2)
    run("backup", str(tmp_path / "copy"), "--offline", "--storage", broker.storage)
    assert drain(broker.start(), "work") == ["one", "two"]
    target = tmp_path / "restored"
    target.mkdir()
    run("restore", str(tmp_path / "copy"), "--storage", str(target))
    assert drain(own_broker(storage=str(target)), "work") == ["one", "two"]
    assert "not empty" in run("restore", str(tmp_path / "copy"), "--storage", str(target), code=1)
    assert "not empty" in run("backup", str(tmp_path / "copy"), "--url", broker.http_url, code=1)


def test_damaged_and_unfinished_backups_are_refused_by_the_name_of_the_file(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    publish(broker, "work", "one")
    place = tmp_path / "copy"
    run("backup", str(place), "--url", broker.http_url)
    assert "records" in run("restore", str(place), "--check")
    [part] = place.glob("rows-*")
    index = place / "backup.json"
    storage = tmp_path / "restored"
    whole = {file: file.read_bytes() for file in (part, index)}
    for file, damage in (
        (part, None),
        (part, whole[part][:-1]),
        (part, whole[part][:-1] + b"?"),
        (index, None),
        (index, whole[index].replace(b'"rows": ', b'"rows": 1')),
    ):
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage)
        assert file.name in run("restore", str(place), "--storage", str(storage), code=1)
        assert not storage.exists()
        file.write_bytes(whole[file])
    run("restore", str(place), "--storage", str(storage))


def test_backup_needs_an_administrator(own_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    for name, tags in (
        ("boss", ["--tag", "administrator"]),
        ("eye", ["--tag", "monitoring"]),
        ("worker", []),
    ):
        CliRunner().invoke(
            app, ["user", "add", name, "--file", str(users), "--password-stdin", *tags], input="pw\n"
        )
    broker = own_broker({"access": {"users_file": str(users)}})
    for name, status in (("boss", 200), ("eye", 403), ("worker", 403)):
        with httpx.Client(base_url=f"{broker.http_url}/api/v1", auth=(name, "pw")) as client:
            made = client.post("/cuts")
            assert made.status_code == status
            if status == 200:
                cut = made.json()["id"]
                assert client.post(f"/cuts/{cut}/keep").status_code == 204
                assert client.delete(f"/cuts/{cut}").status_code == 204
                assert client.post(f"/cuts/{cut}/keep").status_code == 404
                assert client.delete("/cuts/none").status_code == 404


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A bucket `sluice` in an object store; the environment that leads there."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="sluice")
    yield environment
    server.stop()


def test_backup_of_an_object_store_into_another_place_of_it_comes_back_in_a_directory(
    own_broker: Callable[..., BrokerProcess], bucket: dict[str, str], tmp_path: Path
) -> None:
    broker = own_broker(storage="s3://sluice/live", environment=bucket)
    publish(broker, "work", *map(str, range(20)))
    told = run("backup", "s3://sluice/copy", "--url", broker.http_url, "--json")
    assert told["journal_sequence"] is None
    publish(broker, "work", "later")
    assert "not empty" in run("backup", "s3://sluice/copy", "--url", broker.http_url, code=1)
    assert "not empty" in run("restore", "s3://sluice/copy", "--storage", "s3://sluice/live", code=1)
    run("restore", "s3://sluice/copy", "--storage", str(tmp_path / "restored"))
    assert drain(own_broker(storage=str(tmp_path / "restored")), "work") == list(map(str, range(20)))


def test_backup_of_memory_is_refused(own_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = own_broker(storage="memory:")
    done = subprocess.run(
        command_line("backup", str(tmp_path / "copy"), "--url", broker.http_url),
        cwd=WORKING_DIRECTORY,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, "in memory" in done.stderr) == (1, True)
