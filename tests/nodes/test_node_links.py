"""Links between nodes: what goes over one that is cut is refused in time; nobody passes on what is old."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import AMQPError, NackError

from tests.crash.queue_clients import connected
from tests.e2e import amqp
from tests.e2e.raw_mqtt import SUBACK, subscribe
from tests.e2e.several_workers import connected as mqtt_connected
from tests.nodes.node_cluster import PATIENCE_S, NodeCluster, node_cluster
from tests.storage_faults.s3 import ANSWERED, ASKED
from tests.waiting import pass_time, until

pytestmark = [pytest.mark.extension, pytest.mark.timeout(240)]

REFUSED_S_MAX = 20.0
HEALED_S_MAX = 20.0
AB, BA = ("a", "b"), ("b", "a")

Cut = dict[tuple[str, str], tuple[bool, ...]]

CUTS: dict[str, Cut] = {
    "both ways": {AB: (ASKED, ANSWERED), BA: (ASKED, ANSWERED)},
    "what goes out": {AB: (ASKED,), BA: (ANSWERED,)},
    "what comes back": {AB: (ANSWERED,), BA: (ASKED,)},
    "connections that the node opens": {AB: (ASKED, ANSWERED)},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path_factory.mktemp("links"), shards=2) as nodes:
        nodes.join(("a", "b"), {})
        nodes.until_owned("a", a=1, b=1)
        yield nodes


def channel_of(cluster: NodeCluster, name: str) -> Any:
    channel = amqp.connect(cluster.nodes[name].amqp_port).channel()
    channel.confirm_delivery()
    return channel


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.long) if "what" in how else how for how in CUTS]
)
def test_publish_over_a_link_that_swallows_it_is_refused_in_time_and_taken_once_that_is_healed(
    cluster: NodeCluster, how: str
) -> None:
    owners = cluster.owners("a")
    queue = how.replace(" ", "-")
    channel_of(cluster, "b").queue_declare(queue, durable=True)
    channel = channel_of(cluster, "a")
    amqp.publish(channel, queue, b"before")
    for link, directions in CUTS[how].items():
        cluster.links[link].hold(*directions)
    began = time.monotonic()
    try:
        while True:
            amqp.publish(channel, queue, b"during")
            assert time.monotonic() - began < REFUSED_S_MAX, "nothing was refused"
            pass_time(0.5)
    except (AMQPError, NackError) as error:
        refused_s = time.monotonic() - began
        print(how, refused_s, repr(error))
    assert refused_s < REFUSED_S_MAX
    assert cluster.owners("a") == cluster.owners("b") == owners
    for link in CUTS[how]:
        cluster.links[link].heal()

    def is_taken() -> bool:
        try:
            amqp.publish(channel_of(cluster, "a"), queue, b"after")
        except (AMQPError, NackError):
            return False
        return True

    began = time.monotonic()
    until(is_taken, HEALED_S_MAX)
    print(how, "healed after", time.monotonic() - began)


def test_node_that_was_stopped_passes_on_nothing_of_an_owner_that_died_meanwhile(tmp_path: Path) -> None:
    came: list[float] = []
    heard: list[float] = []
    is_over = threading.Event()
    with node_cluster(tmp_path, shards=3) as cluster:
        cluster.join(("a", "b", "c"), {})
        cluster.until_owned("a", a=1, b=1, c=1)
        publishing = connected(cluster.nodes["b"].amqp_port).channel()
        publishing.queue_declare("work", durable=True)
        consuming = connected(cluster.nodes["a"].amqp_port)
        channel = consuming.channel()
        channel.basic_consume("work", lambda *_: came.append(time.monotonic()), auto_ack=True)

        def consume() -> None:
            with suppress(AMQPError):
                while not is_over.is_set():
                    consuming.process_data_events(0.05)

        shard = cluster.owners("a").index("b")
        device = mqtt_connected(cluster.nodes["a"].mqtt_port, cluster.client_of(shard))
        device.send_bytes(subscribe("news", 0))
        device.expect(SUBACK)

        def hear() -> None:
            with suppress(OSError):
                while device.read(PATIENCE_S) is not None:
                    heard.append(time.monotonic())

        def publish() -> None:
            with suppress(AMQPError):
                while not is_over.is_set():
                    publishing.basic_publish("", "work", b"m")
                    publishing.basic_publish("amq.topic", "news", b"m")
                    pass_time(0.002)

        threads = [threading.Thread(target=work) for work in (consume, hear, publish)]
        for thread in threads:
            thread.start()
        until(lambda: came and heard)
        stopped = cluster.nodes["a"].process
        assert stopped is not None
        os.killpg(stopped.pid, signal.SIGSTOP)
        pass_time(0.5)  # what the owner gives waits for the node that is stopped
        cluster.nodes["b"].kill9()
        pass_time(3 * cluster.lease_s)
        resumed_s = time.monotonic()
        os.killpg(stopped.pid, signal.SIGCONT)
        pass_time(2)
        is_over.set()
        device.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
    assert [at_s - resumed_s for at_s in heard if at_s > resumed_s] == []
    assert [at_s - resumed_s for at_s in came if at_s > resumed_s] == []
