"""A deep backlog: memory while it waits, how soon a restarted broker serves it, how fast it drains.

The broker must be restarted on the way, so `restart` is a function of the caller (`benchmarks.compare` gives
one). From the command line, which cannot restart a broker, only the memory and the drain are measured:
`python -m benchmarks.load.backlog --amqp-port 5672 --pid 1234 --messages 1000000`
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load import amqp, amqp_wire, process_stat
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import LoadError
from benchmarks.load.target import Target

FIRST_DELIVERY_TIMEOUT_S = 60.0
SETTLE_S = 1.0


@dataclass(frozen=True)
class BacklogLoad:
    """`messages` durable messages of `size` bytes, confirmed before anybody consumes."""

    messages: int = 1_000_000
    size: int = 1_024
    limit_s: float = 240.0
    queue_arguments: dict[str, Any] = field(default_factory=dict)


def run(
    target: Target, load: BacklogLoad, restart: Callable[[], tuple[Target, float]] | None
) -> dict[str, Any]:
    """Fill, weigh, restart, time the first delivery, drain. Sizes in MB (10^6 bytes), times in seconds.

    `restart` stops the broker and starts it on the same data; it returns where it listens now and the
    monotonic time at which the new process was started.
    """
    queue = f"bench-backlog-{os.getpid()}-{time.monotonic_ns()}"
    control = amqp_wire.AmqpClient(target.host, target.amqp_port)
    control.declare_queue(queue, durable=True, arguments=load.queue_arguments)
    control.close()
    idle = process_stat.rss_bytes(target.pid)
    publish = amqp.AmqpLoad(
        size=load.size, messages=load.messages, seconds=load.limit_s, queue_arguments=load.queue_arguments
    )
    filled = amqp.fill(target, publish, queue)
    time.sleep(SETTLE_S)
    report = {
        "messages": filled["sent"],
        "seconds": round(filled["seconds"], 3),
        "rate": filled["rate"],
        "rss_mb": _mb(process_stat.rss_bytes(target.pid)),
        "rss_peak_mb": _mb(process_stat.rss_peak_bytes(target.pid)),
        "rss_idle_mb": _mb(idle),
    }
    waiting, skipped = filled["sent"], 0
    if restart is not None:
        target, started = restart()
        connected, served = first_delivery(target, queue)
        report |= {
            "restart_connect_s": round(connected - started, 3),
            "restart_serving_s": round(served - started, 3),
            "rss_after_restart_mb": _mb(process_stat.rss_bytes(target.pid)),
        }
        waiting, skipped = waiting - 1, 1
    drained = amqp.drain(target, publish, queue, waiting, skipped)
    report |= {
        "drain_rate": drained["rate"],
        "drained": drained["count"],
        "lost": waiting - drained["count"],
        "rss_drain_peak_mb": _mb(process_stat.rss_peak_bytes(target.pid)),
        "client_cpu_percent": filled["client_cpu_percent"] | drained["client_cpu_percent"],
    }
    control = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=60)
    control.delete_queue(queue)
    control.close()
    return report


def first_delivery(target: Target, queue: str) -> tuple[float, float]:
    """Monotonic times of "connected" and "first message here"; that message is acknowledged."""
    client = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=FIRST_DELIVERY_TIMEOUT_S)
    connected = time.monotonic()
    client.consume(queue, prefetch=1, no_ack=False)
    counter = amqp_wire.DeliveryCounter(client.take_buffered())
    counter.scan()
    while not counter.count:
        try:
            counter.receive(client.sock)
        except BlockingIOError:
            raise LoadError("no delivery after the restart") from None
    served = time.monotonic()
    client.cancel()  # or the next one is given out, comes back, and is redelivered with a header more
    client.sock.sendall(amqp_wire.encode_ack_multiple(counter.count))
    client.close()
    return connected, served


def _mb(size: int) -> float:
    return round(size / 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1_024, help="body bytes")
    given = parser.parse_args()
    load = BacklogLoad(given.messages, given.size)
    print_report("backlog", target_from(given), run(target_from(given), load, None))


if __name__ == "__main__":
    main()
