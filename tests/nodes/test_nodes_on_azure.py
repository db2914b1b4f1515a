"""Nodes on Azure's blobs, where Azurite stands in for it (`npm install azurite`)."""

import base64
import hashlib
import hmac
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import httpx
import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.nodes.node_cluster import free_ports
from tests.waiting import until

AZURITE = shutil.which("azurite-blob")
ACCOUNT = "devstoreaccount1"
# the key of every Azurite
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "sluice"
PATIENCE_S = 60.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(AZURITE is None, reason="azurite-blob is not installed"),
]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A container; gives the environment that leads there."""
    port = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    options = [
        "--silent",
        "--skipApiVersionCheck",
        "--location",
        str(tmp_path / "blobs"),
        "--blobPort",
        str(port),
    ]
    server = subprocess.Popen([str(AZURITE), *options])
    try:
        until(lambda: is_made(endpoint), PATIENCE_S)
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": endpoint,
        }
    finally:
        server.kill()
        server.wait()


def is_made(endpoint: str) -> bool:
    """Make the container: neither obstore nor SlateDB does."""
    date = f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S} GMT"
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    signed = "PUT" + "\n" * 12 + f"{headers}\n/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    request = Request(f"{endpoint}/{ACCOUNT}/{CONTAINER}?restype=container", method="PUT")
    request.headers = dict(line.split(":", 1) for line in headers.split("\n"))
    request.add_header("Authorization", f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}")
    request.add_header("Content-Length", "0")
    try:
        with urlopen(request, timeout=5) as answer:
            return bool(answer.status == 201)
    except OSError:
        return False


def test_what_was_confirmed_is_delivered_by_another_node_and_a_drained_node_has_no_shard(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "secret").write_text("a secret of this test")
    nodes = {
        name: BrokerProcess(
            tmp_path / name,
            {
                "cluster": {
                    "listen": f"127.0.0.1:{free_ports(3)}",
                    "node": name,
                    "shards": 3,
                    "lease": "3s",
                    "secret_file": str(tmp_path / "secret"),
                }
            },
            storage=f"az://{CONTAINER}/nodes",
            environment=environment | {"TMPDIR": str(tmp_path)},
        )
        for name in "abc"
    }

    def owners(by: str) -> list[str | None]:
        try:
            answer = httpx.get(f"{nodes[by].http_url}/api/v1/nodes", timeout=5)
        except httpx.TransportError:  # its HTTP goes from the keeper to a worker
            return []
        return [shard["node"] for shard in answer.json()["shards"]]

    with ExitStack() as stack:
        for node in nodes.values():
            stack.callback(node.kill9)
            node.start(PATIENCE_S)
        until(lambda: sorted(map(str, owners("a"))) == ["a", "b", "c"], PATIENCE_S)
        channel = amqp.connect(nodes["b"].amqp_port).channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        for number in range(100):
            amqp.publish(channel, "kept", str(number))
        nodes["b"].kill9()
        survivor = amqp.connect(nodes["c"].amqp_port).channel()
        found = amqp.Collector(survivor, "kept", ack=True).wait(100, PATIENCE_S)
        assert sorted(int(each.body) for each in found) == list(range(100))
        nodes["b"].start(PATIENCE_S)
        until(lambda: owners("a").count("b") == 1, PATIENCE_S)
        httpx.post(f"{nodes['c'].http_url}/api/v1/nodes/a/drain", timeout=5).raise_for_status()
        until(lambda: "a" not in owners("c") and None not in owners("c"), PATIENCE_S)
