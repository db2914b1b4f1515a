"""A start with messages waiting and a full journal: processor time, and the time of each step by the log.

    python -m benchmarks.recovery [--messages 1000000] [--size 100] [--rounds 3]

The state is what a power cut leaves when the database had nothing of the journal on disk yet: a broker that
never has SlateDB flushed takes messages until its journal is full, is killed, and the database is put back
as it was before that. Each round starts a broker on a copy of it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ
from benchmarks.load import amqp, process_stat
from broker.commands.bench_clients import ClientError
from config import limits

QUEUE: Final = "waiting"
ROW_BYTES: Final = 45  # what a message takes in the journal beside its body, about
STALLED: Final = """
import asyncio
from storage.slate_store import SlateStore
async def make_durable(self): await asyncio.Event().wait()
SlateStore.make_durable = make_durable
from broker.__main__ import main
main()
"""


class Stalled(SluiceMQ):
    """A broker whose database never says that something is on disk."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", STALLED, *super().command()[3:]]


def fill(broker: SluiceMQ, messages: int, size: int) -> None:
    amqp.fill(broker.target, amqp.AmqpLoad(size=size, messages=messages, seconds=600), QUEUE)


def build(directory: Path, messages: int, size: int) -> Path:
    """Make the state; gives the directory to start on."""
    in_journal = limits.JOURNAL_SEGMENTS_MAX * limits.JOURNAL_SEGMENT_BYTES // (size + ROW_BYTES)
    before = SluiceMQ(directory)
    before.start()
    before.target.declare(QUEUE)
    if messages > in_journal:
        fill(before, messages - in_journal, size)
    before.stop()
    data = before.directory / "data"
    shutil.copytree(data / "db", directory / "db")
    stalled = Stalled(directory)
    stalled.start()
    try:
        fill(stalled, 2 * in_journal, size)
    except ClientError:  # no confirms any more: it is full
        pass
    stalled.stop(kill=True)
    shutil.rmtree(data / "db")
    shutil.move(directory / "db", data / "db")
    return data


def measure(directory: Path, data: Path) -> dict[str, object]:
    """Start a broker on a copy of the state, have it give out a message, and kill it."""
    broker = SluiceMQ(directory)
    shutil.copytree(data, broker.directory / "data")
    serving_s = broker.start()
    report: dict[str, object] = {
        "processor_s": round(process_stat.cpu_s(broker.target.pid), 2),
        "serving_s": round(serving_s, 2),
        "rss_mb": process_stat.rss_bytes(broker.target.pid) // 1_000_000,
    }
    begun = time.monotonic()
    _, served = amqp.first_delivery(broker.target, QUEUE)
    report["first_delivery_s"] = round(serving_s + served - begun, 2)
    report["first_delivery_processor_s"] = round(process_stat.cpu_s(broker.target.pid), 2)
    broker.settle(30)
    report["settled_processor_s"] = round(process_stat.cpu_s(broker.target.pid), 2)
    broker.stop(kill=True)
    log = (broker.directory / "output.log").read_text()
    report["log"] = re.findall(r"^.*(?:storage\.replayed|broker\.start_took).*$", log, re.MULTILINE)
    return report


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="body bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="where the state is made, or found")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = given.keep or Path(name)
        data = root / "sluicemq" / "data"
        if not data.exists():
            data = build(root, given.messages, given.size)
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory() as directory:
                print(json.dumps(measure(Path(directory), data), indent=2))


if __name__ == "__main__":
    main()
