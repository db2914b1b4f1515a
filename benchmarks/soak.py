"""Hours of mixed work on one broker: does memory, files or descriptors grow, does anything get lost?

    python -m benchmarks.soak [--minutes 30] [--output soak.json]

Rounds of durable AMQP work, MQTT publish and subscribe, MQTT into queues, connections and queues that come
and go, and now and then a restart. After each round the broker is left alone for a moment and weighed. The
last third of the rounds is compared with the first third after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp, bridge, fanin, idle, mqtt, process_stat

QUORUM = {"x-queue-type": "quorum"}
WARM_UP_ROUNDS = 2
RESTART_EVERY = 10  # rounds
REST_S = 3.0  # the broker purges, collects garbage, compacts
MEMORY_GROWTH_MAX = 1.25
MEMORY_GROWTH_BYTES = 30_000_000
FILES_MAX = 2_000


@dataclass(frozen=True)
class Weight:
    """The broker after a round."""

    minute: float
    life: int
    rss_bytes: int
    descriptors: int
    threads: int
    files: int
    disk_bytes: int
    lost: int


def one_round(broker: SluiceMQ) -> int:
    """A bit of everything; gives how many messages were lost."""
    target = broker.target
    reports = (
        amqp.run_together(target, amqp.AmqpLoad(seconds=3, queue_arguments=QUORUM)),
        amqp.run_together(target, amqp.AmqpLoad(seconds=1, size=20_000, queue_arguments=QUORUM)),
        amqp.run_publish_then_drain(target, amqp.AmqpLoad(seconds=3, messages=100_000)),
        bridge.run(target, bridge.BridgeLoad(seconds=2, queue_arguments=QUORUM)),
        mqtt.run(target, mqtt.MqttLoad(qos=1, subscribers=2, seconds=1)),
        fanin.run(target, fanin.FanInLoad(publishers=200, seconds=1)),
    )
    idle.run(target, idle.IdleLoad(500))
    return sum(int(report.get("lost", 0)) for report in reports)


def weigh(broker: SluiceMQ, minute: float, life: int, lost: int) -> Weight:
    """What the broker takes now."""
    pid = broker.pid
    files = [path for path in broker.directory.rglob("*") if path.is_file()]
    sizes = []
    for path in files:
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue  # collected meanwhile
    return Weight(
        round(minute, 1),
        life,
        process_stat.rss_bytes(pid),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        len(list(Path(f"/proc/{pid}/task").iterdir())),
        len(files),
        sum(sizes),
        lost,
    )


def complaints(weights: list[Weight]) -> list[str]:
    """What should not be; nothing when all is well."""
    found = []
    lost = sum(weight.lost for weight in weights)
    if lost:
        found.append(f"{lost} messages lost")
    steady = weights[WARM_UP_ROUNDS:]
    third = len(steady) // 3
    if third:
        for name, growth_min in (("rss_bytes", MEMORY_GROWTH_BYTES), ("disk_bytes", 200_000_000)):
            early = median(getattr(weight, name) for weight in steady[:third])
            late = median(getattr(weight, name) for weight in steady[-third:])
            if late > early * MEMORY_GROWTH_MAX and late - early > growth_min:
                found.append(f"{name} grew from {early:,.0f} to {late:,.0f}")
        early_fds = max(weight.descriptors for weight in steady[:third])
        late_fds = min(weight.descriptors for weight in steady[-third:])
        if late_fds > early_fds + 5:
            found.append(f"open files grew from {early_fds} to {late_fds}")
    most_files = max(weight.files for weight in weights)
    if most_files > FILES_MAX:
        found.append(f"{most_files} files in the data directory")
    return found


def main() -> int:
    """Run, print each round, say what was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    console = Console(width=110)
    weights: list[Weight] = []
    idle.allow_descriptors(2_000)
    with tempfile.TemporaryDirectory(prefix="sluicemq-soak-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        life = 1
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < given.minutes * 60:
                if weights and len(weights) % RESTART_EVERY == 0:
                    broker.stop()
                    broker.start()
                    life += 1
                lost = one_round(broker)
                time.sleep(REST_S)
                weights.append(weigh(broker, (time.monotonic() - begin) / 60, life, lost))
                last = weights[-1]
                console.print(
                    f"[{last.minute:5.1f} min] life {life}: {last.rss_bytes / 1e6:.0f} MB, "
                    f"{last.descriptors} descriptors, {last.threads} threads, {last.files} files of "
                    f"{last.disk_bytes / 1e6:.0f} MB, lost {last.lost}",
                    markup=False,
                    highlight=False,
                )
        finally:
            broker.stop()
    if given.output:
        given.output.write_text(json.dumps([asdict(weight) for weight in weights], indent=1) + "\n")
    found = complaints(weights)
    for complaint in found:
        console.print(complaint, style="red")
    if not found:
        console.print(f"{len(weights)} rounds, {life} lives: nothing lost, nothing grew")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
