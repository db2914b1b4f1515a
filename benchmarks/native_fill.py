"""What filling SlateDB's batches in C is worth: `storage/native/fill.c` beside cffi.

    python -m benchmarks.native_fill [--runs 5] [--seconds 3] [--quick]

Two brokers, alike but for SLUICEMQ_FAST_BATCH, take turns under the same load: durable AMQP messages of 100
bytes with confirms, one publisher and one consumer. The figures are processor time a message, least of the
runs: of the event loop's thread, and of the whole process.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp, process_stat
from benchmarks.load.target import Target
from storage.fast_batch import SWITCH

WAYS: Final = ("compiled", "cffi")
WINDOWS: Final = (1_000, 100, 10, 1)  # publishes without a confirm at a time
QUICK_S: Final = 1.0


class CpuTime(NamedTuple):
    """Processor time in microseconds."""

    loop_us: float
    process_us: float


def used(pid: int) -> CpuTime:
    """Return what the event loop and the whole process have used so far."""
    return CpuTime(process_stat.thread_cpu_ns(pid, pid) / 1000, process_stat.process_cpu_ns(pid) / 1000)


def run(target: Target, window: int, seconds: float) -> CpuTime:
    """Return the processor time of the broker for each message of one run."""
    before = used(target.pid)
    load = amqp.AmqpLoad(seconds=seconds, window=window, batch=max(1, window // 10))
    report = amqp.run_together(target, load)
    after = used(target.pid)
    return CpuTime(
        (after.loop_us - before.loop_us) / report["messages"],
        (after.process_us - before.process_us) / report["messages"],
    )


def least(runs: list[CpuTime]) -> CpuTime:
    """Return the least of each figure: what the machine's other work added to least."""
    return CpuTime(min(each.loop_us for each in runs), min(each.process_us for each in runs))


def print_row(window: int, measured: dict[str, list[CpuTime]]) -> None:
    """Print one line of the table."""
    compiled, cffi = (least(measured[way]) for way in WAYS)
    loop = f"{compiled.loop_us:.2f} | {cffi.loop_us:.2f} | {compiled.loop_us / cffi.loop_us:.2f}"
    process = (
        f"{compiled.process_us:.2f} | {cffi.process_us:.2f} | {compiled.process_us / cffi.process_us:.2f}"
    )
    print(f"| {window:,} | {loop} | {process} |", flush=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to publish in each run")
    parser.add_argument("--quick", action="store_true", help="one run of a second each")
    given = parser.parse_args()
    runs, seconds = (1, QUICK_S) if given.quick else (given.runs, given.seconds)
    print("| in flight | loop us, compiled | cffi | ratio | process us, compiled | cffi | ratio |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with ExitStack() as ending:
        directory = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        brokers = {}
        for way in WAYS:
            os.environ[SWITCH] = way
            brokers[way] = SluiceMQ(directory / way)
            brokers[way].start()
            ending.callback(brokers[way].clear)
        for window in WINDOWS:
            measured: dict[str, list[CpuTime]] = defaultdict(list)
            for turn in range(runs):
                for way in WAYS[:: 1 if turn % 2 == 0 else -1]:
                    brokers[way].settle()
                    measured[way].append(run(brokers[way].target, window, seconds))
            print_row(window, measured)


if __name__ == "__main__":
    main()
