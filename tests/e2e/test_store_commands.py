"""Looking at the data of a broker that was stopped."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from config.settings import StorageSettings
from storage import layout
from storage.batch import WriteOps
from storage.encoding import encode_var_bytes
from storage.errors import StorageError
from storage.open import open_store
from storage.records import payload, queue_spec
from storage.records.queue_spec_values import FILTER_FORMAT
from tests.e2e.broker_process import BrokerProcess


@pytest.mark.timeout(90)
def test_payloads_that_nothing_holds_are_repaired(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Callable[..., pika.BlockingConnection]
) -> None:
    broker = own_broker()
    channel = amqp_connect(broker).channel()
    channel.queue_declare("work", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "work", b"kept", pika.BasicProperties(delivery_mode=2))

    def run(verb: str, storage: str = broker.storage) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["store", verb, "--storage", storage])
        return done.exit_code, done.stdout + done.stderr

    assert run("repair")[0] == 1  # the broker has it
    assert broker.stop() == 0

    async def leak() -> None:
        store = await open_store(StorageSettings(url=broker.storage))
        await store.write(WriteOps([(payload.key(1 << 40), b"lost")]))
        await store.close()

    asyncio.run(leak())
    assert run("verify")[0] == 1
    assert run("repair") == (0, "1 repaired\n")
    assert run("verify")[0] == 0
    assert run("repair") == (0, "0 repaired\n")
    broker.start()
    assert amqp_connect(broker).channel().basic_get("work", auto_ack=True)[2] == b"kept"
    nothing = Path(broker.storage).parent / "nothing"
    nothing.mkdir()
    assert run("repair", str(nothing))[0] == 1
    assert not list(nothing.iterdir())


def test_store_is_inspected_verified_and_damage_found(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Callable[..., pika.BlockingConnection]
) -> None:
    broker = own_broker()
    channel = amqp_connect(broker).channel()
    channel.queue_declare("work", durable=True)
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "work", b"x", pika.BasicProperties(delivery_mode=2))

    def run(verb: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["store", verb, "--storage", broker.storage, "--json"])
        return done.exit_code, done.stdout

    assert run("verify")[0] == 1  # the broker has it
    assert broker.stop() == 0
    code, text = run("inspect")
    tallies = json.loads(text)["tallies"]
    assert code == 0
    assert tallies["payload"]["count"] == 5
    assert run("verify")[0] == 0

    async def damage() -> None:
        store = await open_store(StorageSettings(url=broker.storage))
        ops = WriteOps()
        ops.put(bytes((layout.VERSION, queue_spec.number)) + b"broken\0", b"?")
        filters_of_a_newer_release = encode_var_bytes(bytes((FILTER_FORMAT + 1,)))
        ops.put(queue_spec.key("newer"), filters_of_a_newer_release)
        ops.put(payload.key(1 << 40), b"nobody's")
        await store.write(ops)
        await store.close()

    asyncio.run(damage())
    code, text = run("verify")
    assert (code, json.loads(text)["problem_count"]) == (1, 4)  # of the first, the key is broken as well
    assert "written by a newer release" in text
    assert "a payload of 8 bytes that nothing holds" in text
    assert run("inspect")[0] == 0


def files_in(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of all that is in a directory."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
    }


def look(verb: str, storage: Path | str) -> tuple[int, str]:
    """Exit code, and what is printed: the counts of records, or why not."""
    done = CliRunner().invoke(app, ["store", verb, "--storage", str(storage), "--json"])
    return done.exit_code, done.stdout if done.exit_code == 0 else done.output


@pytest.fixture
def stored(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Callable[..., pika.BlockingConnection]
) -> BrokerProcess:
    """A broker with five durable messages."""
    broker = own_broker()
    channel = amqp_connect(broker).channel()
    channel.queue_declare("work", durable=True)
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "work", b"x", pika.BasicProperties(delivery_mode=2))
    return broker


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_what_a_killed_broker_left_is_read_as_it_lies_there(
    stored: BrokerProcess, tmp_path: Path, verb: str
) -> None:
    stored.kill9()
    copied = tmp_path / "copied"
    shutil.copytree(stored.storage, copied)
    for storage in (Path(stored.storage), copied):
        before = files_in(storage)
        code, text = look(verb, storage)
        assert code == 0
        assert json.loads(text)["tallies"]["payload"]["count"] == 5
        assert files_in(storage) == before
    shutil.rmtree(copied / "journal")
    code, text = look(verb, copied)
    assert (code, "journal is missing" in text) == (1, True)
    (copied / "lock").unlink()
    shutil.copytree(Path(stored.storage) / "journal", copied / "journal")
    assert look(verb, copied)[0] == 0
    assert not (copied / "lock").exists()


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_a_directory_that_is_no_storage_is_refused_and_stays_as_it_is(tmp_path: Path, verb: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    before = files_in(tmp_path)
    code, text = look(verb, tmp_path)
    assert (code, "is no storage: there is no database in it" in text) == (1, True)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("has_strays", [False, True])
def test_a_backup_is_told_from_a_storage(stored: BrokerProcess, tmp_path: Path, has_strays: bool) -> None:
    """Also one in which an earlier release's look has left an empty storage."""
    assert stored.stop() == 0
    backup = tmp_path / "backup"
    made = CliRunner().invoke(app, ["backup", str(backup), "--offline", "--storage", stored.storage])
    assert made.exit_code == 0
    if has_strays:
        strays = tmp_path / "strays"
        asyncio.run(make_empty(str(strays)))
        shutil.copytree(strays, backup, dirs_exist_ok=True)
    before = files_in(backup)
    for arguments in (
        ["store", "inspect", "--storage", str(backup)],
        ["store", "verify", "--storage", str(backup)],
        ["backup", str(tmp_path / "again"), "--offline", "--storage", str(backup)],
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1
        assert f"{backup} is a backup, not a storage" in done.output
    with pytest.raises(StorageError, match="is a backup, not a storage"):
        asyncio.run(make_empty(str(backup)))
    assert files_in(backup) == before
    assert CliRunner().invoke(app, ["restore", str(backup), "--check"]).exit_code == 0


async def make_empty(url: str) -> None:
    """As a broker's start does."""
    store = await open_store(StorageSettings(url=url))
    await store.close()


def test_an_offline_backup_of_what_is_no_storage_makes_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(
        app, ["backup", str(tmp_path / "to"), "--offline", "--storage", str(tmp_path / "empty")]
    )
    assert (done.exit_code, "is no storage" in done.output) == (1, True)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_damaged_journal_is_refused(stored: BrokerProcess) -> None:
    stored.kill9()
    (Path(stored.storage) / "journal" / "end").write_bytes(b"")
    code, text = look("verify", stored.storage)
    assert (code, "its end record is missing" in text) == (1, True)
