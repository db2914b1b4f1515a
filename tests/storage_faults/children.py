"""Processes that use a store and are then killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

WRITER = """
import asyncio, os, sys
from config.settings import StorageSettings
from storage.batch import WriteOps
from storage.open import check_format, open_database, open_store

async def main(url, kind, first, commits, value_bytes):
    if kind == "no journal":  # as releases before the journal left it
        store = await open_database(StorageSettings(url=url))
        await check_format(store, 1)
    else:
        store = await open_store(StorageSettings(url=url, sync=kind))
    print("open", flush=True)
    for number in range(first, first + commits):
        ops = WriteOps()
        for row in range(10):
            ops.put(b"k%08d-%d" % (number, row), b"%d" % number + bytes(value_bytes))
        if number >= 5:
            ops.delete(b"k%08d-0" % (number - 5))
        store.prepare(ops)
        if not store.write_now(ops):
            await store.write(ops)
        print(number, flush=True)
        await asyncio.sleep(0)
    os._exit(0)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
"""


class Writer:
    """A child that commits 10 rows at a time, tells each confirmed commit, and never closes its store.

    `sync` is that of the settings, or "no journal".
    """

    def __init__(
        self,
        url: str,
        *,
        sync: str = "always",
        first: int = 0,
        commits: int = 1_000_000,
        value_bytes: int = 100,
        before: str = "",
    ):
        """`before`: statements the child begins with."""
        numbers = [str(first), str(commits), str(value_bytes)]
        self._arguments = [sys.executable, "-c", before + WRITER, url, sync, *numbers]
        self.confirmed = first - 1
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *before: str) -> None:
        """Start it, behind the command `before` (strace) if given."""
        self.process = subprocess.Popen(
            [*before, *self._arguments], stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
        )
        assert self._line() == "open"

    def run_to(self, number: int) -> None:
        """Wait until commit `number` is confirmed."""
        while self.confirmed < number:
            self.confirmed = int(self._line())

    def kill(self) -> None:
        """kill -9, then hear what else it had confirmed."""
        assert self.process is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self._finish()

    def wait(self) -> None:
        """Let it make all its commits and end, without closing its store."""
        self._finish()

    def _finish(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        rest = self.process.stdout.read().decode()
        self.process.stdout.close()
        self.process.wait(20)
        numbers = rest[: rest.rfind("\n") + 1].split()
        if numbers:
            self.confirmed = int(numbers[-1])

    def _line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


def expected_rows(confirmed: int) -> set[bytes]:
    """The keys that must be there once commit `confirmed` was confirmed and no later one happened."""
    keys = {b"k%08d-%d" % (number, row) for number in range(confirmed + 1) for row in range(10)}
    return keys - {b"k%08d-0" % number for number in range(confirmed - 4)}


async def check_rows(store, confirmed: int) -> int:
    """Assert that exactly the confirmed commits, and at most one more, are there wholly; the last commit."""
    keys = {key for key, _ in await store.scan(b"k", b"l", limit=10_000_000)}
    last = max((int(key[1:9]) for key in keys), default=-1)
    assert confirmed <= last <= confirmed + 1
    assert keys == expected_rows(last)
    return last
