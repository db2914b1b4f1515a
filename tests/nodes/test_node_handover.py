"""A node is drained, and the one that is to have its shard dies before it serves it. How long the shard is
away then at most, `test_nodes_moves` says.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pika
import pytest
from pika.exceptions import AMQPError

from tests.crash.queue_clients import connected
from tests.nodes.node_cluster import NodeCluster, node_cluster
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)

LEASE_S = 3
QUEUE = "work"
LASTING = pika.BasicProperties(delivery_mode=2)


def next_owner_of(cluster: NodeCluster, shard: int) -> str | None:
    """Who is to have the shard of the node that is drained, before it is handed over."""
    told = cluster.view("b")["shards"][shard]
    return str(told["moves_to"]) if told["moves_to"] else None


def new_owner_of(cluster: NodeCluster, shard: int) -> str | None:
    """Who has it, just after it was handed over."""
    for name in ("a", "c"):
        with suppress(httpx.HTTPError):
            owner = cluster.view(name)["shards"][shard]["node"]
            if owner not in (None, "b"):
                return str(owner)
    return None


@contextmanager
def publishing(cluster: NodeCluster, names: tuple[str, ...], confirmed: list[bytes]) -> Iterator[None]:
    """Publish by way of these nodes all the time; what was confirmed is noted."""
    is_over = threading.Event()

    def publish(name: str) -> None:
        number = 0
        while not is_over.is_set():
            with (
                suppress(AMQPError, OSError),
                closing(connected(cluster.nodes[name].amqp_port, heartbeat_s=2)) as connection,
            ):
                channel = connection.channel()
                channel.confirm_delivery()
                while not is_over.is_set():
                    number += 1
                    body = b"%s %d" % (name.encode(), number)
                    channel.basic_publish("", QUEUE, body, LASTING)
                    confirmed.append(body)
                    is_over.wait(0.01)
            is_over.wait(0.1)

    threads = [threading.Thread(target=publish, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("who", [next_owner_of, new_owner_of])
def test_shard_whose_next_owner_dies_in_a_drain_is_served_again_and_nothing_confirmed_is_lost(
    tmp_path: Path, who: Callable[[NodeCluster, int], str | None]
) -> None:
    confirmed: list[bytes] = []
    came: list[bytes] = []
    with node_cluster(tmp_path, shards=3, lease_s=LEASE_S) as cluster:
        cluster.start("a", "b", "c")
        cluster.until_owned("a", a=1, b=1, c=1)
        shard = cluster.owners("a").index("b")
        with closing(connected(cluster.nodes["b"].amqp_port)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)
        with publishing(cluster, ("a", "c"), confirmed):
            until(lambda: len(confirmed) > 20)
            httpx.post(f"{cluster.nodes['a'].http_url}/api/v1/nodes/b/drain").raise_for_status()
            dying = until(lambda: who(cluster, shard))
            assert dying is not None
            cluster.nodes[dying].kill9()
            began = time.monotonic()
            survivor = "ac".replace(dying, "")
            before = len(confirmed)
            until(lambda: any(body.startswith(survivor.encode()) for body in confirmed[before:]), 60)
            print(f"served again in {time.monotonic() - began:.1f} s, by {cluster.owners(survivor)[shard]}")
        wanted = set(confirmed)

        def is_whole() -> bool:
            with (
                suppress(AMQPError, OSError),
                closing(connected(cluster.nodes[survivor].amqp_port)) as connection,
            ):
                channel = connection.channel()
                while (body := channel.basic_get(QUEUE, auto_ack=True)[2]) is not None:
                    came.append(body)
            return wanted <= set(came)

        until(is_whole, 60, told=lambda: sorted(wanted - set(came)))
        cluster.until_owned(survivor, b=0, **{survivor: 3})
