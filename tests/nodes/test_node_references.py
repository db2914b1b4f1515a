"""Clients of MQTT 5 are sent to the node that has their session, where nodes tell their addresses."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import httpx
import pytest

from tests.e2e import raw_mqtt as wire
from tests.e2e.raw_mqtt import V5, RawMqtt
from tests.nodes.node_cluster import PATIENCE_S, NodeCluster, node_cluster
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)

V311 = 4
SERVER_UNAVAILABLE = 0x88
ANOTHER_SERVER = 0x9C
SERVER_REFERENCE = b"\x1c"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path, shards=2) as nodes:
        for name in "ab":
            node = nodes.node(name)
            node.config["cluster"]["client_address"] = f"{name}.example:1883"
            node.start(PATIENCE_S)
        nodes.until_owned("a", a=1, b=1)
        nodes.until_owned("b", a=1, b=1)
        yield nodes


def client_at_home(cluster: NodeCluster, node: str) -> str:
    """The identifier of a client whose session is at a node."""
    home = cluster.owners("a").index(node)
    return next(name for name in map(str, range(99)) if crc32(f"/\x1d{name}".encode()) % 2 == home)


def reference(name: str) -> bytes:
    return SERVER_REFERENCE + wire.string(f"{name}.example:1883")


def test_clients_are_sent_where_their_session_is_and_once_more_when_it_moves(cluster: NodeCluster) -> None:
    ports = {name: node.mqtt_port for name, node in cluster.nodes.items()}
    of_b = client_at_home(cluster, "b")
    sent_on = RawMqtt(ports["a"], version=None)
    sent_on.send_bytes(wire.connect(V5, of_b))
    connack = sent_on.expect(wire.CONNACK)
    assert connack.body[1] == ANOTHER_SERVER
    assert reference("b") in connack.body
    assert sent_on.read() is None, "nothing follows"
    older = RawMqtt(ports["a"], version=V311, client_id=of_b)  # is let in, since nothing tells it
    older.drop()
    there = RawMqtt(ports["b"], version=V5, client_id=of_b)
    httpx.post(f"{cluster.nodes['a'].http_url}/api/v1/nodes/b/drain").raise_for_status()
    farewell = there.expect(wire.DISCONNECT, 30)
    assert farewell.body[0] == ANOTHER_SERVER
    assert reference("a") in farewell.body
    cluster.until_owned("a", a=2, b=0)
    assert {node["client_address"] for node in cluster.view("a")["nodes"]} == {
        "a.example:1883",
        "b.example:1883",
    }

    def is_let_in() -> bool:
        client = RawMqtt(ports["a"], version=None)
        client.send_bytes(wire.connect(V5, of_b))
        connack = client.expect(wire.CONNACK, 20)
        client.drop()
        assert connack.body[1] in (0, SERVER_UNAVAILABLE)
        return connack.body[1] == 0

    until(is_let_in, 60)
