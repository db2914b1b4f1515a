"""Hours of mixed work on one broker: does memory, files or descriptors grow, does anything get lost?

    python -m benchmarks.soak [--minutes 30] [--output soak.json]

Rounds of durable AMQP work, MQTT publish and subscribe, MQTT into queues, connections and queues that come
and go, and now and then a restart. After each round the broker is left alone for a moment and weighed. The
last third of the rounds is compared with the first third after the warm-up.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import amqp, mqtt, process_stat
from benchmarks.scenarios import QUORUM

WARM_UP_ROUNDS = 2
RESTART_EVERY = 10  # rounds
REST_S = 3.0  # the broker purges, collects garbage, compacts
MEMORY_GROWTH_MAX = 1.25
MEMORY_GROWTH_BYTES = 30_000_000
FILES_MAX = 2_000

Weight = dict[str, float]


def one_round(broker: SluiceMQ) -> int:
    """A bit of everything; gives how many messages were lost."""
    target = broker.target
    reports = (
        amqp.run_together(target, amqp.AmqpLoad(seconds=3, queue_arguments=QUORUM)),
        amqp.run_together(target, amqp.AmqpLoad(seconds=1, size=20_000, queue_arguments=QUORUM)),
        amqp.run_publish_then_drain(target, amqp.AmqpLoad(seconds=3, messages=100_000)),
        mqtt.run_to_amqp(target, mqtt.QueueLoad(seconds=2, queue_arguments=QUORUM)),
        mqtt.run(target, mqtt.MqttLoad(qos=1, subscribers=2, seconds=1)),
        mqtt.run_fleet(target, mqtt.FleetLoad(200, seconds=1, topic="/all")),
    )
    mqtt.run_idle(target, 500)
    return sum(int(report.get("lost", 0)) for report in reports)


def weigh(broker: SluiceMQ, minute: float, life: int, lost: int) -> Weight:
    """What the broker takes now."""
    pid = broker.target.pid
    sizes = []
    for path in broker.directory.rglob("*"):
        with suppress(OSError):  # collected meanwhile
            sizes += [path.stat().st_size] if path.is_file() else []
    return {
        "minute": round(minute, 1),
        "life": life,
        "rss_bytes": process_stat.rss_bytes(pid),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        "files": len(sizes),
        "disk_bytes": sum(sizes),
        "lost": lost,
    }


def complaints(weights: list[Weight]) -> list[str]:
    """What should not be; nothing when all is well."""
    found = []
    lost = sum(weight["lost"] for weight in weights)
    if lost:
        found.append(f"{lost} messages lost")
    steady = weights[WARM_UP_ROUNDS:]
    third = len(steady) // 3
    if third:
        for name, growth_min in (("rss_bytes", MEMORY_GROWTH_BYTES), ("disk_bytes", 200_000_000)):
            early = median(weight[name] for weight in steady[:third])
            late = median(weight[name] for weight in steady[-third:])
            if late > early * MEMORY_GROWTH_MAX and late - early > growth_min:
                found.append(f"{name} grew from {early:,.0f} to {late:,.0f}")
        early_fds = max(weight["descriptors"] for weight in steady[:third])
        late_fds = min(weight["descriptors"] for weight in steady[-third:])
        if late_fds > early_fds + 5:
            found.append(f"open files grew from {early_fds} to {late_fds}")
    most_files = max(weight["files"] for weight in weights)
    if most_files > FILES_MAX:
        found.append(f"{most_files} files in the data directory")
    return found


def main() -> int:
    """Run, print each round, say what was wrong."""
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    console = Console(width=160)
    weights: list[Weight] = []
    mqtt.allow_descriptors(2_000)
    with started(SluiceMQ) as broker:
        life = 1
        begin = time.monotonic()
        while time.monotonic() - begin < given.minutes * 60:
            if weights and len(weights) % RESTART_EVERY == 0:
                broker.stop()
                broker.start()
                life += 1
            lost = one_round(broker)
            time.sleep(REST_S)
            weights.append(weigh(broker, (time.monotonic() - begin) / 60, life, lost))
            told = (f"{name} {value:,}" for name, value in weights[-1].items())
            console.print(", ".join(told), markup=False, highlight=False)
    if given.output:
        given.output.write_text(json.dumps(weights, indent=1) + "\n")
    found = complaints(weights)
    for complaint in found:
        console.print(complaint, style="red")
    if not found:
        console.print(f"{len(weights)} rounds, {life} lives: nothing lost, nothing grew")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
