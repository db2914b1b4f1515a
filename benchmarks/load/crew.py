"""Client processes of one run: forked, started together, bounded in time, counted through shared memory."""

import mmap
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.load import process_stat
from benchmarks.load.target import Target
from broker.commands.bench_clients import ClientError

CELLS_MAX = 256
START, SENT, SENT_FINAL, RECEIVED = 0, 1, 2, 8
READY = 128
READY_TIMEOUT_S = 60.0
LOAD_TIMES, END_TIMEOUT_S = 5, 60.0  # how long a load may take, and its end

_fork = multiprocessing.get_context("fork")


class Board:
    """Shared 64-bit counters, one writer per cell: the start signal and how far everybody is.

    `sent_final` is -1 until the publisher stops, so that consumers know when they have everything.
    """

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, CELLS_MAX * 8)
        self.cells = memoryview(self._map).cast("q")
        self.cells[SENT_FINAL] = -1

    def wait_start(self, index: int) -> None:
        """Tell that client `index` is connected, then wait for the common start."""
        self.cells[READY + index] = 1
        limit = time.monotonic() + READY_TIMEOUT_S
        while not self.cells[START]:
            if time.monotonic() > limit:
                raise ClientError("the run was never started")
            time.sleep(0.001)


class Stopwatch:
    """Wall and CPU time of one client between the common start and its last useful byte."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.finished = self.started
        self._cpu = _cpu_s()

    def report(self, **values: Any) -> dict[str, Any]:
        cpu = _cpu_s() - self._cpu
        return {"started": self.started, "finished": self.finished, "cpu_s": round(cpu, 4), **values}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass
class _Member:
    name: str
    process: Any
    pipe: Any


class Crew:
    """Runs each added function in its own process; `function(board, index, *args)` returns a dict."""

    def __init__(self) -> None:
        self.board = Board()
        self._members: list[_Member] = []
        self.reports: dict[str, dict[str, Any]] = {}
        self._begun_cpu_s = 0.0

    def add(self, name: str, function: Callable[..., dict[str, Any]], *args: Any) -> None:
        index = len(self._members)
        receiver, sender = _fork.Pipe(duplex=False)
        process = _fork.Process(
            target=_run_member, args=(sender, function, self.board, index, args), daemon=True
        )
        self._members.append(_Member(name, process, (receiver, sender)))

    def measure(self, target: Target, load_s: float, sender: str, receivers: Sequence[str]) -> dict[str, Any]:
        """Run, and give the figures every load has: `rate` is messages that came to all receivers, a second.

        Without receivers it is what was sent and answered. Raises ClientError as `run`.
        """
        self.reports = self.run(load_s, target.pid)
        seconds = span_s(self.reports)
        cpu_s = process_stat.cpu_s(target.pid) - self._begun_cpu_s if target.pid else 0.0
        sent = self.reports[sender]["sent"]
        counts = [self.reports[name]["count"] for name in receivers]
        return {
            "messages": min(counts, default=sent),
            "seconds": round(seconds, 3),
            "rate": round(min(counts, default=sent) / seconds),
            "lost": sent * len(counts) - sum(counts),
            "client_cpu_percent": cpu_percent(self.reports, seconds),
            "broker_cpu_percent": round(100 * cpu_s / seconds, 1),
        }

    def run(self, load_s: float, pid: int = 0) -> dict[str, dict[str, Any]]:
        """Start everybody, return the reports by name. Raises ClientError on a failure, or after far longer
        than the load is to take.
        """
        try:
            for member in self._members:
                member.process.start()
                member.pipe[1].close()
            self._wait_ready()
            # connecting is no part of the load
            self._begun_cpu_s = process_stat.cpu_s(pid) if pid else 0.0
            self.board.cells[START] = 1
            return self._collect(time.monotonic() + LOAD_TIMES * load_s + END_TIMEOUT_S)
        finally:
            for member in self._members:
                if member.process.is_alive():
                    member.process.terminate()
                member.process.join(5)

    def _wait_ready(self) -> None:
        limit = time.monotonic() + READY_TIMEOUT_S
        while not all(self.board.cells[READY + index] for index in range(len(self._members))):
            for member in self._members:
                if member.pipe[0].poll():
                    _take_report(member)
            if time.monotonic() > limit:
                raise ClientError("the clients did not connect in time")
            time.sleep(0.002)

    def _collect(self, limit: float) -> dict[str, dict[str, Any]]:
        reports = {}
        for member in self._members:
            if not member.pipe[0].poll(max(0.0, limit - time.monotonic())):
                received = list(self.board.cells[RECEIVED : RECEIVED + 4])
                raise ClientError(f"{member.name} did not finish in time (received so far {received})")
            reports[member.name] = _take_report(member)
        return reports


def _take_report(member: _Member) -> dict[str, Any]:
    try:
        report: dict[str, Any] = member.pipe[0].recv()
    except EOFError:
        raise ClientError(f"{member.name} died") from None
    if "error" in report:
        raise ClientError(f"{member.name}: {report['error']}")
    return report


def _run_member(
    sender: Any, function: Callable[..., dict[str, Any]], board: Board, index: int, args: tuple[Any, ...]
) -> None:
    try:
        report = function(board, index, *args)
    except BaseException as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    sender.send(report)
    sender.close()
    os._exit(0)


def cpu_percent(reports: dict[str, dict[str, Any]], seconds: float) -> dict[str, float]:
    """CPU of each client process in percent of one core over `seconds`."""
    return {name: round(100 * report["cpu_s"] / max(seconds, 1e-9), 1) for name, report in reports.items()}


def span_s(reports: dict[str, dict[str, Any]]) -> float:
    """Seconds from the first client's start to the last client's last useful byte."""
    begin: float = min(report["started"] for report in reports.values())
    end: float = max(report["finished"] for report in reports.values())
    return max(end - begin, 1e-9)
