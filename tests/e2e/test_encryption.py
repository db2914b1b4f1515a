"""A broker whose storage is encrypted: nothing of a message is found on its disk, and all is there again."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from typer.testing import CliRunner

from broker.cli import app
from config.settings import StorageSettings
from storage.batch import WriteOps
from storage.open import open_database
from storage.records import payload
from tests.e2e import amqp, staging
from tests.e2e.broker_process import BrokerFailed, BrokerProcess
from tests.e2e.mqtt import MqttClient, make_properties, user_property
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

MARKER = b"MARKER-which-nobody-may-find"
LARGE = MARKER + bytes(50 * 1024 * 1024 - 2 * len(MARKER)) + MARKER
KEYS = {"2025": "bb" * 32, "2026": "aa" * 32}


def encrypted(
    directory: Path, *key_ids: str, secrets: dict[str, str] = KEYS, **storage: Any
) -> dict[str, Any]:
    """A configuration with these keys, whose files lie in the directory."""
    directory.mkdir(exist_ok=True)
    keys = []
    for key_id in key_ids:
        path = directory / f"{key_id}.key"
        path.write_text(secrets[key_id])
        keys.append({"id": key_id, "file": str(path)})
    return {"storage": {**storage, "encryption": {"keys": keys}}}


def found_in(directory: Path | str) -> list[str]:
    """The files in which the marker stands."""
    return [
        str(path) for path in Path(directory).rglob("*") if path.is_file() and MARKER in path.read_bytes()
    ]


def persistent(**properties: Any) -> pika.BasicProperties:
    """Properties with the marker in headers and elsewhere."""
    headers = {"note": MARKER.decode(), **properties.pop("headers", {})}
    return pika.BasicProperties(
        delivery_mode=2,
        headers=headers,
        correlation_id=MARKER.decode(),
        message_id=MARKER.decode(),
        **properties,
    )


def fill(broker: BrokerProcess, mqtt: Callable[..., MqttClient]) -> None:
    """Have the broker keep messages in every way it has."""
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("durable", durable=True)
        channel.queue_declare("dead", durable=True)
        channel.queue_declare(
            "dying",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        )
        channel.queue_declare("priorities", durable=True, arguments={"x-max-priority": 3})
        channel.queue_declare("delayed", durable=True)
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
        for queue in ("durable", "dying", "stream"):
            for _ in range(20):
                channel.basic_publish("", queue, MARKER, persistent())
        channel.basic_publish("", "priorities", MARKER, persistent(priority=2))
        channel.basic_publish("", "durable", MARKER, pika.BasicProperties(headers={"note": MARKER.decode()}))
        channel.basic_publish("", "durable", MARKER, persistent(expiration="3600000"))
        channel.basic_publish("", "delayed", MARKER, persistent(headers={"x-delay": 3_600_000}))
        for _ in range(5):
            method, _, _ = channel.basic_get("dying")
            channel.basic_reject(method.delivery_tag, requeue=False)
        method, _, _ = channel.basic_get("durable")
        channel.basic_nack(method.delivery_tag)
        channel.basic_get("durable")  # in flight
        staging.stage(channel, "durable", MARKER)
        channel.basic_publish("", "durable", LARGE, persistent())
        transacted = connection.channel()
        transacted.tx_select()
        transacted.basic_publish("", "durable", MARKER, persistent())
        transacted.tx_commit()
    session = mqtt(broker, client_id="lasting", clean=False, SessionExpiryInterval=3_600)
    session.subscribe("note/#", qos=2)
    session.drop()
    will = {"topic": "note/will", "payload": MARKER, "qos": 1, "properties": will_delayed()}
    mqtt(broker, client_id="gone", clean=False, SessionExpiryInterval=3_600, will=will).drop()
    device = mqtt(broker, client_id="device")
    device.publish("note/retained", MARKER, 1, retain=True, user=[("note", MARKER.decode())])
    device.publish("note/twice", MARKER, 2, user=[("note", MARKER.decode())])
    device.publish("$queue/durable", MARKER, 1)
    device.publish("$queue/durable", MARKER, 0)
    device.disconnect()


def will_delayed() -> Any:
    return make_properties(PacketTypes.WILLMESSAGE, [("note", MARKER.decode())], WillDelayInterval=3_000)


def check_all(broker: BrokerProcess, mqtt: Callable[..., MqttClient]) -> None:
    """Read all that `fill` had the broker keep."""
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        assert bodies(channel, "durable") == {MARKER: 25, LARGE: 1}
        assert bodies(channel, "dead") == {MARKER: 5}
        assert bodies(channel, "dying") == {MARKER: 15}
        assert bodies(channel, "priorities") == {MARKER: 1}
        assert staging.commit(channel, "durable", (0, "a", 1))["rows"] == 1
        until(lambda: bodies(channel, "durable") == {MARKER: 1}, told=lambda: "no staged row")
        assert channel.queue_declare("delayed", passive=True).method.message_count == 0
        channel.basic_qos(prefetch_count=100)
        streamed = []
        for method, properties, body in channel.consume("stream", arguments={"x-stream-offset": "first"}):
            streamed.append((properties.headers["note"].encode(), body))
            channel.basic_ack(method.delivery_tag)
            if len(streamed) == 20:
                break
        assert streamed == [(MARKER, MARKER)] * 20
    session = mqtt(broker, client_id="lasting", clean=False, SessionExpiryInterval=3_600)
    assert {(got.topic, got.payload) for got in session.take(2)} == {
        ("note/retained", MARKER),
        ("note/twice", MARKER),
    }
    session.disconnect()
    new = mqtt(broker, client_id="new")
    new.subscribe("note/retained")
    got = new.take_one()
    assert (got.payload, user_property(got, "note")) == (MARKER, MARKER.decode())
    new.disconnect()


def bodies(channel: Any, queue: str) -> Counter[bytes]:
    """Take all that waits in a queue."""
    found: Counter[bytes] = Counter()
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found[got[2]] += 1
        if got[1].headers:
            assert got[1].headers["note"] == MARKER.decode()
    return found


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


@pytest.mark.parametrize("sync", ["always", "os"])
def test_nothing_of_a_message_is_found_on_the_disk_and_all_is_read_again(
    own_broker: Callable[..., BrokerProcess], mqtt: Callable[..., MqttClient], tmp_path: Path, sync: str
) -> None:
    keys = tmp_path / "keys"
    broker = own_broker(encrypted(keys, "2026", sync=sync))
    fill(broker, mqtt)
    backup = tmp_path / "backup"
    code, told = command("backup", str(backup), "--url", broker.http_url, "--storage", broker.storage)
    assert code == 0, told
    assert found_in(broker.directory) == []
    broker.kill9()
    assert found_in(broker.directory) == []
    shutil.copytree(broker.storage, tmp_path / "killed")
    broker.start()
    check_all(broker, mqtt)
    assert broker.stop() == 0
    assert found_in(broker.directory) == []
    assert "encrypted with key 2026" in broker.log

    assert found_in(backup) == []
    assert command("restore", str(backup), "--check")[0] == 0
    restored = tmp_path / "restored"
    assert command("restore", str(backup), "--storage", str(restored))[0] == 0
    assert found_in(restored) == []
    again = own_broker(encrypted(keys, "2026", sync=sync), storage=str(restored))
    check_all(again, mqtt)
    assert again.stop() == 0


def test_the_same_is_found_where_nothing_is_encrypted(
    own_broker: Callable[..., BrokerProcess], mqtt: Callable[..., MqttClient], tmp_path: Path
) -> None:
    """What `fill` does leaves the marker in the journal and in the database."""
    broker = own_broker()
    fill(broker, mqtt)
    broker.kill9()
    assert found_in(Path(broker.storage) / "journal")
    broker.start()
    assert broker.stop() == 0
    assert found_in(Path(broker.storage) / "db")


def test_start_without_the_key_is_refused_in_one_line(
    own_broker: Callable[..., BrokerProcess], mqtt: Callable[..., MqttClient], tmp_path: Path
) -> None:
    broker = own_broker(encrypted(tmp_path / "keys", "2025"))
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("durable", durable=True)
        channel.basic_publish("", "durable", MARKER, persistent())
    broker.kill9()
    swapped = {"2025": KEYS["2026"], "2026": KEYS["2025"]}
    for config, reason in (
        ({}, "what is stored is encrypted with 2025, and there is no storage.encryption with keys"),
        (encrypted(tmp_path / "new", "2026"), "storage.encryption.keys lacks 2025, with which"),
        (
            encrypted(tmp_path / "wrong", "2025", secrets=swapped),
            "2025.key has another key than the one that",
        ),
    ):
        broker.config = config
        told = len(broker.log)
        with pytest.raises(BrokerFailed):
            broker.start()
        (line,) = [line for line in broker.log[told:].splitlines() if reason in line]
        assert broker.process is not None
        assert broker.process.returncode == 1
        for verb in ("inspect", "verify", "repair"):
            code, output = command(
                "store", verb, "--config", str(broker.config_file), "--storage", broker.storage
            )
            assert (code, reason in output.replace("\n", " ")) == (1, True), output
        code, output = command(
            "backup",
            str(tmp_path / "no"),
            "--offline",
            "--config",
            str(broker.config_file),
            "--storage",
            broker.storage,
        )
        assert (code, reason in output.replace("\n", " ")) == (1, True), output
    broker.config = encrypted(tmp_path / "keys", "2026", "2025")
    broker.start()
    with amqp.connect(broker.amqp_port) as connection:
        assert bodies(connection.channel(), "durable") == {MARKER: 1}
    assert broker.stop() == 0
    for verb in ("inspect", "verify", "repair"):
        options = ("--config", str(broker.config_file), "--storage", broker.storage)
        assert command("store", verb, *options)[0] == 0
    assert command("backup", str(tmp_path / "stopped"), "--offline", *options)[0] == 0


def test_changed_block_is_told_by_verify(own_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    config = encrypted(tmp_path / "keys", "2026")
    broker = own_broker(config)
    with amqp.connect(broker.amqp_port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("durable", durable=True)
        for _ in range(3):
            channel.basic_publish("", "durable", MARKER, persistent())
    assert broker.stop() == 0

    async def swap() -> None:
        database = await open_database(StorageSettings(url=broker.storage))
        first, second, third = await database.scan(payload.prefix(), payload.prefix() + b"\xff", limit=9)
        await database.write(WriteOps([(first[0], second[1]), (second[0], first[1])]))
        await database.close()

    asyncio.run(swap())
    options = ("--config", str(broker.config_file), "--storage", broker.storage)
    code, told = command("store", "verify", *options)
    assert code == 1
    assert told.count("corrupt payload record: value: it was changed, or lies at the place of another") == 2
    assert command("store", "repair", *options)[0] == 1
    broker.start()
    with amqp.connect(broker.amqp_port) as connection, pytest.raises(pika.exceptions.AMQPError):
        bodies(connection.channel(), "durable")
    assert "corrupt payload record" in broker.log


def test_keys_in_use_are_told_and_old_ones_taken_away(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    broker = own_broker()

    def publish() -> None:
        with amqp.connect(broker.amqp_port) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("durable", durable=True)
            channel.basic_publish("", "durable", MARKER, persistent())

    def used(*arguments: str, code: int = 0) -> dict[str | None, int]:
        got, told = command("store", "keys", "--json", *arguments)
        assert got == code, told
        return {use["id"]: use["records"] + use["commits"] for use in json.loads(told)} if code == 0 else {}

    def restart(*key_ids: str) -> tuple[str, ...]:
        assert broker.stop() == 0
        broker.config = encrypted(keys, *key_ids)
        broker.start()
        publish()
        return ("--config", str(broker.config_file), "--storage", broker.storage)

    publish()
    running = ("--running", "--url", broker.http_url, "--storage", broker.storage)
    assert set(used(*running)) == {None}
    restart("2025")
    options = restart("2026", "2025")
    running = ("--running", "--url", broker.http_url, "--storage", broker.storage)
    before = used(*running)
    assert set(before) == {"2025", "2026", None}
    assert all(before.values())
    used(*options, code=1)  # the broker has it
    used(*running, "--rewrite", code=1)
    broker.kill9()
    stopped = used(*options)
    assert set(stopped) == {"2025", "2026", None}
    used(*options, "--forget", "2025", code=1)
    code, told = command("store", "keys", *options, "--rewrite", "--forget", "2025")
    assert code == 0
    assert "records encrypted anew with key 2026" in told
    assert "2025: forgotten; take it out of storage.encryption.keys" in told
    assert set(used(*options)) == {"2026"}
    assert command("store", "verify", *options)[0] == 0
    broker.config = encrypted(keys, "2026")
    broker.start()
    with amqp.connect(broker.amqp_port) as connection:
        assert bodies(connection.channel(), "durable") == {MARKER: 3}
