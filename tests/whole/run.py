"""Run fresh sequences for a while: `python -m tests.whole.run --minutes 30 --processes 2`."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.e2e.broker_process import BrokerProcess
from tests.whole.generate import RESTARTS, sequence
from tests.whole.queues import Mismatch
from tests.whole.shrink import shrink
from tests.whole.store import left_in_store
from tests.whole.whole import Whole
from tests.whole.world import Operation

VERIFY_EVERY = 500
STOP_TIMEOUT_S = 60.0  # beside much other work
MEMORY = Path("/dev/shm")


@cache
def _place() -> str:
    """A directory for all files of this process, gone with it. In memory, if there is such a place: no kill
    asks a disk for anything, so commits need not wait for one.
    """
    where = MEMORY if MEMORY.is_dir() else None
    made = tempfile.mkdtemp(prefix="whole-", dir=where)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


class Host:
    """Brokers for many sequences, one for each configuration; a new one where a mismatch left what cannot be
    cleared away.

    Of the last sequence with a mismatch: `effective` are the operations that did something up to it, `told`
    is what the clients read and the oracle knew.
    """

    def __init__(self, workers: int = 1) -> None:
        """Brokers of so many workers."""
        self._workers = workers
        self._brokers: dict[str, BrokerProcess] = {}
        self.effective: list[Operation] = []
        self.told: list[str] = []

    def broker(self, sessions: dict[str, Any] | None = None) -> BrokerProcess:
        """The broker that serves, with these settings of sessions."""
        key = json.dumps(sessions)
        broker = self._brokers.get(key)
        if broker is None or not broker.alive:
            directory = Path(tempfile.mkdtemp(dir=_place()))
            config: dict[str, Any] = {"log": {"level": "warning"}}
            if self._workers > 1:
                config["workers"] = self._workers
            if sessions:
                config["mqtt"] = {"sessions": sessions}
            broker = BrokerProcess(directory, config)
            broker.ports_wanted["mqcore"] = 0
            self._brokers[key] = broker.start()
        return broker

    def run(self, operations: list[Operation], counts: Counter[str] | None = None) -> Mismatch | None:
        """The mismatch of a sequence, or None."""
        broker = self.broker(bounds_of(operations))
        world = Whole(broker, counts)
        try:
            world.run(operations)
        except Mismatch as mismatch:
            self.effective = [*world.effective, *([world.attempted] if world.attempted else [])]
            self.told = world.told()
            if not world.clear_away():
                broker.kill9()
                shutil.rmtree(broker.directory, ignore_errors=True)
            return mismatch
        world.reset()
        return None

    def verify(self) -> str | None:
        """Stop the brokers, after sequences that left nothing: is anything left in their stores?"""
        brokers, self._brokers = self._brokers, {}
        found = None
        for broker in brokers.values():
            if broker.alive:
                status = broker.stop(STOP_TIMEOUT_S)
                found = found or (f"exit status {status}" if status else left_in_store(broker.storage))
            shutil.rmtree(broker.directory, ignore_errors=True)
        return found

    def end(self) -> None:
        for broker in self._brokers.values():
            broker.kill9()
            shutil.rmtree(broker.directory, ignore_errors=True)
        self._brokers.clear()


def bounds_of(operations: list[Operation]) -> dict[str, Any] | None:
    """The settings of sessions that the first operation asks for."""
    if not operations or operations[0][0] != "bounds":
        return None
    wanted = operations[0][2]
    return {"max_queued_messages": wanted["n"], "drop": wanted["drop"]}


def write_down(operations: list[Operation], mismatch: Mismatch, directory: Path, seed: int) -> Path:
    """A file that `python -m tests.whole.replay` runs."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{seed}.json"
    lines = ",\n  ".join(json.dumps(operation) for operation in operations)
    path.write_text(
        f'{{"seed": {seed}, "mismatch": {json.dumps(str(mismatch))},\n "operations": [\n  {lines}\n]}}\n'
    )
    return path


def work(
    first_seed: int,
    step: int,
    seconds: float,
    most: int,
    restarts: float,
    stop_after: int,
    directory: Path,
    only: str = "",
    cut: bool = True,
    workers: int = 1,
) -> tuple[Counter[str], int, int]:
    """Run seeds `first_seed`, `first_seed + step`, ...: counts, sequences run, mismatches."""
    counts: Counter[str] = Counter()
    host = Host(workers)
    end = time.monotonic() + seconds
    ran = failed = 0
    seed = first_seed
    while time.monotonic() < end and ran < most and failed < stop_after:
        operations = sequence(seed, restarts=restarts, only=only)
        mismatch = host.run(operations, counts)
        ran += 1
        if mismatch is not None:
            print(f"seed {seed}: {mismatch}", flush=True)
            told = host.told
            failed += 1
            smaller, last = (
                shrink(operations, mismatch, partial(Host, workers)) if cut else (operations, mismatch)
            )
            path = write_down(smaller, last, directory, seed)
            path.with_suffix(".trace").write_text("\n".join([str(mismatch), *told]))
            print(f"  {len(operations)} operations, {len(smaller)} do: {last}\n  {path}", flush=True)
            for operation in smaller:
                print(f"    {operation}", flush=True)
        elif ran % VERIFY_EVERY == 0 and (left := host.verify()):
            failed += 1
            print(f"up to seed {seed}: left in the store: {left}", flush=True)
        seed += step
    if left := host.verify():
        failed += 1
        print(f"up to seed {seed}: left in the store: {left}", flush=True)
    return counts, ran, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--most", type=int, default=10**9, help="sequences of each process")
    parser.add_argument("--restarts", type=float, default=RESTARTS)
    parser.add_argument("--stop-after", type=int, default=20, help="mismatches of each process")
    parser.add_argument("--found", type=Path, default=Path("build/whole"))
    parser.add_argument("--only", default="", choices=("", "amqp", "mqtt", "amqp10", "policies", "values"))
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    parser.add_argument("--workers", type=int, default=1, help="of the broker")
    parser.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left behind
    if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
        # or every start of a broker would compile all modules
        os.environ |= {"PYTHONPYCACHEPREFIX": f"{_place()}/compiled", "PYTHONDONTWRITEBYTECODE": ""}
    if options.worker >= 0 or options.processes == 1:
        first = options.seed + max(options.worker, 0)
        counts, ran, failed = work(
            first,
            options.processes,
            options.minutes * 60,
            options.most,
            options.restarts,
            options.stop_after,
            options.found,
            only=options.only,
            cut=not options.whole,
            workers=options.workers,
        )
        if options.worker >= 0:
            print("COUNTS " + json.dumps([counts, ran, failed]), flush=True)
            return 0
    else:
        counts, ran, failed = _many(options.processes)
    took = time.monotonic() - started
    rate = f"{took:.0f} s, {ran / took:.2f} sequences per second"
    print(f"{ran} sequences from seed {options.seed} on, {failed} mismatches, {rate}")
    print_counts(counts)
    return 1 if failed else 0


def print_counts(counts: Counter[str]) -> None:
    """A table of operations by kind: how often each did something, and how often there was nothing to do."""
    idle = " (nothing to do)"
    kinds = {name.removesuffix(idle) for name in counts} - {"messages published"}
    print(f"{'done':>8} {'idle':>8}")
    for kind in sorted(kinds, key=lambda kind: (-counts[kind], kind)):
        print(f"{counts[kind]:8} {counts[kind + idle]:8} {kind}")
    print(f"{counts['messages published']:8} messages published")


def _many(processes: int) -> tuple[Counter[str], int, int]:
    arguments = [sys.executable, "-m", "tests.whole.run", *sys.argv[1:]]
    if not any(argument.startswith("--seed") for argument in sys.argv):
        arguments += ["--seed", str(int(time.time()) * 1000)]
    workers = [
        subprocess.Popen([*arguments, "--worker", str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(processes)
    ]
    total: Counter[str] = Counter()
    ran = failed = 0
    with ThreadPoolExecutor(processes) as threads:
        try:
            found = list(threads.map(_follow, workers))
        finally:
            for worker in workers:  # or the threads would wait for them
                worker.terminate()
    for counts, one_ran, one_failed in found:
        total.update(counts)
        ran += one_ran
        failed += one_failed
    return total, ran, failed


def _follow(worker: subprocess.Popen[str]) -> tuple[dict[str, int], int, int]:
    """Print what a worker tells as it comes; give its counts, sequences and mismatches."""
    counts: dict[str, int] = {}
    ran = failed = 0
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("COUNTS "):
            counts, ran, failed = json.loads(line[7:])
        else:
            print(line, end="", flush=True)
    return counts, ran, failed + (worker.wait() != 0)


if __name__ == "__main__":
    sys.exit(main())
