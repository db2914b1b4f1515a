"""Processor time per message of many MQTT devices with one message in flight each, into a durable queue.

    python -m benchmarks.lone_devices [--devices 500] [--turns 30] [--own-topics] [--storage DIRECTORY]

In one process and without sockets: from the bytes a device sent to those it is answered with, with the
journal and SlateDB. All devices speak in the same turn of the loop. Gives the least of several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from typing import Any, cast

from benchmarks.load import mqtt_wire
from broker.app import Broker
from broker.drivers import FRONTENDS
from broker.serve import tune_garbage_collection
from broker.transport import Transport

QUEUE = "fleet"
BODY = b"x" * 150
ROUNDS = 7
WARM_UP_TURNS = 20


class Answers:
    """Counts what devices are answered."""

    def __init__(self) -> None:
        self._left = 0
        self._all = asyncio.Event()

    def expect(self, count: int) -> None:
        """So many are to come."""
        self._left = count
        self._all.clear()

    def came(self) -> None:
        """One has come."""
        self._left -= 1
        if not self._left:
            self._all.set()

    async def wait(self) -> None:
        """Return once all have come."""
        await self._all.wait()


class Wire(asyncio.Transport):
    """The way to a device; what is written to it is an answer."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Both ends are this machine."""
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """The device has its answer."""
        self._answers.came()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def get_write_buffer_size(self) -> int:
        """Nothing is."""
        return 0

    def is_closing(self) -> bool:
        """It stays."""
        return False

    def pause_reading(self) -> None:
        """Devices wait anyway."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""

    def close(self) -> None:
        """The broker stops."""

    def abort(self) -> None:
        """As `close`."""


class Device:
    """One connection, and the packet it sends again and again."""

    def __init__(self, transport: Transport, answers: Answers, number: int, *, own_topic: bool) -> None:
        self._transport = transport
        topic = f"$queue/{QUEUE}"
        if own_topic:
            topic += f"/site{number % 17}/device{number:05}/telemetry"
        self._packet = mqtt_wire.publish_packet(topic, BODY, 1, 1)
        transport.connection_made(Wire(answers))
        transport.data_received(mqtt_wire.connect_packet(f"device{number}"))

    def speak(self) -> None:
        """Publish."""
        self._transport.data_received(self._packet)


async def take_turns(devices: list[Device], answers: Answers, count: int) -> None:
    """Have all devices publish, and wait for all answers, so many times."""
    for _ in range(count):
        answers.expect(len(devices))
        for device in devices:
            device.speak()
        await answers.wait()


async def measure(directory: str, count: int, turns: int, *, own_topics: bool) -> tuple[float, float]:
    """Microseconds a message, of the event loop and of the whole process."""
    best = (float("inf"), float("inf"))
    async with Broker(storage=directory) as broker:
        await broker.admin.declare(QUEUE)
        make = partial(Transport, broker.hub, FRONTENDS["mqtt"](broker.hub).accept, lambda: None)
        answers = Answers()
        answers.expect(count)
        devices = [Device(make(), answers, number, own_topic=own_topics) for number in range(count)]
        await answers.wait()
        await take_turns(devices, answers, WARM_UP_TURNS)
        for _ in range(ROUNDS):
            thread_ns, process_ns = time.thread_time_ns(), time.process_time_ns()
            await take_turns(devices, answers, turns)
            messages = 1_000 * turns * count
            spent = (
                (time.thread_time_ns() - thread_ns) / messages,
                (time.process_time_ns() - process_ns) / messages,
            )
            best = min(best, spent)
    return best


def main() -> None:
    """Print the best round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--turns", type=int, default=30, help="messages of each device in a round")
    parser.add_argument("--own-topics", action="store_true", help="each device has a topic of its own")
    parser.add_argument("--storage", help="where the temporary directory is made")
    options = parser.parse_args()
    tune_garbage_collection()
    with tempfile.TemporaryDirectory(dir=cast("str | None", options.storage)) as directory:
        loop_us, process_us = asyncio.run(
            measure(directory, options.devices, options.turns, own_topics=options.own_topics)
        )
    print(f"{loop_us:.1f} us of the event loop a message, {process_us:.1f} us of the process")


if __name__ == "__main__":
    main()
