"""From the kill of a node to the first delivery, by another, of a queue that it had.

    python -m benchmarks.node_takeover [--runs 10] [--lease 5] [--shards 3] [--put-ms 30] [--ordered|--drain]

Three nodes share a bucket of a stand-in on this machine, and the shards. Messages wait in a queue of one of
them, which is killed with SIGKILL, or stopped in order (`--ordered`); a consumer at another node asks until
it has one. Meanwhile a publisher at that node publishes to a queue there, one confirm at a time: its longest
wait is told, too. Then the killed node is started again, and given its part of the shards.

With `--drain` the node is drained instead, while consumers at another node fetch messages of its queue one
after the other, and a client that answers nothing is connected to it: told is their longest wait.
"""

from __future__ import annotations

import json
import os
import random
import socket
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp
from benchmarks.load.counters import ConfirmCounter
from benchmarks.s3_stand_in import BUCKET, s3_stand_in
from broker.commands.bench_clients import ClientError
from protocols.amqp091.client import PERSISTENT, encode_publish

NAMES: Final = ("a", "b", "c")
TIMEOUT_S: Final = 120.0
MESSAGES: Final = 1_000
BODY: Final = b"x" * 100


class Node(SluiceMQ):
    """One node."""

    def __init__(self, directory: Path, name: str, secret: Path, shards: int, lease_s: float) -> None:
        super().__init__(directory / name)
        self.node = name
        self._cluster = {
            "listen": f"127.0.0.1:{_free_ports(shards)}",
            "node": name,
            "secret_file": str(secret),
            "shards": shards,
            "lease": f"{int(lease_s * 1000)}ms",
        }

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"cluster": self._cluster}

    def command(self) -> list[str]:
        given = super().command()
        given[given.index("--storage") + 1] = f"s3://{BUCKET}/nodes"
        return given

    def shares(self) -> dict[str, int]:
        """How many shards each node has, as this one knows it."""
        nodes = httpx.get(f"http://127.0.0.1:{self.target.http_port}/api/v1/nodes").json()["nodes"]
        return {node["name"]: len(node["shards"]) for node in nodes}


def _free_ports(count: int) -> int:
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


def until_shared(by: Node, shards: int) -> None:
    """Wait until all nodes have as many shards."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if by.shares() == dict.fromkeys(NAMES, shards // len(NAMES)):
                return
        except (httpx.HTTPError, KeyError):
            pass
        if time.monotonic() > until:
            raise ClientError("the nodes do not share the shards")
        time.sleep(0.2)


def until_delivered(node: Node, queue: str) -> None:
    """Ask again and again until a message was delivered."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            amqp.first_delivery(node.target, queue)
            return
        except (OSError, ClientError):
            if time.monotonic() > until:
                raise ClientError(f"nothing was delivered: {node.last_output()}") from None
            time.sleep(0.02)


class Beside(threading.Thread):
    """Publishes to a queue of its own node, one confirm at a time, and keeps the longest wait."""

    def __init__(self, node: Node, queue: str) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self.is_over = False
        self._client = node.target.amqp()
        self._frame = encode_publish(queue, BODY, PERSISTENT)

    def run(self) -> None:
        confirms = ConfirmCounter()
        self._client.select_confirms()
        sent = 0
        while not self.is_over:
            began = time.monotonic()
            self._client.send(self._frame)
            sent += 1
            while confirms.confirmed < sent:
                confirms.feed(self._client.sock.recv(1 << 16))
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        self._client.close()


class Fetching(threading.Thread):
    """Fetches messages of a queue at one node, one after the other, and keeps the longest wait for one."""

    def __init__(self, node: Node, queue: str) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self.is_over = False
        self._node = node
        self._queue = queue

    def run(self) -> None:
        last = time.monotonic()
        while not self.is_over:
            until_delivered(self._node, self._queue)
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now
            time.sleep(0.05)


def drained(owner: Node, other: Node, queue: str) -> float:
    """Drain a node, let it have shards again, and give the longest wait for a message of a queue it had."""
    nodes = f"http://127.0.0.1:{other.target.http_port}/api/v1/nodes/{owner.node}"
    fetching = Fetching(other, queue)
    idle = owner.target.amqp()
    fetching.start()
    time.sleep(1)
    httpx.post(f"{nodes}/drain").raise_for_status()
    until = time.monotonic() + TIMEOUT_S
    while other.shares()[owner.node] and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(3)
    fetching.is_over = True
    fetching.join()
    idle.sock.close()
    httpx.post(f"{nodes}/resume").raise_for_status()
    return fetching.longest_s


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--lease", type=float, default=5, help="seconds")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--put-ms", type=float, default=30.0)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--drain", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sluicemq-bench-") as name,
        s3_stand_in(given.put_ms) as environment,
    ):
        os.environ |= environment
        secret = Path(name) / "secret"
        secret.write_text("a secret of this comparison")
        nodes = [Node(Path(name), each, secret, given.shards, given.lease) for each in NAMES]
        try:
            for node in nodes:
                node.start()
            took, waited = [], []
            for number in range(given.runs):
                owner, other = nodes[number % 3], nodes[(number + 1) % 3]
                until_shared(other, given.shards)
                owner.target.declare(f"gone-{number}")
                other.target.declare(f"beside-{number}")
                amqp.fill(owner.target, amqp.AmqpLoad(size=100, messages=MESSAGES), f"gone-{number}")
                beside = Beside(other, f"beside-{number}")
                beside.start()
                time.sleep(1)
                begun = time.monotonic()
                if given.drain:
                    took.append(round(drained(owner, other, f"gone-{number}"), 2))
                else:
                    if given.ordered:
                        threading.Thread(target=owner.stop).start()
                    else:
                        owner.stop(kill=True)
                    until_delivered(other, f"gone-{number}")
                    took.append(round(time.monotonic() - begun, 2))
                beside.is_over = True
                beside.join()
                waited.append(round(beside.longest_s, 3))
                print(json.dumps({"takeover_s": took[-1], "longest_wait_beside_s": waited[-1]}), flush=True)
                if not given.drain:
                    time.sleep(2)
                    owner.start()
            print(json.dumps({"takeover_s": sorted(took), "longest_wait_beside_s": sorted(waited)}))
        finally:
            for node in nodes:
                node.stop(kill=True)


if __name__ == "__main__":
    main()
