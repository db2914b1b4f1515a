"""Brokers as processes, clients that are closed after each test, queues with names of their own."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.e2e import amqp, without_native
from tests.e2e.broker_process import Broker, BrokerProcess, ForeignBroker
from tests.e2e.copied_process import CHANGE_VARIABLE
from tests.e2e.mqtt import MqttClient
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_amqp10 import RawAmqp10
from tests.e2e.raw_mqtt import RawMqtt

TEST_TIMEOUT_S = 30
_numbers = itertools.count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A client that waits for ever on a silent broker fails its test soon, if no other time is asked for."""
    if config.getoption("timeout") is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, method="signal"))


class SharedBroker:
    """One broker for many tests, started at the first use and again when a test brought it down."""

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any],
        *,
        timed: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._timed = timed
        self._environment = environment
        self._starts = itertools.count()
        self._process: BrokerProcess | None = None

    def running(self) -> BrokerProcess:
        if self._process is None or not self._process.alive:
            self._process = BrokerProcess(
                self._directory / str(next(self._starts)),
                self._config,
                timed=self._timed,
                environment=self._environment,
            )
            self._process.start()
        return self._process

    def end(self) -> None:
        if self._process is not None and self._process.alive:
            assert self._process.stop() == 0


@pytest.fixture(scope="session")
def _shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    shared = SharedBroker(tmp_path_factory.mktemp("broker"), {})
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def _broker_in_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    """As the shared one, but for what else is in C."""
    changed = {CHANGE_VARIABLE: f"{without_native.__name__}:{without_native.change.__name__}"}
    shared = SharedBroker(tmp_path_factory.mktemp("broker-in-python"), {}, environment=changed)
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def _impatient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    config = {"queue_manager": {"visibility_timeout": "1s"}}
    shared = SharedBroker(tmp_path_factory.mktemp("impatient"), config, timed=True)
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def _timed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    shared = SharedBroker(tmp_path_factory.mktemp("timed"), {}, timed=True)
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def _strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    config = {"queue_manager": {"auto_create": False}, "queues": [{"name": "there"}]}
    shared = SharedBroker(tmp_path_factory.mktemp("strict"), config)
    yield shared
    shared.end()


def _survives(broker: Broker) -> Iterator[Broker]:
    yield broker
    assert broker.alive, f"the broker ended during this test\n{broker.log[-4000:]}"


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker with the default configuration, shared by tests: use queue names of your own.

    Tests that are marked `timed` have one with other clocks: ahead of ours by what has passed in them.
    """
    foreign = ForeignBroker.from_environment()
    shared = "_timed_broker" if request.node.get_closest_marker("timed") else "_shared_broker"
    yield from _survives(foreign or request.getfixturevalue(shared).running())


@pytest.fixture
def impatient_broker(_impatient_broker: SharedBroker) -> Iterator[Broker]:
    """As the broker of tests marked `timed`, with a visibility timeout of one second."""
    yield from _survives(_impatient_broker.running())


@pytest.fixture
def strict_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """As `broker`, with `auto_create: false` and one configured queue, `there`."""
    foreign = ForeignBroker.from_environment()
    yield from _survives(foreign or request.getfixturevalue("_strict_broker").running())


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers for this test alone: `own_broker({"queue_manager": ...})`, started already."""
    made: list[BrokerProcess] = []

    def make(config: dict[str, Any] | None = None, **options: Any) -> BrokerProcess:
        process = BrokerProcess(tmp_path / f"broker-{len(made)}", config, **options)
        made.append(process)
        return process.start()

    yield make
    for process in made:
        process.kill9()


@pytest.fixture
def name() -> str:
    """A name nothing else has."""
    return f"q{next(_numbers)}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def amqp_connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., pika.BlockingConnection]]:
    """pika connections to the test's broker (or `to` another), closed after the test."""
    opened: list[pika.BlockingConnection] = []

    def connect(to: Broker | None = None, **options: Any) -> pika.BlockingConnection:
        to = to or request.getfixturevalue("broker")
        opened.append(amqp.connect(to.amqp_port, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        amqp.close_quietly(connection)


@pytest.fixture
def channel(amqp_connect: Callable[..., pika.BlockingConnection]) -> amqp.BlockingChannel:
    """A channel with publisher confirms, so that `basic_publish` returns when the message is safe."""
    channel = amqp_connect().channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def queue(channel: amqp.BlockingChannel, name: str) -> Iterator[str]:
    """A durable queue of the shared broker, deleted after the test where that still works."""
    channel.queue_declare(name, durable=True)
    yield name
    try:
        if channel.is_open:
            channel.queue_delete(name)
    except amqp.AMQPError:
        pass


@pytest.fixture
def raw_amqp(request: pytest.FixtureRequest) -> Iterator[Callable[..., RawAmqp]]:
    """AMQP over a bare socket; see RawAmqp."""
    opened: list[RawAmqp] = []

    def connect(to: Broker | None = None, **options: Any) -> RawAmqp:
        to = to or request.getfixturevalue("broker")
        opened.append(RawAmqp(to.amqp_port, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.drop()


@pytest.fixture
def raw_amqp10(request: pytest.FixtureRequest) -> Iterator[Callable[..., RawAmqp10]]:
    """AMQP 1.0 over a bare socket; see RawAmqp10."""
    opened: list[RawAmqp10] = []

    def connect(to: Broker | None = None, **options: Any) -> RawAmqp10:
        to = to or request.getfixturevalue("broker")
        opened.append(RawAmqp10(to.amqp_port, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.drop()


@pytest.fixture
def mqtt(request: pytest.FixtureRequest) -> Iterator[Callable[..., MqttClient]]:
    """Connected paho clients; `version=` 4 (3.1.1) or 5, see MqttClient."""
    opened: list[MqttClient] = []

    def connect(to: Broker | None = None, **options: Any) -> MqttClient:
        to = to or request.getfixturevalue("broker")
        client = MqttClient(to.mqtt_port, **options)
        opened.append(client)
        return client.connect()

    yield connect
    for client in opened:
        client.end()


@pytest.fixture
def raw_mqtt(request: pytest.FixtureRequest) -> Iterator[Callable[..., RawMqtt]]:
    """MQTT over a bare socket; see RawMqtt."""
    opened: list[RawMqtt] = []

    def connect(to: Broker | None = None, **options: Any) -> RawMqtt:
        to = to or request.getfixturevalue("broker")
        opened.append(RawMqtt(to.mqtt_port, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.drop()
