"""Looking at the data of a broker that was stopped."""

import asyncio
import importlib
import json
from collections.abc import Callable
from pkgutil import iter_modules

import pika
from typer.testing import CliRunner

from broker.cli import app
from config.settings import StorageSettings
from storage import layout, records
from storage.batch import WriteOps
from storage.encoding import encode_var_bytes
from storage.inspection import KINDS
from storage.open import open_store
from storage.records import queue_spec
from tests.e2e.broker_process import BrokerProcess


def test_every_kind_of_record_is_known() -> None:
    modules = [
        importlib.import_module(f"storage.records.{each.name}") for each in iter_modules(records.__path__)
    ]
    with_keys = {module.parse_key for module in modules if hasattr(module, "parse_key")}
    assert {kind.parse_key for kind in KINDS.values()} == with_keys


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
        ops.put(bytes((layout.VERSION, layout.QUEUE_SPEC)) + b"broken\0", b"?")
        filters_of_a_newer_release = encode_var_bytes(bytes((queue_spec.FILTER_FORMAT + 1,)))
        ops.put(queue_spec.key("newer"), filters_of_a_newer_release)
        await store.write(ops)
        await store.close()

    asyncio.run(damage())
    code, text = run("verify")
    assert (code, json.loads(text)["problem_count"]) == (1, 3)  # of the first, the key is broken as well
    assert "written by a newer release" in text
