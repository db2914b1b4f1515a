"""How fast a group reads a stream back from the store, in the broker's process.

    python -m benchmarks.stream_replay [--messages 1000000] [--size 100] [--groups 1] [--storage DIRECTORY]

Fills a stream, opens the store anew so that nothing of it is in memory, and reads it from the first message
with `--groups` groups, each by one consumer that acknowledges everything (or, with `--no-ack`, nothing).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from typing import Any

from benchmarks import command_line
from broker.clock import Clock
from broker.engine.shard import Shard
from config.settings import StorageSettings
from queue_manager.claims.claim import UNLIMITED, Claim, Consumer
from queue_manager.log.stream_start import FIRST, StreamStart
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from queue_manager.queue.stream import Stream
from queue_manager.spec_records import QueueDefinition
from storage.open import open_store

POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20, stream=True)
RUN = 500


class Reader:
    """A consumer that checks the order, acknowledges, and says when it has everything."""

    def __init__(self, shard: Shard, message_count: int) -> None:
        self._shard = shard
        self._left = message_count
        self._offset = 0
        self.done = asyncio.Event()

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        assert messages[0].offset == self._offset
        self._offset += len(messages)
        assert messages[-1].offset == self._offset - 1
        if claims is not None:
            self._shard.manager.ack(claims, self._shard.clock.now_ms())
        self._left -= len(messages)
        if not self._left:
            self.done.set()
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None: ...

    def cancelled(self, consumer: Consumer, reason: str) -> None: ...


async def open_shard(directory: str) -> Shard:
    """A running shard on the store in `directory`."""
    store = await open_store(StorageSettings(url=directory))
    shard = await Shard.open(
        store, Clock(), default_policy=POLICY, auto_create=False, cache_bytes_max=1 << 26
    )
    shard.start()
    return shard


async def fill(directory: str, message_count: int, size: int) -> float:
    """Publish and make durable; gives the seconds it took."""
    shard = await open_shard(directory)
    manager = shard.manager
    now_ms = shard.clock.now_ms()
    manager.queues.declare(QueueDefinition("events", durable=True, policy=POLICY), now_ms)
    plan = manager.plan("$queue/events", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/events", now_ms))
    begun = time.perf_counter()
    for start in range(0, message_count, RUN):
        count = min(RUN, message_count - start)
        manager.publish(plan, [b"x" * size] * count, shard.clock.now_ms())
        shard.wake()
        await asyncio.sleep(0)
        await shard.commits.room_to_write()
    await shard.barrier()
    seconds = time.perf_counter() - begun
    await shard.close()
    return seconds


async def replay(directory: str, message_count: int, group_count: int, *, no_ack: bool) -> dict[str, Any]:
    """Read everything; rates in messages per second of one group."""
    shard = await open_shard(directory)
    stream = shard.manager.queues.find("events")
    assert isinstance(stream, Stream)
    readers = [Reader(shard, message_count) for _ in range(group_count)]
    begun = time.perf_counter()
    for number, reader in enumerate(readers):
        shard.manager.consumption.subscribe_stream(
            stream, f"g{number}", "#", reader, start=StreamStart(FIRST), auto_commit=True, consumer_id="c",
            credit_max=UNLIMITED, no_ack=no_ack, exclusive=False, lease_ms=30_000,
        )  # fmt: skip
    shard.manager.dispatch(shard.clock.now_ms())
    shard.wake()
    for reader in readers:
        await reader.done.wait()
    seconds = time.perf_counter() - begun
    blocks = stream.retention.blocks.read_count
    await shard.close()
    return {
        "groups": group_count,
        "seconds": round(seconds, 3),
        "messages_per_second": round(message_count / seconds),
        "deliveries_per_second": round(group_count * message_count / seconds),
        "blocks_read": blocks,
    }


async def run(arguments: argparse.Namespace) -> None:
    """Fill, then read."""
    with tempfile.TemporaryDirectory(dir=arguments.storage) as directory:
        seconds = await fill(directory, arguments.messages, arguments.size)
        print(f"filled: {arguments.messages} messages of {arguments.size} B in {seconds:.1f} s")
        print(await replay(directory, arguments.messages, arguments.groups, no_ack=arguments.no_ack))


def main() -> None:
    """Measure as the command line says."""
    parser = command_line(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--no-ack", action="store_true")
    parser.add_argument("--storage", help="where the temporary directory is made")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
