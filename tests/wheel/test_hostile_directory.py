"""The installed package works where modules of the working directory have the names of our folders."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sluicemq
from tests.e2e import amqp
from tests.e2e.broker_process import INSTALLED_PYTHON, PROJECT, BrokerProcess
from tests.e2e.raw_mqtt import PUBLISH, SUBACK, RawMqtt, subscribe

HOSTILE = Path(__file__).with_name("hostile")
IMPORT_ALL = """
import importlib, pkgutil, sluicemq
for module in pkgutil.walk_packages(sluicemq.__path__, "sluicemq."):
    if not module.name.startswith("sluicemq.examples"):  # programs, some with needs of their own
        importlib.import_module(module.name)
print(sluicemq.__version__, sluicemq.__file__)
"""
FIND = "import sys, importlib.util; print(*(bool(importlib.util.find_spec(m)) for m in sys.argv[1:]))"
PROGRAM = """
from sluicemq import Broker, Clock, QueueSettings, Settings, load_settings
from sluicemq.admin import QueueView
from sluicemq.errors import PreconditionFailed


async def declare(broker: Broker) -> QueueView:
    try:
        return await broker.admin.declare(QueueSettings(name="orders"))
    except PreconditionFailed as refused:
        raise ValueError(refused.reason) from None


broker = Broker(load_settings())
clock: Clock = broker.clock
settings: Settings = broker.settings
"""

only_installed = pytest.mark.skipif(not INSTALLED_PYTHON, reason="needs an installed wheel: make test-wheel")


@pytest.fixture(scope="module")
def broker(installed, tmp_path_factory):
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        {"queues": [{"name": "orders"}]},
        environment=installed.environment,
        working_directory=HOSTILE,
    )
    yield process.start()
    process.kill9()


def test_every_module_is_imported_from_the_package(installed):
    version, path = installed.run("-c", IMPORT_ALL, directory=HOSTILE).split()
    assert version == sluicemq.__version__
    assert PROJECT not in Path(path).parents or INSTALLED_PYTHON


def test_the_server_passes_messages_from_mqtt_to_amqp(broker, installed):
    said = installed.run(
        *("-m", "sluicemq.examples.device_and_worker", str(broker.mqtt_port), str(broker.amqp_port)),
        directory=HOSTILE,
    )
    assert said == "$queue/coffees/eu: one coffee, please\n"


def test_the_server_passes_messages_from_amqp_to_mqtt(broker):
    device = RawMqtt(broker.mqtt_port, client_id="device")
    device.send_bytes(subscribe("$queue/orders", 1))
    device.expect(SUBACK)
    connection = amqp.connect(broker.amqp_port)
    connection.channel().basic_publish("", "orders", b"tea")
    assert device.expect(PUBLISH).body.endswith(b"tea")
    device.drop()
    amqp.close_quietly(connection)


def test_the_banner_names_every_protocol_of_a_port(broker):
    lines = [line.split() for line in broker.log.splitlines()]
    assert ["MQTT", "3.1.1", "and", "5", f"127.0.0.1:{broker.mqtt_port}"] in lines
    assert ["AMQP", "0.9.1", "and", "1.0", f"127.0.0.1:{broker.amqp_port}"] in lines


def test_what_the_banner_names_is_there(broker, installed):
    commands = [line.split() for line in broker.log.splitlines() if " -m sluicemq.examples." in line]
    assert [python for python, *_ in commands] == [installed.python] * 2
    modules = [module for _, _, module, *_ in commands]
    assert installed.run("-c", FIND, *modules, directory=HOSTILE).split() == ["True", "True"]


def test_a_broker_works_in_the_process_of_a_test(installed, tmp_path):
    shutil.copytree(HOSTILE, tmp_path, dirs_exist_ok=True)
    shutil.copy(PROJECT / "examples" / "test_with_broker.py", tmp_path)
    said = installed.run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"), directory=tmp_path
    )
    assert "2 passed" in said


@only_installed
def test_the_command_is_installed_beside_its_python(installed):
    command = Path(installed.python).with_name("sluicemq")
    ended = subprocess.run(
        [command, "--version"], cwd=HOSTILE, capture_output=True, text=True, timeout=20, check=True
    )
    assert ended.stdout == f"SluiceMQ {sluicemq.__version__}\n"


@only_installed
def test_the_public_names_have_types(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.python, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
