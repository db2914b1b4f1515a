"""What access control and TLS cost: the same load with and without them, in turns.

    python -m benchmarks.access [--runs 5] [--seconds 4] [--quick]

One broker lets in anybody from this machine, on plain ports and on ports with TLS; another has a users file
and a user with narrowed permissions. Each round has all three ways, in an order that turns. Durable AMQP with
confirms and MQTT with QoS 1, one publisher and one consumer. Compare the processor time of the broker for
each message: it hardly moves when others use the machine, and the ratio is that of one round's neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from benchmarks.brokers import SluiceMQ, free_port
from benchmarks.load import amqp, mqtt
from benchmarks.load.sockets import TLS_NAME
from benchmarks.load.target import Login, Target
from broker.access.passwords import hashed
from broker.tls.making import Authority, write_pair
from config.access import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users

ANONYMOUS, GUARDED, TLS = "anonymous", "access", "TLS"
WAYS: Final = (ANONYMOUS, GUARDED, TLS)
USER: Final = Login("bench", "a-password")
WARM_UP_S: Final = 0.5
QUICK_S: Final = 1.0


class Figures(NamedTuple):
    """One run: processor time of the broker for each message, and messages per second."""

    cpu_us: float
    rate: float


class Open(SluiceMQ):
    """Lets in anybody from here, on plain ports and on ports with TLS."""

    name = "open"

    def prepare(self) -> None:
        super().prepare()
        authority = Authority.made()
        write_pair(self.directory, "ca", authority.key, authority.certificate)
        write_pair(self.directory, "server", *authority.issue(TLS_NAME, [TLS_NAME], is_server=True))
        pem = {"cert": str(self.directory / "server.crt"), "key": str(self.directory / "server.key")}
        self.amqps_port, self.mqtts_port = free_port(), free_port()
        listeners = {
            "amqps": {"port": self.amqps_port, "tls": pem},
            "mqtts": {"port": self.mqtts_port, "tls": pem},
        }
        config = {"storage": {"sync": "always"}, "listeners": listeners}
        (self.directory / "config.yaml").write_text(yaml.safe_dump(config))

    @property
    def tls_target(self) -> Target:
        """The same broker over TLS."""
        login = Login(ca_file=str(self.directory / "ca.crt"))
        return replace(self.target, amqp_port=self.amqps_port, mqtt_port=self.mqtts_port, login=login)


class Guarded(SluiceMQ):
    """Lets in one user, who may do no more than the load does."""

    name = "guarded"

    def prepare(self) -> None:
        super().prepare()
        self.login = USER
        users_file = self.directory / "users.yaml"
        narrow = PermissionSettings(configure="^bench-", write="^bench[-/]", read="^bench[-/]")
        user = UserSettings(name=USER.user, password=hashed(USER.password.encode()), permissions=(narrow,))
        save_users(users_file, UsersSettings(users=(user,)))
        access = {"users_file": str(users_file), "anonymous": "never"}
        config = {"storage": {"sync": "always"}, "access": access}
        (self.directory / "config.yaml").write_text(yaml.safe_dump(config))


def figures_of(report: dict[str, Any]) -> Figures:
    """Of a load's report; raises RuntimeError when a message was lost."""
    if report["lost"]:
        raise RuntimeError(f"{report['lost']} messages were lost")
    cpu_s = report["broker_cpu_percent"] / 100 * report["seconds"]
    return Figures(cpu_s / report["messages"] * 1e6, report["rate"])


def run_amqp(target: Target, seconds: float) -> dict[str, Any]:
    return amqp.run_together(target, amqp.AmqpLoad(seconds=seconds))


def run_mqtt(target: Target, seconds: float) -> dict[str, Any]:
    return mqtt.run(target, mqtt.MqttLoad(qos=1, seconds=seconds))


LOADS: Final[dict[str, Callable[[Target, float], dict[str, Any]]]] = {
    "AMQP durable, confirms": run_amqp,
    "MQTT QoS 1": run_mqtt,
}


def measure(brokers: tuple[Open, Guarded], load: str, runs: int, seconds: float) -> dict[str, list[Figures]]:
    """The figures of each way, round by round; the way that begins turns."""
    opened, guarded = brokers
    targets = {ANONYMOUS: opened.target, GUARDED: guarded.target, TLS: opened.tls_target}
    measured: dict[str, list[Figures]] = {way: [] for way in WAYS}
    for target in targets.values():
        LOADS[load](target, WARM_UP_S)
    for turn in range(runs):
        first = turn % len(WAYS)
        for way in WAYS[first:] + WAYS[:first]:
            for broker in brokers:
                broker.settle()
            measured[way].append(figures_of(LOADS[load](targets[way], seconds)))
    return measured


def print_table(load: str, measured: dict[str, list[Figures]]) -> None:
    """Median and least processor time, the median of the rounds' ratios, and the median rate."""
    print(
        f"\n{load}, 1 to 1\n\n| way | CPU us/msg | least | beside anonymous | msg/s |\n|---|---|---|---|---|"
    )
    plain = measured[ANONYMOUS]
    for way, runs in measured.items():
        cpu = [run.cpu_us for run in runs]
        ratio = statistics.median(one.cpu_us / other.cpu_us for one, other in zip(runs, plain, strict=True))
        rate = statistics.median(run.rate for run in runs)
        times = f"{statistics.median(cpu):.2f} | {min(cpu):.2f} | {100 * (ratio - 1):+.1f} %"
        print(f"| {way} | {times} | {rate:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to publish in each run")
    parser.add_argument("--quick", action="store_true", help="one round of a second each")
    given = parser.parse_args()
    runs, seconds = (1, QUICK_S) if given.quick else (given.runs, given.seconds)
    with tempfile.TemporaryDirectory(prefix="sluicemq-") as directory:
        brokers = Open(Path(directory)), Guarded(Path(directory))
        try:
            for broker in brokers:
                broker.start()
            for load in LOADS:
                print_table(load, measure(brokers, load, runs, seconds))
        finally:
            for broker in brokers:
                broker.stop()


if __name__ == "__main__":
    main()
