"""Nodes of one cluster, as processes, on one S3 bucket."""

from __future__ import annotations

import random
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx

from broker.network.tls.making import Authority, write_pair
from broker.nodes.node_keeper import FOLDER
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.copied_process import CHANGE_VARIABLE
from tests.nodes import changed_node
from tests.storage_faults.s3 import ANSWERED, ASKED, BUCKET, Way, s3_endpoint
from tests.storage_faults.store_way import StoreWay
from tests.waiting import until

SECRET = "a secret of this test"
PATIENCE_S = 60.0


RECORDS = f"/{FOLDER}/"


class NodeCluster:
    """Nodes by name, each with a way of its own to the store, and, where `join` said so, to each other."""

    def __init__(
        self,
        directory: Path,
        environment: dict[str, str],
        *,
        shards: int = 3,
        lease_s: float = 3,
        is_encrypted: bool = False,
    ) -> None:
        self.directory = directory
        self.shards = shards
        self.lease_s = lease_s
        self.nodes: dict[str, BrokerProcess] = {}
        self.ways: dict[str, StoreWay] = {}
        self.links: dict[tuple[str, str], Way] = {}
        """From a node to another: what the first one asks, and is answered."""
        self._environment = environment
        self._run = tempfile.mkdtemp(prefix="n")
        self._known_by: dict[str, Any] = {"secret_file": str(directory / "secret")}
        (directory / "secret").write_text(SECRET)
        if is_encrypted:
            authority = Authority.made()
            write_pair(directory, "ca", authority.key, authority.certificate)
            pair = authority.issue("127.0.0.1", ["127.0.0.1"], is_server=True, is_client=True)
            write_pair(directory, "node", *pair)
            files = {"cert_file": "node.crt", "key_file": "node.key", "ca_file": "ca.crt"}
            self._known_by = {"tls": {key: str(directory / name) for key, name in files.items()}}

    def node(self, name: str, **config: Any) -> BrokerProcess:
        """A node that is not started."""
        way = self.ways[name] = StoreWay(self._environment["AWS_ENDPOINT_URL"], RECORDS)
        cluster = {
            "listen": f"127.0.0.1:{free_ports(self.shards)}",
            "node": name,
            "shards": self.shards,
            "lease": f"{int(self.lease_s * 1000)}ms",
            **self._known_by,
        }
        self.nodes[name] = BrokerProcess(
            self.directory / name,
            {"cluster": cluster, **config},
            storage=f"s3://{BUCKET}/{self.directory.name}",
            environment=self._environment | {"AWS_ENDPOINT_URL": way.endpoint, "TMPDIR": self._run},
        )
        return self.nodes[name]

    def join(self, names: Collection[str], limits: Mapping[str, float]) -> None:
        """Make nodes that reach each other by ways that can be cut, with some limits changed; start them."""
        first_ports = {name: self._first_port(self.node(name)) for name in names}
        for name in names:
            ways: dict[int, int] = {}
            for other in set(names) - {name}:
                ports = range(first_ports[other], first_ports[other] + self.shards)
                way = self.links[name, other] = Way(*[f"http://127.0.0.1:{port}" for port in ports])
                ways.update(zip(ports, way.ports, strict=True))
            self.nodes[name].environment |= {
                CHANGE_VARIABLE: f"{changed_node.__name__}:{changed_node.change.__name__}",
                **changed_node.environment(limits, ways),
            }
        for name in names:
            self.nodes[name].start(PATIENCE_S)

    @staticmethod
    def _first_port(node: BrokerProcess) -> int:
        return int(node.config["cluster"]["listen"].rpartition(":")[2])

    def directions(self, name: str, *, out: bool, back: bool) -> list[tuple[Way, list[bool]]]:
        """The ways from and to a node, with what of each goes from the node (`out`), and to it (`back`)."""
        found = []
        for (asking, asked), way in self.links.items():
            if name in (asking, asked):
                is_wanted = {ASKED: out, ANSWERED: back} if name == asking else {ASKED: back, ANSWERED: out}
                found.append((way, [direction for direction in is_wanted if is_wanted[direction]]))
        return found

    def start(self, *names: str) -> None:
        """Start nodes, one after the other."""
        for name in names:
            self.node(name).start(PATIENCE_S)

    def view(self, name: str) -> dict[str, Any]:
        """What a node tells of the cluster."""
        url = f"{self.nodes[name].http_url}/api/v1/nodes"
        answer = httpx.get(url, timeout=5, verify=False)  # reading certificates takes time from the store
        told: dict[str, Any] = answer.raise_for_status().json()
        return told

    def owners(self, name: str) -> list[str | None]:
        """The nodes that have the shards, by number, as one of them knows it."""
        return [shard["node"] for shard in self.view(name)["shards"]]

    def client_of(self, shard: int, name: str = "client") -> str:
        """The identifier of an MQTT client whose session is in that shard."""
        return next(
            client_id
            for client_id in (f"{name}-{number}" for number in range(1000))
            if crc32(f"/\x1d{client_id}".encode()) % self.shards == shard
        )

    def until_owned(self, by: str, timeout_s: float = PATIENCE_S, **counts: int) -> None:
        """Wait until each of these nodes has so many shards, and each shard is some node's, as one of them
        knows it.
        """

        def are_owned() -> bool:
            try:
                owners = self.owners(by)
            except httpx.TransportError:  # its HTTP goes from the keeper to a worker
                return False
            return None not in owners and all(owners.count(name) == counts[name] for name in counts)

        until(are_owned, timeout_s, told=lambda: str(self.view(by)))

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill9()
        for way in (*self.ways.values(), *self.links.values()):
            way.close()


@contextmanager
def node_cluster(directory: Path, **options: Any) -> Iterator[NodeCluster]:
    with ExitStack() as stack:
        cluster = NodeCluster(directory, stack.enter_context(s3_endpoint()), **options)
        stack.callback(cluster.close)
        yield cluster


def free_ports(count: int) -> int:
    """The first of so many ports, one behind the other, that nobody has and no connection gets."""
    while True:
        port = random.randrange(20_000, 32_000)
        with ExitStack() as stack:
            try:
                for each in range(port, port + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port
