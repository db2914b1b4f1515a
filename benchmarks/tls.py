"""What TLS costs a broker, beside mosquitto and RabbitMQ where they are installed.

    python -m benchmarks.tls [--runs 3] [--seconds 4] [--quick] [--broker sluicemq --broker mosquitto]

Each broker has a plain port and one with TLS for each protocol it speaks, with one certificate (ECDSA P-256)
and the versions and ciphers it comes with. Runs with and without TLS take turns. The figures: messages (or
connections that come and go) a second, and the broker's processor time for each, with all its processes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.brokers import HOST, Broker, BrokerUnavailable, Mosquitto, RabbitMQ, SluiceMQ
from benchmarks.load import amqp, mqtt, process_stat
from benchmarks.load.mqtt_wire import MqttClient
from benchmarks.load.target import Target
from benchmarks.scenarios import QUORUM
from benchmarks.tls_ports import TlsPorts

PLAIN, TLS = "plain", "TLS"
WARM_UP_S: Final = 1.0
QUICK_S: Final = 1.0
CONNECTIONS: Final = 100
LARGE_BYTES: Final = 64 * 1024


class SluiceMQWithTls(SluiceMQ):
    """With ports for both."""

    def prepare(self) -> None:
        self.tls = TlsPorts.made(self.directory)
        super().prepare()

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"listeners": self.tls.listeners()}


class RabbitMQWithTls(RabbitMQ):
    """With ports for both."""

    def prepare(self) -> None:
        super().prepare()
        self.tls = TlsPorts.made(self.directory)
        with (self.directory / "rabbitmq.conf").open("a") as file:
            file.write(
                f"listeners.ssl.1 = {HOST}:{self.tls.amqps}\n"
                f"mqtt.listeners.ssl.1 = {HOST}:{self.tls.mqtts}\n"
                f"ssl_options.cacertfile = {self.tls.file('ca.crt')}\n"
                f"ssl_options.certfile = {self.tls.file('server.crt')}\n"
                f"ssl_options.keyfile = {self.tls.file('server.key')}\n"
                "ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n"
            )


class MosquittoWithTls(Mosquitto):
    """With ports for both."""

    def prepare(self) -> None:
        super().prepare()
        self.tls = TlsPorts.made(self.directory)
        with (self.directory / "mosquitto.conf").open("a") as file:
            file.write(
                f"listener {self.tls.mqtts} {HOST}\n"
                f"certfile {self.tls.file('server.crt')}\n"
                f"keyfile {self.tls.file('server.key')}\n"
            )


AnyBroker = SluiceMQWithTls | RabbitMQWithTls | MosquittoWithTls
BROKERS: Final[dict[str, type[AnyBroker]]] = {
    each.name: each for each in (SluiceMQWithTls, MosquittoWithTls, RabbitMQWithTls)
}


class Figures(NamedTuple):
    """One run: how many a second, and the broker's processor time for each, in microseconds."""

    rate: float
    cpu_us: float


def run_amqp(target: Target, seconds: float, size: int = 100) -> Figures:
    """Durable messages with confirms, one producer, one consumer."""
    window, batch = (5_000, 100) if size < LARGE_BYTES else (100, 4)
    load = amqp.AmqpLoad(
        seconds=seconds, size=size, window=window, batch=batch, prefetch=2 * window, queue_arguments=QUORUM
    )
    return _figures(amqp.run_together(target, load))


def run_large(target: Target, seconds: float) -> Figures:
    """The same with messages of 64 KiB."""
    return run_amqp(target, seconds, LARGE_BYTES)


def run_mqtt(target: Target, seconds: float) -> Figures:
    """QoS 1, one publisher, one subscriber."""
    return _figures(mqtt.run(target, mqtt.MqttLoad(qos=1, seconds=seconds)))


def run_connections(target: Target, seconds: float) -> Figures:
    """MQTT clients that come and go, one after the other; the rate is theirs, too."""
    before_ns = process_stat.process_cpu_ns(target.pid)  # by the clock's ticks it would be too little to tell
    watch = time.monotonic()
    for number in range(CONNECTIONS):
        client = MqttClient(target.host, target.mqtt_port, f"comes-{number}", login=target.login)
        client.close()
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
    "AMQP durable, confirms, 100 bytes": run_amqp,
    "AMQP durable, confirms, 64 KiB": run_large,
}


def measure(broker: AnyBroker, load: str, runs: int, seconds: float) -> dict[str, list[Figures]]:
    """The figures with and without TLS, in turns."""
    targets = {PLAIN: broker.target, TLS: broker.tls.over(broker.target)}
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to publish in each run")
    parser.add_argument("--quick", action="store_true", help="one run of a second each")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="only these")
    given = parser.parse_args()
    runs, seconds = (1, QUICK_S) if given.quick else (given.runs, given.seconds)
    print("| load | broker | plain | TLS | ratio | CPU us each, plain | CPU us each, TLS |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in given.broker or BROKERS:
        with tempfile.TemporaryDirectory(prefix="bench-tls-") as directory:
            broker = BROKERS[name](Path(directory))
            try:
                broker.start()
            except BrokerUnavailable as error:
                print(f"\n{name}: {error}")
                continue
            try:
                for load in LOADS:
                    if broker.amqp_port or "AMQP" not in load:
                        print_row(broker, load, measure(broker, load, runs, seconds))
            finally:
                broker.stop()


if __name__ == "__main__":
    main()
