"""Runs scenarios with alternating brokers; every broker it starts is stopped again."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.brokers import Broker, BrokerUnavailable, Mosquitto, RabbitMQ, SluiceMQ
from benchmarks.load import process_stat
from benchmarks.load.crew import LoadError
from benchmarks.scenarios import Effort, Scenario

KINDS: tuple[type[Broker], ...] = (SluiceMQ, RabbitMQ, Mosquitto)
FAILURES_MAX = 2


class Runner:
    """Owns the broker processes of one comparison; use as a context manager."""

    def __init__(
        self, directory: Path, effort: Effort, wanted: set[str], tell: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._effort = effort
        self._tell = tell
        self._brokers: dict[str, Broker] = {}
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        for kind in KINDS:
            if kind.name in wanted:
                self._look_for(kind)

    def _look_for(self, kind: type[Broker]) -> None:
        try:
            self.versions[kind.name] = kind(self._directory).version()
        except BrokerUnavailable as problem:
            self.missing[kind.name] = str(problem)
            self._tell(f"skipping {kind.name}: {problem}")

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._brokers):
            self._drop(name)

    def run(self, scenario: Scenario) -> list[dict[str, Any]]:
        """All runs of one scenario, brokers alternating; a run that failed has the key `error`."""
        names = [name for name in (SluiceMQ.name, scenario.peer) if name in self.versions]
        failures = dict.fromkeys(names, 0)
        results = []
        if scenario.fresh or self._effort.restart_brokers:
            self.__exit__()
        for number in range(1, min(self._effort.runs, scenario.runs_max) + 1):
            for name in names:
                if failures[name] >= FAILURES_MAX:
                    continue
                result = self._run_once(scenario, name)
                failures[name] += "error" in result
                results.append({"scenario": scenario.name, "broker": name, "run": number, **result})
                self._tell(_line(results[-1], scenario))
        return results

    def _run_once(self, scenario: Scenario, name: str) -> dict[str, Any]:
        try:
            broker = self._running(name)
            broker.settle()
            watch = _OtherWork(broker.pid)
            result = scenario.run(broker, self._effort)
            if result.get("broker_cpu_percent"):
                cpu_s = result["broker_cpu_percent"] / 100 * result["seconds"]
                result["messages_per_cpu_s"] = round(result["messages"] / cpu_s)
            result["other_cpu_percent"] = watch.percent(broker.pid)
        except (LoadError, BrokerUnavailable, OSError) as problem:
            output = self._brokers[name].last_output() if name in self._brokers else ""
            self._drop(name)
            return {"error": str(problem), "output": output}
        if scenario.fresh:
            self._drop(name)
        return result

    def _running(self, name: str) -> Broker:
        broker = self._brokers.get(name)
        if broker is None:
            kind = next(kind for kind in KINDS if kind.name == name)
            broker = self._brokers[name] = kind(self._directory)
            broker.start()
        return broker

    def _drop(self, name: str) -> None:
        self._brokers.pop(name).clear()


class _OtherWork:
    """CPU that went neither to the broker nor to us meanwhile: how much the machine was disturbed."""

    def __init__(self, pid: int) -> None:
        self._started = time.monotonic()
        self._pid = pid
        self._before = self._unexplained_s(pid)

    def percent(self, pid: int) -> float | None:
        """Percent of one core; None when the broker was restarted meanwhile."""
        if pid != self._pid:
            return None
        wall = time.monotonic() - self._started
        return round(100 * max(0.0, self._unexplained_s(pid) - self._before) / wall, 1)

    def _unexplained_s(self, pid: int) -> float:
        own = os.times()
        mine = own.user + own.system + own.children_user + own.children_system
        return process_stat.machine_cpu_s() - mine - process_stat.cpu_s(pid)


def _line(result: dict[str, Any], scenario: Scenario) -> str:
    head = f"{result['scenario']} {result['broker']} run {result['run']}:"
    if "error" in result:
        return f"{head} failed: {result['error']}"
    figures = [f"{metric.key} {result[metric.key]:,} {metric.unit}" for metric in scenario.metrics]
    lost = f", lost {result['lost']:,}" if result.get("lost") else ""
    return f"{head} {', '.join(figures)}{lost}"
