"""Links between nodes: what goes over one that is cut is refused in time, and goes on once healed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pika.exceptions import AMQPError, NackError

from tests.e2e import amqp
from tests.nodes.node_cluster import NodeCluster, node_cluster
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
