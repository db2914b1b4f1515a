"""From the kill of a broker on an object store to the first delivery of its standby.

    python -m benchmarks.takeover [--messages 1000000] [--runs 5] [--lease 5] [--put-ms 30] [--get-ms 10]

Two brokers, of machines with names of their own as far as they can tell, share a bucket of a stand-in on
this machine. Messages wait in one queue; the one that serves is killed with SIGKILL, or ended in order
(`--ordered`), and a consumer asks for a message of the other one until it has it. Then the killed one is
started again as the next standby. `lease` is part of each figure; it is to be the lease and 4 s at most.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp, process_stat
from benchmarks.s3_stand_in import BUCKET, s3_stand_in
from broker.commands.bench_clients import ClientError

QUEUE: Final = "waiting"
TIMEOUT_S: Final = 120.0
ELSEWHERE: Final = """
import os
here = os.uname()
os.uname = lambda: os.uname_result((here.sysname, NAME, here.release, here.version, here.machine))
from broker.__main__ import main
main()
"""


class Node(SluiceMQ):
    """A broker with a lease, on a machine of its own by name."""

    def __init__(self, directory: Path, name: str, lease_s: int) -> None:
        super().__init__(directory / name)
        self._node = name
        self._lease_s = lease_s

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"cluster": {"lease": f"{self._lease_s}s"}}

    def command(self) -> list[str]:
        given = super().command()[3:]
        given[given.index("--storage") + 1] = f"s3://{BUCKET}/takeover"
        return [sys.executable, "-c", ELSEWHERE.replace("NAME", repr(self._node)), *given]

    def log(self) -> str:
        log = self.directory / "output.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def wait_behind(self) -> None:
        """Start as a standby."""
        (self.directory / "output.log").unlink(missing_ok=True)
        self.spawn()
        until = time.monotonic() + TIMEOUT_S
        while "waiting for process" not in self.log():
            if time.monotonic() > until:
                raise ClientError(f"it is no standby: {self.last_output()}")
            time.sleep(0.1)


def requests(endpoint: str) -> Counter[str]:
    """How many of each kind the store has had."""
    return Counter(httpx.get(f"{endpoint}/-/requests").json())


def wait_for_delivery(node: Node) -> None:
    """Ask again and again until a message was delivered."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            amqp.first_delivery(node.target, QUEUE)
            return
        except (OSError, ClientError):
            if time.monotonic() > until:
                raise ClientError(f"nothing was delivered: {node.last_output()}") from None
            time.sleep(0.02)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="body bytes")
    parser.add_argument("--window", type=int, default=5_000, help="unconfirmed ones; 1: each is a commit")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lease", type=int, default=5, help="seconds")
    parser.add_argument("--put-ms", type=float, default=30.0)
    parser.add_argument("--get-ms", type=float, default=10.0)
    parser.add_argument("--ordered", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sluicemq-bench-") as name,
        s3_stand_in(given.put_ms) as environment,
    ):
        os.environ |= environment
        owner, standby = (Node(Path(name), node, given.lease) for node in ("one", "other"))
        try:
            owner.start()
            owner.target.declare(QUEUE)
            load = amqp.AmqpLoad(
                size=given.size,
                messages=given.messages,
                seconds=1_200,
                window=given.window,
                batch=min(given.window, 100),
            )
            amqp.fill(owner.target, load, QUEUE)
            took = []
            for _ in range(given.runs):
                standby.wait_behind()
                time.sleep(given.lease)
                asked = requests(environment["AWS_ENDPOINT_URL"])
                begun = time.monotonic()
                owner.stop(kill=not given.ordered)
                wait_for_delivery(standby)
                took.append(round(time.monotonic() - begun, 2))
                report = {
                    "takeover_s": took[-1],
                    "processor_s": round(process_stat.cpu_s(standby.target.pid), 2),
                    "requests": requests(environment["AWS_ENDPOINT_URL"]) - asked,
                    "log": re.findall(r"broker\.start_took.*", standby.log()),
                }
                print(json.dumps(report), flush=True)
                owner, standby = standby, owner
            print(json.dumps({"takeover_s": sorted(took), "aim_s": given.lease + 4}))
        finally:
            for node in (owner, standby):
                node.stop(kill=True)


if __name__ == "__main__":
    main()
