"""What a broker takes of a processor while nobody asks for anything.

    python -m benchmarks.idle_broker [--queues 20] [--connections 0] [--seconds 15] [--rounds 3]

With some durable queues that have a message each, and MQTT connections that say nothing. The least of several
rounds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.brokers import HOST, SluiceMQ
from benchmarks.load import process_stat
from benchmarks.load.mqtt_wire import MqttClient
from benchmarks.many_queues import declare_all, publish_to_all

SETTLE_S = 8.0  # HTTP is put together, and what was published is handed to the database


def idle_share(broker: SluiceMQ, seconds: float) -> float:
    """What it takes of one core."""
    before = process_stat.process_cpu_ns(broker.target.pid)
    time.sleep(seconds)
    return (process_stat.process_cpu_ns(broker.target.pid) - before) / 1e9 / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=20)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicemq-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        try:
            names = [f"queue-{number}" for number in range(given.queues)]
            declare_all(broker.target, names, 1)
            publish_to_all(broker.target, names)
            clients = [
                MqttClient(HOST, broker.mqtt_port, f"idle-{number}", wait_s=10)
                for number in range(given.connections)
            ]
            time.sleep(SETTLE_S)
            least = min(idle_share(broker, given.seconds) for _ in range(given.rounds))
            for client in clients:
                client.close()
        finally:
            broker.stop()
    print(f"{least:.2%} of a core with {given.queues} queues and {given.connections} connections")


if __name__ == "__main__":
    main()
