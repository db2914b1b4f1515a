"""An epoch of a million rows: how fast it is staged, what its commit costs, and what others notice of it.

    python -m benchmarks.epoch_commit [--rows 1000000] [--bytes 100]

Stages the rows over one connection and commits them, while another connection publishes durable messages
to another queue one by one. Reports the broker's processor time from the commit until the last row is in the
queue, that of its event loop alone, and how long single confirms took meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles

from benchmarks.brokers import SluiceMQ
from benchmarks.load import process_stat
from spark_bridge import wire
from spark_bridge.client import Connection
from spark_bridge.settings import ConnectionSettings

QUEUE, OTHER = "epochs", "others"
TAG = {"x-stage-producer": "bench", "x-stage-epoch": 0}
BATCH = 200
WINDOW = 20_000
PAUSE_S = 0.002
REST_S = 8.0  # what staging left the store to do is not the commit's


def loop_cpu_s(pid: int) -> float:
    """Processor time of the thread that runs the event loop."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def declare(connection: Connection, queue: str) -> None:
    """Make a durable queue."""
    connection.call(50, 10, b"\0\0" + wire.short(queue) + b"\2" + wire.table({}), answer=(50, 11))


def stage(settings: ConnectionSettings, row_count: int, body_bytes: int) -> float:
    """Stage rows; gives how many per second."""
    headers = {**TAG, "x-stage-part": 0, "x-stage-attempt": "a"}
    properties = wire.encode_properties({"delivery_mode": 2, "headers": headers})
    row = (
        wire.method(1, 60, 40, b"\0\0\0" + wire.short(QUEUE) + b"\1")
        + wire.content_header(1, body_bytes, properties)
        + wire.frame(wire.BODY, 1, bytes(body_bytes))
    )
    with Connection(settings) as connection:
        connection.confirm_select()
        begun = time.monotonic()
        for start in range(0, row_count, BATCH):
            count = min(BATCH, row_count - start)
            connection.send([row * count], count)
            connection.wait_confirmed(WINDOW)
        connection.wait_confirmed()
        return row_count / (time.monotonic() - begun)


class Bystander(threading.Thread):
    """Publishes one message after the other; `latencies_ms` of their confirms since it was last cleared."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(daemon=True)
        self.settings = settings
        self.latencies_ms: list[float] = []
        self.ends = threading.Event()

    def run(self) -> None:
        properties = wire.encode_properties({"delivery_mode": 2})
        with Connection(self.settings) as connection:
            connection.confirm_select()
            while not self.ends.wait(PAUSE_S):
                begun = time.monotonic()
                connection.publish("", OTHER, b"x", properties)
                connection.wait_confirmed()
                self.latencies_ms.append((time.monotonic() - begun) * 1000)

    def report(self) -> str:
        """What was measured, and begin again."""
        found, self.latencies_ms = self.latencies_ms, []
        cuts = quantiles(found, n=100)
        return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, longest {max(found):.1f} ms of {len(found)}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicemq-epoch-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        try:
            measure(broker, arguments.rows, arguments.bytes)
        finally:
            broker.clear()


def measure(broker: SluiceMQ, row_count: int, body_bytes: int) -> None:
    """One epoch."""
    settings = ConnectionSettings("127.0.0.1", broker.amqp_port)
    with Connection(settings) as connection:
        for queue in (QUEUE, OTHER):
            declare(connection, queue)
        print(f"staged: {stage(settings, row_count, body_bytes):,.0f} rows/s")
        bystander = Bystander(settings)
        bystander.start()
        time.sleep(REST_S)
        bystander.report()
        time.sleep(2)
        print(f"confirms to others before: {bystander.report()}")
        cpu_s, loop_s = process_stat.cpu_s(broker.pid), loop_cpu_s(broker.pid)
        begun = time.monotonic()
        body = json.dumps({"parts": [[0, "a", row_count]]}).encode()
        connection.ask(f"$queue/{QUEUE}/$stage-commit", TAG, body)
        print(f"commit answered after {(time.monotonic() - begun) * 1000:.1f} ms")
        while connection.declare(QUEUE, passive=True)[1] < row_count:
            time.sleep(0.02)
        print(f"all rows in the queue after {time.monotonic() - begun:.2f} s")
        print(f"event loop: {loop_cpu_s(broker.pid) - loop_s:.2f} s", end=", ")
        print(f"whole process: {process_stat.cpu_s(broker.pid) - cpu_s:.2f} s of processor time")
        print(f"confirms to others meanwhile: {bystander.report()}")
        bystander.ends.set()
        bystander.join()


if __name__ == "__main__":
    main()
