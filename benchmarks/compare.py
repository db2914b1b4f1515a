"""SluiceMQ beside RabbitMQ and mosquitto on this machine: `python -m benchmarks.compare [--quick]`."""

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.brokers import Mosquitto, SluiceMQ
from benchmarks.report import print_runs, print_summary, summarize
from benchmarks.runner import KINDS, Runner
from benchmarks.scenarios import FULL, QUICK, SCENARIOS, Scenario

DEFAULT_OUTPUT = Path("build/benchmarks.json")
TABLE_WIDTH = 170


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 when a run of SluiceMQ failed, 2 when nothing could be run, 130 after Ctrl-C."""
    given = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    if given.list:
        for scenario in SCENARIOS:
            console.print(f"{scenario.name:26} vs {scenario.peer:10} {scenario.title}", highlight=False)
        return 0
    scenarios = _chosen(given.only)
    if not scenarios:
        console.print("no such scenario; --list shows them")
        return 2
    signal.signal(signal.SIGTERM, _exit_on_signal)
    Mosquitto.persistence = given.mosquitto_persistence
    effort = QUICK if given.quick else FULL
    if given.runs:
        effort = replace(effort, runs=given.runs)
    begin = time.monotonic()
    results: list[dict[str, Any]] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=given.directory) as name:
        facts = machine.describe(Path(name))
        console.print(facts)
        try:
            with Runner(Path(name), effort, set(given.broker), _teller(console, begin)) as runner:
                facts |= {"brokers": runner.versions, "missing": runner.missing}
                for scenario in scenarios:
                    results.extend(runner.run(scenario))
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted; what was measured so far:")
    summary = summarize(results)
    print_summary(console, summary)
    print_runs(console, results)
    _write(given.output, {"machine": facts, "quick": given.quick, "summary": summary, "runs": results})
    console.print(f"{time.monotonic() - begin:.0f} s; results in {given.output}")
    if interrupted:
        return 130
    if not results:
        return 2
    return int(any("error" in result for result in results if result["broker"] == SluiceMQ.name))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    names = [kind.name for kind in KINDS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, under three minutes in all")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="scenario (or pattern); repeat"
    )
    parser.add_argument("--broker", action="append", choices=names, help="only this broker; repeat")
    parser.add_argument("--runs", type=int, default=0, help="runs per broker and scenario (3)")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help=f"result file ({DEFAULT_OUTPUT})")
    parser.add_argument("--directory", type=Path, help="where the brokers store (the temporary directory)")
    parser.add_argument(
        "--mosquitto-persistence", action="store_true", help="mosquitto saves to disk each second"
    )
    parser.add_argument("--list", action="store_true", help="show the scenarios")
    given = parser.parse_args(arguments)
    given.broker = given.broker or names
    return given


def _chosen(patterns: list[str]) -> list[Scenario]:
    return [
        scenario
        for scenario in SCENARIOS
        if not patterns or any(fnmatch(scenario.name, pattern) for pattern in patterns)
    ]


def _teller(console: Console, begin: float) -> Any:
    def tell(text: str) -> None:
        console.print(f"[{time.monotonic() - begin:4.0f} s] {text}", markup=False, highlight=False)

    return tell


def _exit_on_signal(*_: object) -> None:
    raise SystemExit(143)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
