"""What TLS costs a broker, beside peers.

    python -m benchmarks.tls [--runs 3] [--seconds 4] [--quick]
        [--peer mosquitto,mqtt=1883,mqtts=8883,ca=FILE,pid=PID]

Each broker has a plain port and one with TLS for each protocol it speaks, with a certificate for `localhost`
(of SluiceMQ ECDSA P-256) and the versions and ciphers it comes with. Runs with and without TLS take turns.
The figures: messages (or connections that come and go) a second, and the broker's processor time for each,
with all its processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks import command_line
from benchmarks.brokers import Broker, SluiceMQ, peer, started
from benchmarks.load import amqp, mqtt, process_stat
from benchmarks.load.target import Target
from benchmarks.scenarios import LARGE, QUORUM

PLAIN, TLS = "plain", "TLS"
WARM_UP_S: Final = 1.0
QUICK_S: Final = 1.0
CONNECTIONS: Final = 100


class Figures(NamedTuple):
    """One run: how many a second, and the broker's processor time for each, in microseconds."""

    rate: float
    cpu_us: float


def run_amqp(target: Target, seconds: float, **load: Any) -> Figures:
    """Durable messages with confirms, one producer, one consumer."""
    return _figures(amqp.run_together(target, amqp.AmqpLoad(seconds=seconds, **load)))


def run_mqtt(target: Target, seconds: float) -> Figures:
    """QoS 1, one publisher, one subscriber."""
    return _figures(mqtt.run(target, mqtt.MqttLoad(qos=1, seconds=seconds)))


def run_connections(target: Target, seconds: float) -> Figures:
    """MQTT clients that come and go, one after the other; the rate is theirs, too."""
    before_ns = process_stat.process_cpu_ns(target.pid)  # by the clock's ticks it would be too little to tell
    watch = time.monotonic()
    for number in range(CONNECTIONS):
        target.mqtt(f"comes-{number}").close()
    spent_us = (process_stat.process_cpu_ns(target.pid) - before_ns) / 1000
    return Figures(CONNECTIONS / (time.monotonic() - watch), spent_us / CONNECTIONS)


def _figures(report: dict[str, Any]) -> Figures:
    if report["lost"]:
        raise RuntimeError(f"{report['lost']} messages were lost")
    cpu_s = report["broker_cpu_percent"] / 100 * report["seconds"]
    return Figures(report["rate"], cpu_s / report["messages"] * 1e6)


LOADS: Final[dict[str, Callable[[Target, float], Figures]]] = {
    "MQTT QoS 1, 100 bytes": run_mqtt,
    "MQTT connections": run_connections,
    "AMQP durable, confirms, 100 bytes": partial(run_amqp, prefetch=10_000, queue_arguments=QUORUM),
    "AMQP durable, confirms, 64 KiB": partial(run_amqp, **LARGE),
}


def measure(broker: Broker, load: str, runs: int, seconds: float) -> dict[str, list[Figures]]:
    """The figures with and without TLS, in turns."""
    assert broker.tls is not None
    targets = {PLAIN: broker.target, TLS: replace(broker.tls, pid=broker.target.pid)}
    measured: dict[str, list[Figures]] = {way: [] for way in targets}
    for target in targets.values():
        LOADS[load](target, WARM_UP_S)
    for turn in range(runs):
        for way in list(targets)[:: 1 if turn % 2 == 0 else -1]:
            broker.settle()
            measured[way].append(LOADS[load](targets[way], seconds))
    return measured


def print_row(broker: Broker, load: str, measured: dict[str, list[Figures]]) -> None:
    """Medians, and how TLS stands to plain."""
    plain, over_tls = (
        Figures(*(statistics.median(column) for column in zip(*measured[way], strict=True)))
        for way in (PLAIN, TLS)
    )
    rates = f"{plain.rate:,.0f}/s | {over_tls.rate:,.0f}/s | {over_tls.rate / plain.rate:.2f}"
    print(f"| {load} | {broker.name} | {rates} | {plain.cpu_us:.2f} | {over_tls.cpu_us:.2f} |", flush=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to publish in each run")
    parser.add_argument("--quick", action="store_true", help="one run of a second each")
    parser.add_argument("--peer", action="append", default=[], type=peer, help="another broker that runs")
    given = parser.parse_args()
    runs, seconds = (1, QUICK_S) if given.quick else (given.runs, given.seconds)
    print("| load | broker | plain | TLS | ratio | CPU us each, plain | CPU us each, TLS |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with started(partial(SluiceMQ, with_tls=True)) as own:
        for broker in (own, *given.peer):
            for load in LOADS:
                if broker.target.amqp_port or "AMQP" not in load:
                    print_row(broker, load, measure(broker, load, runs, seconds))


if __name__ == "__main__":
    main()
