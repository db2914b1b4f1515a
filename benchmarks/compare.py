"""SluiceMQ beside peers on this machine: `python -m benchmarks.compare [--quick] [--peer NAME,...]`.

A peer runs already: `--peer rabbitmq,amqp=5672,mqtt=1883,pid=4711 --peer mosquitto,mqtt=1884,pid=4712`.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import command_line, machine
from benchmarks.brokers import peer
from benchmarks.report import print_runs, print_summary, summarize
from benchmarks.runner import Runner
from benchmarks.scenarios import FULL, QUICK, SCENARIOS, SLUICEMQ

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
    wanted = given.only or ["*"]
    scenarios = [each for each in SCENARIOS if any(fnmatch(each.name, pattern) for pattern in wanted)]
    if not scenarios:
        console.print("no such scenario; --list shows them")
        return 2
    effort = QUICK if given.quick else FULL
    if given.runs:
        effort = replace(effort, runs=given.runs)
    begin = time.monotonic()
    results: list[dict[str, Any]] = []
    interrupted = False

    def tell(text: str) -> None:
        console.print(f"[{time.monotonic() - begin:4.0f} s] {text}", markup=False, highlight=False)

    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=given.directory) as name:
        facts = machine.describe(Path(name))
        console.print(facts)
        try:
            with closing(Runner(Path(name), effort, given.peer, tell)) as runner:
                facts["peers"] = {each.name: each.version for each in given.peer}
                for scenario in scenarios:
                    results.extend(runner.run(scenario))
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted; what was measured so far:")
    summary = summarize(results)
    print_summary(console, summary)
    print_runs(console, results)
    told = {"machine": facts, "quick": given.quick, "summary": summary, "runs": results}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(told, indent=1) + "\n")
    console.print(f"{time.monotonic() - begin:.0f} s; results in {given.output}")
    if interrupted:
        return 130
    if not results:
        return 2
    return int(any("error" in result for result in results if result["broker"] == SLUICEMQ))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, under three minutes in all")
    parser.add_argument("--only", action="append", metavar="NAME", help="scenario (or pattern); repeat")
    parser.add_argument("--peer", action="append", default=[], type=peer, help="a broker that runs; repeat")
    parser.add_argument("--runs", type=int, default=0, help="runs per broker and scenario (3)")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help=f"result file ({DEFAULT_OUTPUT})")
    parser.add_argument("--directory", type=Path, help="where SluiceMQ stores (the temporary directory)")
    parser.add_argument("--list", action="store_true", help="show the scenarios")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
