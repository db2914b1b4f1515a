"""What encryption at rest costs.

    python -m benchmarks.encryption [--runs 3] [--seconds 4] [--quick]

Two brokers, with and without `storage.encryption`, take turns: messages a second, and the broker's processor
time for each, with all its threads.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import amqp, mqtt
from benchmarks.load.target import Target
from benchmarks.scenarios import QUORUM

PLAIN, ENCRYPTED = "plain", "encrypted"
WARM_UP_S: Final = 1.0
QUICK_S: Final = 1.0
LARGE: Final[dict[str, Any]] = {"size": 64 * 1024, "window": 100, "batch": 4, "prefetch": 200}


class Encrypted(SluiceMQ):
    """The same broker with a key."""

    def configuration(self) -> dict[str, Any]:
        """What it is configured with."""
        file = self.directory / "storage.key"
        file.write_text(secrets.token_hex(32))
        settings = super().configuration()
        settings["storage"]["encryption"] = {"keys": [{"id": "bench", "file": str(file)}]}
        return settings


class Figures(NamedTuple):
    """One run: how many a second, and the broker's processor time for each, in microseconds."""

    rate: float
    cpu_us: float


def run_amqp(target: Target, seconds: float, **load: Any) -> Figures:
    """Durable messages with confirms, one producer, one consumer."""
    return _figures(amqp.run_together(target, amqp.AmqpLoad(seconds=seconds, queue_arguments=QUORUM, **load)))


def run_mqtt(target: Target, seconds: float) -> Figures:
    """QoS 1 from one publisher to one subscriber: nothing of it is stored."""
    return _figures(mqtt.run(target, mqtt.MqttLoad(qos=1, seconds=seconds)))


def _figures(report: dict[str, Any]) -> Figures:
    if report["lost"]:
        raise RuntimeError(f"{report['lost']} messages were lost")
    cpu_s = report["broker_cpu_percent"] / 100 * report["seconds"]
    return Figures(report["rate"], cpu_s / report["messages"] * 1e6)


LOADS: Final[dict[str, Callable[[Target, float], Figures]]] = {
    "one in flight, 100 bytes": partial(run_amqp, window=1, batch=1, ack_every=1),
    "100 bytes": partial(run_amqp, prefetch=10_000),
    "1 KiB": partial(run_amqp, size=1_024, prefetch=10_000),
    "64 KiB": partial(run_amqp, **LARGE),
    "MQTT QoS 1, not stored": run_mqtt,
}


def measure(brokers: dict[str, SluiceMQ], load: str, runs: int, seconds: float) -> dict[str, list[Figures]]:
    """The figures of both brokers, in turns."""
    measured: dict[str, list[Figures]] = {way: [] for way in brokers}
    for broker in brokers.values():
        LOADS[load](broker.target, WARM_UP_S)
    for turn in range(runs):
        for way in list(brokers)[:: 1 if turn % 2 == 0 else -1]:
            brokers[way].settle()
            measured[way].append(LOADS[load](brokers[way].target, seconds))
    return measured


def print_row(load: str, measured: dict[str, list[Figures]]) -> None:
    """Medians, and how encrypted stands to plain."""
    plain, encrypted = (
        Figures(*(statistics.median(column) for column in zip(*measured[way], strict=True)))
        for way in (PLAIN, ENCRYPTED)
    )
    rates = f"{plain.rate:,.0f}/s | {encrypted.rate:,.0f}/s | {encrypted.rate / plain.rate:.2f}"
    print(f"| {load} | {rates} | {plain.cpu_us:.1f} | {encrypted.cpu_us:.1f} |", flush=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to publish in each run")
    parser.add_argument("--quick", action="store_true", help="one run of a second each")
    given = parser.parse_args()
    runs, seconds = (1, QUICK_S) if given.quick else (given.runs, given.seconds)
    print("| durable, confirms | plain | encrypted | ratio | CPU us each, plain | encrypted |")
    print("|---|---|---|---|---|---|", flush=True)
    with started(SluiceMQ) as plain, started(Encrypted) as encrypted:
        brokers = {PLAIN: plain, ENCRYPTED: encrypted}
        for load in LOADS:
            print_row(load, measure(brokers, load, runs, seconds))


if __name__ == "__main__":
    main()
