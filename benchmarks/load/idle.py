"""Memory of idle MQTT connections: connected only, then with one subscription each.

`python -m benchmarks.load.idle --mqtt-port 1883 --pid 1234 --connections 5000`
"""

import argparse
import os
import resource
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.load import mqtt_wire, process_stat
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import LoadError
from benchmarks.load.target import Target

SETTLE_S = 1.0
SPARE_DESCRIPTORS = 200


@dataclass(frozen=True)
class IdleLoad:
    connections: int = 5_000


def run(target: Target, load: IdleLoad) -> dict[str, Any]:
    """`rss_kb_per_connection` (10^3 bytes) by the growth of the broker's resident memory."""
    allow_descriptors(load.connections + SPARE_DESCRIPTORS)
    mqtt_wire.MqttClient(target.host, target.mqtt_port, "bench-first").close()
    time.sleep(SETTLE_S)
    before = process_stat.rss_bytes(target.pid)
    begin = time.monotonic()
    clients: list[mqtt_wire.MqttClient] = []
    try:
        for number in range(load.connections):
            clients.append(
                mqtt_wire.MqttClient(target.host, target.mqtt_port, f"bench-idle-{os.getpid()}-{number}")
            )
        seconds = time.monotonic() - begin
        time.sleep(SETTLE_S)
        connected = process_stat.rss_bytes(target.pid)
        for number, client in enumerate(clients):
            client.subscribe(f"bench/idle/{number}/#", 1)
        time.sleep(SETTLE_S)
        subscribed = process_stat.rss_bytes(target.pid)
    finally:
        for client in clients:
            client.sock.close()
    return {
        "messages": 0,
        "connections": load.connections,
        "seconds": round(seconds, 3),
        "rate": round(load.connections / seconds),
        "rss_before_mb": round(before / 1e6, 1),
        "rss_kb_per_connection": round((connected - before) / 1e3 / load.connections, 2),
        "rss_kb_per_subscribed_connection": round((subscribed - before) / 1e3 / load.connections, 2),
    }


def allow_descriptors(count: int) -> None:
    """Raise the soft limit of open files. Raises LoadError when the hard limit forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise LoadError(f"{count} open files are needed, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--connections", type=int, default=5_000)
    given = parser.parse_args()
    print_report("idle-mqtt", target_from(given), run(target_from(given), IdleLoad(given.connections)))


if __name__ == "__main__":
    main()
