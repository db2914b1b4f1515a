"""Run fresh sequences for a while: `python -m tests.whole.run --minutes 30 --processes 2`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerProcess, command_line
from tests.whole.generate import RESTARTS, sequence
from tests.whole.queues import Mismatch
from tests.whole.shrink import shrink
from tests.whole.whole import Whole
from tests.whole.world import Operation

VERIFY_EVERY = 250


class Host:
    """A broker for many sequences; a new one where a mismatch left what cannot be cleared away.

    `effective`: of the last sequence with a mismatch, the operations that did something, up to the mismatch.
    """

    def __init__(self) -> None:
        self._broker: BrokerProcess | None = None
        self.effective: list[Operation] = []

    def broker(self) -> BrokerProcess:
        if self._broker is None or not self._broker.alive:
            directory = Path(tempfile.mkdtemp(prefix="whole-"))
            broker = BrokerProcess(directory, {"log": {"level": "warning"}})
            broker.ports_wanted["mqcore"] = 0
            self._broker = broker.start()
        return self._broker

    def run(self, operations: list[Operation], counts: Counter[str] | None = None) -> Mismatch | None:
        """The mismatch of a sequence, or None."""
        world = Whole(self.broker(), counts)
        try:
            world.run(operations)
        except Mismatch as mismatch:
            self.effective = [*world.effective, *([world.attempted] if world.attempted else [])]
            if not world.clear_away():
                self.end()
            return mismatch
        world.reset()
        return None

    def verify(self) -> str | None:
        """Stop the broker, after sequences that left nothing: is anything left in its store?"""
        if self._broker is None:
            return None
        broker, self._broker = self._broker, None
        status = broker.stop()
        try:
            return f"exit status {status}" if status else left_in_store(broker.storage)
        finally:
            shutil.rmtree(broker.directory, ignore_errors=True)

    def end(self) -> None:
        if self._broker is not None:
            self._broker.kill9()
            shutil.rmtree(self._broker.directory, ignore_errors=True)
            self._broker = None


def left_in_store(storage: str) -> str | None:
    """What `store verify` finds, or what there is more than in an empty store."""
    done = subprocess.run(
        command_line("store", "verify", "--storage", storage),
        cwd=WORKING_DIRECTORY,
        capture_output=True,
        text=True,
    )
    return None if done.returncode == 0 else done.stdout + done.stderr


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
) -> tuple[Counter[str], int, int]:
    """Run seeds `first_seed`, `first_seed + step`, ...: counts, sequences run, mismatches."""
    counts: Counter[str] = Counter()
    host = Host()
    end = time.monotonic() + seconds
    ran = failed = 0
    seed = first_seed
    while time.monotonic() < end and ran < most and failed < stop_after:
        operations = sequence(seed, restarts=restarts, only=only)
        mismatch = host.run(operations, counts)
        ran += 1
        if mismatch is not None:
            failed += 1
            print(f"seed {seed}: {mismatch}", flush=True)
            smaller, last = shrink(operations, mismatch, Host) if cut else (operations, mismatch)
            path = write_down(smaller, last, directory, seed)
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
    parser.add_argument("--only", default="", choices=("", "amqp", "mqtt"))
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    parser.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    started = time.monotonic()
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
        )
        if options.worker >= 0:
            print("COUNTS " + json.dumps([counts, ran, failed]), flush=True)
            return 0
    else:
        counts, ran, failed = _many(options.processes)
    took = time.monotonic() - started
    print(f"{ran} sequences from seed {options.seed} on, {failed} mismatches, {took:.0f} s")
    for name, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        print(f"{count:10} {name}")
    return 1 if failed else 0


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
    for worker in workers:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith("COUNTS "):
                counts, one_ran, one_failed = json.loads(line[7:])
                total.update(counts)
                ran += one_ran
                failed += one_failed
            else:
                print(line, end="", flush=True)
        failed += worker.wait() != 0
    return total, ran, failed


if __name__ == "__main__":
    sys.exit(main())
