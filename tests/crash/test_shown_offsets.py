"""An offset that a client was shown is never that of another message after a kill -9."""

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import PROJECT, BrokerProcess
from tests.e2e.mqtt import MqttClient, user_property
from tests.waiting import pass_time, until

pytestmark = pytest.mark.extension

# Python runs this as it starts: while the file is there a sync takes long, and what comes meanwhile waits
SLOW_DISK = """
import os, time
whole_sync = os.fdatasync
def sync(fd):
    if os.path.exists({slow!r}):
        time.sleep(30)
    whole_sync(fd)
os.fdatasync = sync
"""
SHOWN_S = 0.5  # how long clients could see what is not durable
PATIENCE_S = 15.0

Shown = dict[str, str]  # the body, by the offset that it was shown with
Look = Callable[[BrokerProcess, Shown, threading.Event], None]


def as_mqtt_consumer(broker: BrokerProcess, shown: Shown, stopped: threading.Event) -> None:
    client = MqttClient(broker.mqtt_port, client_id="mqtt").connect()  # and its group
    client.subscribe("$queue/work")
    while not stopped.is_set():
        if not client.quiet_for(0.05):
            message = client.take_one()
            shown[user_property(message, "offset") or ""] = message.payload.decode()
    client.end()


def as_amqp_group(broker: BrokerProcess, shown: Shown, stopped: threading.Event) -> None:
    channel = amqp.connect(broker.amqp_port).channel()
    consumer = amqp.Collector(channel, "work", ack=True, arguments={"x-consumer-group": "amqp"})
    while not stopped.is_set():
        for delivery in consumer.listen(0.05):
            shown[str(delivery.headers["x-offset"])] = delivery.body.decode()


def as_dead_letters(broker: BrokerProcess, shown: Shown, stopped: threading.Event) -> None:
    channel = amqp.connect(broker.amqp_port).channel()
    dead = amqp.Collector(channel, "dead", ack=True)
    given = amqp.Collector(channel, "work")
    while not stopped.is_set():
        for delivery in given.listen(0.05):
            channel.basic_reject(delivery.tag, requeue=False)
        given.deliveries.clear()
        for delivery in dead.deliveries:
            shown[str(delivery.headers["x-death"][0]["offset"])] = delivery.body.decode()


def as_browser(broker: BrokerProcess, shown: Shown, stopped: threading.Event) -> None:
    with httpx.Client(base_url=broker.http_url, trust_env=False, timeout=0.5) as client:
        while not stopped.is_set():
            try:
                page = client.get("/api/v1/queues/work/messages").raise_for_status().json()
            except httpx.TimeoutException:
                continue
            shown.update({str(message["offset"]): message["body"] for message in page["items"]})


def as_mqcore_client(broker: BrokerProcess, shown: Shown, stopped: threading.Event) -> None:
    url = f"http://127.0.0.1:{broker.ports['mqcore']}/work/messages"
    with httpx.Client(trust_env=False) as client:
        while not stopped.is_set():
            found = client.get(url, params={"group": "http", "wait": "50ms"}).raise_for_status()
            if found.status_code == 200:
                shown[found.headers["X-Message-Id"]] = found.text


CONSUMERS: list[Look] = [as_mqtt_consumer, as_amqp_group, as_dead_letters, as_mqcore_client]


class Looking:
    """A client that looks in a thread; `shown` is what it saw."""

    def __init__(self, look: Look, broker: BrokerProcess) -> None:
        self.shown: Shown = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(look, broker), daemon=True)
        self._thread.start()

    def _run(self, look: Look, broker: BrokerProcess) -> None:
        try:
            look(broker, self.shown, self._stopped)
        except Exception:
            if not self._stopped.is_set():  # the broker was killed
                raise

    def wait_for(self, body: str) -> None:
        until(lambda: body in self.shown.values(), PATIENCE_S, told=lambda: f"{body}, but {self.shown}")

    def stop(self) -> None:
        self._stopped.set()


def wait_for_groups(broker: BrokerProcess, *wanted: str) -> None:
    """Whoever comes later would not be given what the others are done with."""

    def groups() -> list[str]:
        answer = httpx.get(f"{broker.http_url}/api/v1/queues/work", trust_env=False, timeout=20)
        return answer.json()["groups"]

    until(lambda: set(wanted) <= set(groups()), PATIENCE_S, told=groups)


def publish(broker: BrokerProcess, *bodies: str) -> None:
    with closing(amqp.connect(broker.amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        amqp.publish(channel, "work", *bodies)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The file that makes syncs take long."""
    slow = tmp_path / "slow"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW_DISK.format(slow=str(slow)))
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
        disk.touch()
        channel = amqp.connect(broker.amqp_port).channel()
        for body in ("lost", "lost, too", "and this"):  # the first may be written, and is being synced
            channel.basic_publish("", "work", body.encode())
            pass_time(0.05)
        pass_time(SHOWN_S)
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
