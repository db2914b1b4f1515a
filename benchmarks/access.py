"""What access control and TLS cost a message: the same load with and without them, in turns.

    python -m benchmarks.access [--rounds 15] [--turns 40] [--quick]

One broker has users, and ports with and without TLS. Messages are published and consumed in lockstep
(`benchmarks.load.lockstep`) in four ways: as a user who may do everything; as the same again, which shows how
exact the figures are; as one whose patterns cover the load and no more; as the first over TLS. All are
connected, and take turns of a few milliseconds, so that what else the machine does falls on all of them. What
counts is the processor time of the broker, by the nanosecond, and its ratio to that of the first way in the
same round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import process_stat
from benchmarks.load.lockstep import LOADS, Steps
from benchmarks.load.target import Login, Target
from benchmarks.tls_ports import TlsPorts
from broker.access.passwords import hashed
from config.access import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users

FREE, AGAIN, NARROW, TLS = "everything", "the same again", "patterns", "TLS"
WAYS: Final = (FREE, AGAIN, NARROW, TLS)
ANY_USER: Final = Login("anybody", "a-password")
NARROW_USER: Final = Login("bench", "a-password")
EVERYTHING: Final = PermissionSettings(configure=".*", write=".*", read=".*")
NARROWED: Final = PermissionSettings(configure="^bench-", write="^bench[-/]", read="^bench[-/]")
BATCHES: Final = (100, 1)
STEPS_PER_TURN: Final = 8
WARM_UP_TURNS: Final = 10


class Ratio(NamedTuple):
    """Of a way to the plain one: the middle of all rounds, and between what the middle half of them lies."""

    median: float
    low: float
    high: float


class Guarded(SluiceMQ):
    """Has a user who may do everything, and one who may do no more than the load does."""

    name = "access"

    def prepare(self) -> None:
        self.tls = TlsPorts.made(self.directory)
        self.login = ANY_USER
        users = tuple(
            UserSettings(name=login.user, password=hashed(login.password.encode()), permissions=(granted,))
            for login, granted in ((ANY_USER, EVERYTHING), (NARROW_USER, NARROWED))
        )
        save_users(self.directory / "users.yaml", UsersSettings(users=users))
        super().prepare()

    def configuration(self) -> dict[str, Any]:
        users_file = str(self.directory / "users.yaml")
        return super().configuration() | {
            "access": {"users_file": users_file, "anonymous": "never"},
            "listeners": self.tls.listeners(),
        }

    def targets(self) -> dict[str, Target]:
        """How each way comes in."""
        plain = self.target
        return {
            FREE: plain,
            AGAIN: plain,
            NARROW: replace(plain, login=NARROW_USER),
            TLS: self.tls.over(plain),
        }


def measure(broker: Guarded, load: str, batch: int, rounds: int, turns: int) -> dict[str, list[float]]:
    """The broker's processor time for a message, in microseconds: of each way, round by round."""
    opened = {
        way: LOADS[load](target, f"way-{number}", batch)
        for number, (way, target) in enumerate(broker.targets().items())
    }
    run_round(opened, broker.pid, WARM_UP_TURNS)
    measured: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, spent_ns in run_round(opened, broker.pid, turns).items():
            measured[way].append(spent_ns / (turns * STEPS_PER_TURN * batch * 1000))
    for steps in opened.values():
        steps.close()
    return measured


def run_round(opened: Mapping[str, Steps], pid: int, turns: int) -> dict[str, int]:
    """Nanoseconds that the broker spent on each way in so many turns; the way that begins changes."""
    spent = dict.fromkeys(WAYS, 0)
    for turn in range(turns):
        first = turn % len(WAYS)
        for way in WAYS[first:] + WAYS[:first]:
            before = process_stat.process_cpu_ns(pid)
            for _ in range(STEPS_PER_TURN):
                opened[way].step()
            spent[way] += process_stat.process_cpu_ns(pid) - before
    return spent


def ratio_of(runs: list[float], plain: list[float]) -> Ratio:
    """How the runs of a way stand to those of the same rounds without."""
    ratios = [one / other for one, other in zip(runs, plain, strict=True)]
    if len(ratios) < 2:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, low, high)


def print_table(load: str, batch: int, measured: dict[str, list[float]]) -> None:
    """Median and least processor time of each way, and its ratio to the plain one."""
    print(f"\n{load}, {batch} at a time\n\n| way | CPU us/msg | least | beside everything | middle half |")
    print("|---|---|---|---|---|")
    for way, runs in measured.items():
        ratio = ratio_of(runs, measured[FREE])
        low, median, high = (f"{100 * (each - 1):+.1f} %" for each in (ratio.low, ratio.median, ratio.high))
        times = f"{statistics.median(runs):.2f} | {min(runs):.2f}"
        print(f"| {way} | {times} | {median} | {low} to {high} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=40, help="of each way in a round")
    parser.add_argument("--quick", action="store_true", help="five rounds of 12 turns")
    given = parser.parse_args()
    rounds, turns = (5, 12) if given.quick else (given.rounds, given.turns)
    with started(Guarded) as broker:
        for load in LOADS:
            for batch in BATCHES:
                print_table(load, batch, measure(broker, load, batch, rounds, turns))


if __name__ == "__main__":
    main()
