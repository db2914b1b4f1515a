"""Three nodes: clients reach every queue from each, and a node that dies takes nothing along."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pika.exceptions import AMQPError
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import amqp
from tests.nodes.node_cluster import PATIENCE_S, NodeCluster, node_cluster
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path) as nodes:
        yield nodes


def channel_of(cluster: NodeCluster, name: str) -> Any:
    channel = amqp.connect(cluster.nodes[name].amqp_port).channel()
    channel.confirm_delivery()
    return channel


@contextmanager
def knocking(port: int) -> Iterator[list[float]]:
    """Connect all the time; gives when that was refused."""
    refused: list[float] = []
    is_over = threading.Event()

    def knock() -> None:
        while not is_over.wait(0.002):
            with socket.socket() as visitor:
                try:
                    visitor.connect(("127.0.0.1", port))
                except ConnectionRefusedError:
                    refused.append(time.monotonic())

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        yield refused
    finally:
        is_over.set()
        thread.join()


def test_one_node_has_all_shards_and_serves(cluster: NodeCluster) -> None:
    cluster.start("a")
    channel = channel_of(cluster, "a")
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", b"m")
    method, _, body = channel.basic_get("work", auto_ack=True)
    assert body == b"m"
    assert cluster.owners("a") == ["a", "a", "a"]
    assert cluster.nodes["a"].stop() == 0


def test_nodes_that_join_get_shards_and_reach_every_queue_and_one_that_dies_takes_nothing_along(
    cluster: NodeCluster,
) -> None:
    cluster.start("a", "b", "c")
    cluster.until_owned("a", a=1, b=1, c=1)
    channels = {name: channel_of(cluster, name) for name in cluster.nodes}
    for name, channel in channels.items():
        channel.queue_declare(f"of-{name}", durable=True)
        for other in channels.values():
            amqp.publish(other, f"of-{name}", b"m")
    cluster.nodes["b"].kill9()
    began = time.monotonic()
    survivor = channel_of(cluster, "c")
    bodies: list[bytes] = []

    def drained() -> bool:
        nonlocal survivor
        try:
            while (got := survivor.basic_get("of-b", auto_ack=True))[0] is not None:
                bodies.append(got[2])
        except AMQPError:
            survivor = channel_of(cluster, "c")
        return len(bodies) == 3

    until(drained, 60)
    print("delivered after", time.monotonic() - began)
    owners = cluster.owners("c")
    assert not {"b", None} & set(owners)


def test_a_node_that_is_drained_hands_over_its_shards_and_takes_them_again(cluster: NodeCluster) -> None:
    cluster.start("a", "b")
    cluster.until_owned("a", a=2, b=1)
    channel = channel_of(cluster, "b")
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", b"m")
    url = cluster.nodes["a"].http_url
    began = time.monotonic()
    done = CliRunner().invoke(app, ["node", "drain", "b", "--url", url])
    assert done.exit_code == 0, done.output
    print("drained in", time.monotonic() - began)
    assert cluster.owners("a") == ["a", "a", "a"]
    told = httpx.get(f"{url}/metrics", timeout=10).text
    assert {
        'sluicemq_node_shards{node="a"} 3',
        'sluicemq_node_shards{node="b"} 0',
        'sluicemq_node_draining{node="a"} 0',
        'sluicemq_node_draining{node="b"} 1',
        'sluicemq_shard_owned{shard="0"} 1',
    } <= set(told.splitlines())
    other = channel_of(cluster, "a")
    until(lambda: other.basic_get("work", auto_ack=True)[2] == b"m", 20)
    done = CliRunner().invoke(app, ["node", "resume", "b", "--url", url])
    assert done.exit_code == 0, done.output
    cluster.until_owned("a", a=2, b=1)

    def told_of(event: str) -> list[str]:
        return [line for line in cluster.nodes["a"].log.splitlines() if event in line]

    moved = [line for line in told_of("shard.moved") if "handed over" in line]
    assert len(moved) == 3, "to b as it came, to a, to b again: each told once"
    until(lambda: len(told_of("worker.lost")) >= 6)  # with each move the two other workers lose one
    lost = told_of("worker.lost")
    assert len(lost) == 6
    assert all("it is handed over to another node" in line for line in lost)
    shown = CliRunner().invoke(app, ["shard", "ls", "--url", url])
    assert "handed over" in shown.output


def test_a_drained_node_still_answers_over_http_and_says_why_it_is_not_ready(cluster: NodeCluster) -> None:
    cluster.start("a", "b")
    cluster.until_owned("a", a=2, b=1)
    url = cluster.nodes["b"].http_url
    done = CliRunner().invoke(app, ["node", "drain", "b", "--url", url])
    assert done.exit_code == 0, done.output

    def health() -> dict[str, str] | None:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/api/v1/health", timeout=5).raise_for_status().json()
        return None

    reason = "the node is drained: it has no shard until it may have some again (node resume b)"
    until(lambda: health() == {"status": "impaired", "reason": reason}, 30)
    ready = httpx.get(f"{url}/api/v1/ready", timeout=5)
    assert (ready.status_code, ready.json()) == (503, {"error": "no_shard", "reason": reason})
    assert cluster.owners("b") == ["a", "a", "a"]
    assert 'sluicemq_node_draining{node="b"} 1' in httpx.get(f"{url}/metrics", timeout=5).text.splitlines()
    both = f"{url},{cluster.nodes['a'].http_url}"
    listed = CliRunner().invoke(app, ["queue", "ls", "--url", both])
    assert listed.exit_code == 0, listed.output
    listed = CliRunner().invoke(app, ["queue", "ls", "--url", url])
    assert reason in listed.output
    with knocking(cluster.nodes["b"].ports["http"]) as refused:
        done = CliRunner().invoke(app, ["node", "resume", "b", "--url", url])
        assert done.exit_code == 0, done.output
        cluster.until_owned("a", a=2, b=1)

        def is_ready() -> bool:
            with suppress(httpx.TransportError):
                return httpx.get(f"{url}/api/v1/ready", timeout=5, verify=False).status_code == 200
            return False

        until(is_ready, 20)
    assert httpx.get(f"{url}/api/v1/queues", timeout=5).status_code == 200
    assert refused == [], "by the time that the keeper leaves, a worker listens"


def test_a_node_that_was_killed_has_its_shards_as_soon_as_it_is_started_again(tmp_path: Path) -> None:
    with node_cluster(tmp_path, lease_s=11) as cluster:
        cluster.start("a", "b")
        cluster.until_owned("a", a=2, b=1)
        before = cluster.owners("a")
        channel = channel_of(cluster, "b")
        channel.queue_declare("work", durable=True)
        amqp.publish(channel, "work", b"m")
        cluster.nodes["b"].kill9()
        began = time.monotonic()
        cluster.nodes["b"].start(PATIENCE_S)
        print("started again in", time.monotonic() - began)
        assert time.monotonic() - began < 11, "it waits for its own lease"
        until(lambda: channel_of(cluster, "b").basic_get("work", auto_ack=True)[2] == b"m", 20)
        assert cluster.owners("a") == before


def test_a_node_that_stops_in_order_hands_over_at_once(cluster: NodeCluster) -> None:
    cluster.start("a", "b")
    cluster.until_owned("a", a=2, b=1)
    channel = channel_of(cluster, "b")
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", b"m")
    began = time.monotonic()
    assert cluster.nodes["b"].stop(30) == 0
    other = channel_of(cluster, "a")
    until(lambda: other.basic_get("work", auto_ack=True)[2] == b"m", 20)
    print("stopped and served in", time.monotonic() - began)


def test_nodes_with_certificates_speak_over_tls(tmp_path: Path) -> None:
    with node_cluster(tmp_path, shards=2, is_encrypted=True) as cluster:
        cluster.start("a", "b")
        cluster.until_owned("a", a=1, b=1)
        here, there = channel_of(cluster, "a"), channel_of(cluster, "b")
        here.queue_declare("work", durable=True)
        amqp.publish(there, "work", b"m" * 200_000)
        assert there.basic_get("work", auto_ack=True)[2] == b"m" * 200_000
