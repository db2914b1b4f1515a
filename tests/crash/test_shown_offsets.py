"""An offset that a client was shown is never that of another message after a kill -9."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from tests.crash.clients import wait_for_groups
from tests.e2e import amqp
from tests.e2e.broker_process import PROJECT, BrokerProcess
from tests.e2e.mqtt import MqttClient, user_property
from tests.waiting import until

pytestmark = pytest.mark.extension

# Python runs this as it starts: while there is such a pipe, which has no writer, a sync takes for ever, and
# what comes meanwhile waits
SLOW_DISK = """
import os, pathlib
whole_sync = os.fdatasync
def sync(fd):
    if os.path.exists({slow!r}):
        pathlib.Path({begun!r}).touch()
        open({slow!r}).read()
    whole_sync(fd)
os.fdatasync = sync
"""
LOOKS = 3  # of each client, at what is not durable
MQTT_LOOK_S = 0.1
LOOK_S_MAX = 1.0  # an answer over HTTP may wait for the disk

Shown = dict[str, str]  # the body, by the offset that it was shown with
Look = Callable[[BrokerProcess, Shown], Iterator[None]]  # gives each look that is over


def as_mqtt_consumer(broker: BrokerProcess, shown: Shown) -> Iterator[None]:
    client = MqttClient(broker.mqtt_port, client_id="mqtt").connect()  # and its group
    client.subscribe("$queue/work")
    while True:
        with suppress(AssertionError):  # nothing came; to ask for an answer may have to wait for the disk
            message = client.take_one(MQTT_LOOK_S)
            shown[user_property(message, "offset") or ""] = message.payload.decode()
        yield


def as_amqp_group(broker: BrokerProcess, shown: Shown) -> Iterator[None]:
    channel = amqp.connect(broker.amqp_port).channel()
    consumer = amqp.Collector(channel, "work", ack=True, arguments={"x-consumer-group": "amqp"})
    while True:
        for delivery in consumer.wait_quiet():
            shown[str(delivery.headers["x-offset"])] = delivery.body.decode()
        yield


def as_dead_letters(broker: BrokerProcess, shown: Shown) -> Iterator[None]:
    channel = amqp.connect(broker.amqp_port).channel()
    dead = amqp.Collector(channel, "dead", ack=True)
    given = amqp.Collector(channel, "work")
    while True:
        for delivery in given.wait_quiet():
            channel.basic_reject(delivery.tag, requeue=False)
        given.deliveries.clear()
        for delivery in dead.deliveries:
            shown[str(delivery.headers["x-death"][0]["offset"])] = delivery.body.decode()
        yield


def as_browser(broker: BrokerProcess, shown: Shown) -> Iterator[None]:
    with httpx.Client(base_url=broker.http_url, trust_env=False, timeout=LOOK_S_MAX) as client:
        while True:
            with suppress(httpx.TimeoutException):
                page = client.get("/api/v1/queues/work/messages").raise_for_status().json()
                shown.update({str(message["offset"]): message["body"] for message in page["items"]})
            yield


def as_mqcore_client(broker: BrokerProcess, shown: Shown) -> Iterator[None]:
    url = f"http://127.0.0.1:{broker.ports['mqcore']}/work/messages"
    with httpx.Client(trust_env=False, timeout=LOOK_S_MAX) as client:
        while True:
            with suppress(httpx.TimeoutException):
                found = client.get(url, params={"group": "http", "wait": "50ms"}).raise_for_status()
                if found.status_code == 200:
                    shown[found.headers["X-Message-Id"]] = found.text
            yield


CONSUMERS: list[Look] = [as_mqtt_consumer, as_amqp_group, as_dead_letters, as_mqcore_client]


class Looking:
    """A client that looks in a thread; `shown` is what it saw."""

    def __init__(self, look: Look, broker: BrokerProcess) -> None:
        self.shown: Shown = {}
        self._look_count = 0
        self._name = look.__name__
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(look, broker), daemon=True)
        self._thread.start()

    def _run(self, look: Look, broker: BrokerProcess) -> None:
        try:
            for _ in look(broker, self.shown):
                self._look_count += 1
                if self._stopped.is_set():
                    break
        except Exception:
            if not self._stopped.is_set():  # the broker was killed
                raise

    def wait_for(self, body: str) -> None:
        until(lambda: body in self.shown.values(), told=lambda: f"{body}, but {self.shown}")

    def wait_for_looks(self, count: int) -> None:
        """Return once the client looked so many times, all of them after this was called."""
        wanted = self._look_count + 1 + count
        until(
            lambda: self._look_count >= wanted, told=lambda: f"{self._name}: {self._look_count} of {wanted}"
        )

    def stop(self) -> None:
        self._stopped.set()


def publish(broker: BrokerProcess, *bodies: str) -> None:
    with closing(amqp.connect(broker.amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        amqp.publish(channel, "work", *bodies)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The pipe that makes syncs take for ever; beside it is a file `.begun` once one does."""
    slow = tmp_path / "slow"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        SLOW_DISK.format(slow=str(slow), begun=f"{slow}.begun")
    )
    return slow


@pytest.mark.parametrize(
    ("looks", "groups"),
    [(CONSUMERS, ("mqtt", "amqp", "http")), ([as_browser], ())],
    ids=["consumers", "browser"],
)
def test_offset_shown_before_a_kill_is_not_that_of_a_message_published_after_it(
    tmp_path: Path, disk: Path, looks: list[Look], groups: tuple[str, ...]
) -> None:
    path = os.pathsep.join([str(disk.parent / "site"), str(PROJECT)])
    queues = [{"name": "work", "dlq": "dead"}, {"name": "dead"}]
    broker = BrokerProcess(
        tmp_path / "broker", {"queues": queues}, environment={"PYTHONPATH": path}, arguments=["--mqcore", "0"]
    ).start()
    try:
        before = [Looking(look, broker) for look in looks]
        wait_for_groups(broker, *groups)
        publish(broker, "durable")
        for looking in before:
            looking.wait_for("durable")
        os.mkfifo(disk)
        channel = amqp.connect(broker.amqp_port).channel()
        for body in ("lost", "lost, too", "and this"):  # the first may be written, and is being synced
            channel.basic_publish("", "work", body.encode())
            until(Path(f"{disk}.begun").exists)
        for looking in before:
            looking.wait_for_looks(LOOKS)
        for looking in before:
            looking.stop()
        broker.kill9()
        disk.unlink()
        broker.start()
        after = [Looking(look, broker) for look in looks]
        publish(broker, "new", "another", "last")
        for looking in after:
            looking.wait_for("last")
            looking.stop()
    finally:
        broker.kill9()
    for look, earlier, later in zip(looks, before, after, strict=True):
        reused = {
            offset: (body, later.shown[offset])
            for offset, body in earlier.shown.items()
            if later.shown.get(offset, body) != body
        }
        assert not reused, f"{look.__name__}: before {earlier.shown}, after {later.shown}"
