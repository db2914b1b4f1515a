"""Runs scenarios with alternating brokers; what it starts is stopped again."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.brokers import Broker, SluiceMQ
from benchmarks.load import process_stat
from benchmarks.scenarios import SLUICEMQ, Effort, Scenario
from broker.commands.bench_clients import ClientError

FAILURES_MAX = 2


class Runner:
    """Owns SluiceMQ in one comparison, beside `peers`."""

    def __init__(
        self, directory: Path, effort: Effort, peers: list[Broker], tell: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._effort = effort
        self._tell = tell
        self._own: SluiceMQ | None = None
        self._peers = {peer.name: peer for peer in peers}

    def close(self) -> None:
        """End what was started."""
        if self._own is not None:
            self._own.clear()
            self._own = None

    def run(self, scenario: Scenario) -> list[dict[str, Any]]:
        """All runs of one scenario, brokers alternating; a run that failed has the key `error`."""
        names = [name for name in (SLUICEMQ, scenario.peer) if name == SLUICEMQ or name in self._peers]
        failures = dict.fromkeys(names, 0)
        results = []
        if scenario.fresh or self._effort.restart_brokers:
            self.close()
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
        broker = self._peers.get(name)
        try:
            broker = broker or self._running()
            broker.settle()
            pid = broker.target.pid
            begun, others_s = time.monotonic(), _unexplained_s(pid)
            result = scenario.run(broker, self._effort)
            if result.get("broker_cpu_percent"):
                cpu_s = result["broker_cpu_percent"] / 100 * result["seconds"]
                result["messages_per_cpu_s"] = round(result["messages"] / cpu_s)
            if broker.target.pid == pid:  # it was not restarted meanwhile
                share = (_unexplained_s(pid) - others_s) / (time.monotonic() - begun)
                result["other_cpu_percent"] = round(100 * max(0.0, share), 1)
        except (ClientError, OSError) as problem:
            output = broker.last_output() if broker else ""
            self.close()
            return {"error": str(problem), "output": output}
        if scenario.fresh and name == SLUICEMQ:
            self.close()
        return result

    def _running(self) -> SluiceMQ:
        if self._own is None:
            self._own = SluiceMQ(self._directory)
            self._own.start()
        return self._own


def _unexplained_s(pid: int) -> float:
    """CPU seconds that went neither to the broker nor to us: how much the machine was disturbed."""
    own = os.times()
    mine = own.user + own.system + own.children_user + own.children_system
    return process_stat.machine_cpu_s() - mine - process_stat.cpu_s(pid)


def _line(result: dict[str, Any], scenario: Scenario) -> str:
    head = f"{result['scenario']} {result['broker']} run {result['run']}:"
    if "error" in result:
        return f"{head} failed: {result['error']}"
    known = [metric for metric in scenario.metrics if metric.key in result]
    figures = [f"{metric.key} {result[metric.key]:,} {metric.unit}" for metric in known]
    lost = f", lost {result['lost']:,}" if result.get("lost") else ""
    return f"{head} {', '.join(figures)}{lost}"
