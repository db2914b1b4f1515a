"""Confirms of a broker on an object store, beside what one request takes.

    python -m benchmarks.object_store [--put-ms 10 30 50] [--seconds 5]

The store is a stand-in on this machine that answers each PUT after a pause. `put_ms` is one request, p50;
`lone_ms` what a client waits that publishes the next message when the one before it is confirmed, beside a
consumer that acknowledges each in `lone_consumed_ms`; the rates are messages a second of 50 such clients
over MQTT, and of one over AMQP with 5,000 messages unconfirmed.
"""

from __future__ import annotations

import json
import os
import time
from http.client import HTTPConnection
from statistics import median
from urllib.parse import urlsplit

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import amqp, mqtt, process_stat
from benchmarks.load.target import Target
from benchmarks.s3_stand_in import BUCKET, s3_stand_in
from protocols.amqp091.client import PERSISTENT, encode_publish

REQUESTS = 30


class OnObjectStore(SluiceMQ):
    """A broker whose messages lie in the bucket of the stand-in."""

    def command(self) -> list[str]:
        given = super().command()
        given[given.index("--storage") + 1] = f"s3://{BUCKET}/{self.directory.name}"
        return given


def request_ms(endpoint: str) -> float:
    """What one PUT takes, on a connection that is open."""
    took = []
    connection = HTTPConnection(urlsplit(endpoint).netloc)
    for number in range(REQUESTS):
        begun = time.perf_counter()
        connection.request("PUT", f"/{BUCKET}/request-{number}", b"x" * 300)
        connection.getresponse().read()
        took.append(1000 * (time.perf_counter() - begun))
    connection.close()
    return median(took)


def lone_ms(target: Target, queue: str, seconds: float) -> float:
    """What a confirm takes, p50, of one message at a time."""
    took = []
    client = target.amqp()
    client.select_confirms()
    frames = encode_publish(queue, b"x" * 100, PERSISTENT)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        client.sock.sendall(frames)
        client.sock.recv(65_536)
        took.append(1000 * (time.perf_counter() - begun))
    client.close()
    return median(took)


def measure(put_ms: float, seconds: float) -> dict[str, object]:
    with s3_stand_in(put_ms) as environment:
        os.environ |= environment
        report: dict[str, object] = {"put_ms": round(request_ms(environment["AWS_ENDPOINT_URL"]), 1)}
        with started(OnObjectStore) as broker:
            target = broker.target
            target.declare("lone")
            report["lone_ms"] = round(lone_ms(target, "lone", seconds), 1)
            one_by_one = amqp.AmqpLoad(window=1, batch=1, ack_every=1, seconds=seconds)
            report["lone_consumed_ms"] = round(1000 / amqp.run_together(target, one_by_one)["rate"], 1)
            report["devices_50_rate"] = mqtt.run_fleet(
                target, mqtt.FleetLoad(devices=50, queue="fleet", seconds=seconds)
            )["rate"]
            cpu_s = process_stat.cpu_s(target.pid)
            report["window_5000_rate"] = amqp.run_together(target, amqp.AmqpLoad(seconds=seconds))["rate"]
            report["window_5000_cpu_s"] = round(process_stat.cpu_s(target.pid) - cpu_s, 2)
    return report


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--put-ms", type=float, nargs="+", default=[10.0, 30.0, 50.0])
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    for put_ms in given.put_ms:
        print(json.dumps(measure(put_ms, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
