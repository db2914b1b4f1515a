"""How long a listing holds up everybody else: 10,000 queues, 5,000 connections, a million messages.

    python -m benchmarks.listings [--queues 10000] [--connections 5000] [--messages 1000000] [--quick]

The broker runs in this process, so that the processor time of each step of its loop can be taken, which other
programs hardly change; clients are in another process. Each call is made three times; its figure is the
longest step of the loop meanwhile, the least of the three. No step may take 20 ms. Then: what a scrape of
the metrics takes altogether.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import socket
import tempfile
import time
from asyncio.events import Handle
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.load.mqtt_wire import connect_packet, subscribe_packet
from broker.app import Broker
from broker.descriptors import raise_limit
from broker.serve import tune_garbage_collection
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from storage.envelope import PROPERTIES_NONE

STEP_MS_MAX: Final = 20
REPEATS: Final = 3
DEEP: Final = "deep"
BODY: Final = b"x" * 100
RUN_MESSAGES: Final = 500
CALL_TIMEOUT_S: Final = 120.0

CALLS: Final = (
    "/api/v1/overview",
    "/api/v1/queues?limit=1000",
    "/api/v1/queues?limit=1000&after=q-05000",
    "/api/v1/queues?name=99",
    f"/api/v1/queues/{DEEP}/messages?limit=1000",
    f"/api/v1/queues/{DEEP}/messages?limit=1000&start=500000",
    "/api/v1/exchanges",
    "/api/v1/bindings",
    "/api/v1/connections?limit=1000",
    "/api/v1/sessions?limit=1000",
    "/api/v1/retained?limit=1000",
    "/api/overview",
    "/api/queues",
    "/api/queues?page=3&page_size=100&sort=messages&sort_reverse=true",
    "/api/connections",
    "/api/channels",
    "/api/bindings",
    "/api/definitions",
    "/metrics",
    "/metrics/detailed",
    "/",
    "/queues",
    "/streams",
    "/scheduled",
    "/dead-letters",
    "/exchanges",
    "/connections",
    "/sessions",
    "/retained",
    "/epochs",
    f"/queues/{DEEP}",
)


class Step(NamedTuple):
    """One step of the loop: processor time, and what was called."""

    seconds: float
    what: str


class Watch:
    """Takes the processor time of each step of asyncio's own loop."""

    def __init__(self) -> None:
        self.longest = Step(0.0, "")

    def install(self) -> None:
        """For all loops of this process, from now on."""
        run = Handle._run

        def watched(handle: Handle) -> None:
            begun = time.thread_time()
            run(handle)
            seconds = time.thread_time() - begun
            if seconds > self.longest.seconds:
                self.longest = Step(seconds, repr(handle)[:160])

        Handle._run = watched  # type: ignore[method-assign, assignment]


def hold_connections(port: int, count: int, told: multiprocessing.connection.Connection) -> None:
    """MQTT clients with a subscription each, in a process of their own; they stay until it is told to end."""
    held = []
    for number in range(count):
        client = socket.create_connection(("127.0.0.1", port), 30)
        client.sendall(connect_packet(f"client-{number}") + subscribe_packet(1, f"topic/{number}", 1))
        client.recv(100)
        held.append(client)
    told.send("connected")
    told.recv()


async def fill(broker: Broker, queue_count: int, message_count: int) -> None:
    """Queues with a message each, and one that is deep."""
    publishing = broker.hub.client.publishing
    for number in range(queue_count):
        await broker.admin.declare(f"q-{number:05}")
        await broker.admin.publish(f"q-{number:05}", BODY)
    await broker.admin.declare(DEEP)
    plan = publishing.plan(DEEP, PROPERTIES_NONE, b"", True)
    publishing.aim(plan, publishing.named(DEEP))
    for _ in range(message_count // RUN_MESSAGES):
        publishing.publish(plan, [BODY] * RUN_MESSAGES, broker.clock.now_ms())
        await broker.hub.client.commits.durable()


def measure(client: httpx.Client, watch: Watch, call: str) -> tuple[Step, float, int]:
    """The longest step of the loop, the time of the call, and the size of the answer; not in the loop's
    thread.
    """
    best, seconds, size = Step(float("inf"), ""), 0.0, 0
    for _ in range(REPEATS):
        watch.longest = Step(0.0, "")
        begun = time.monotonic()
        size = len(client.get(call).raise_for_status().content)
        seconds = time.monotonic() - begun
        best = min(best, watch.longest)
    return best, seconds, size


async def run(options: argparse.Namespace, directory: Path) -> bool:
    """Whether no step took too long."""
    watch = Watch()
    settings = Settings(
        storage=StorageSettings(url=str(directory / "data")),
        listeners=ListenersSettings(
            mqtt=MqttListenerSettings(port=0),
            amqp=AmqpListenerSettings(port=0),
            http=HttpListenerSettings(port=0),
        ),
    )
    async with Broker(settings) as broker:
        await fill(broker, options.queues, options.messages)
        ours, theirs = multiprocessing.Pipe()
        arguments: Any = (broker.ports["mqtt"], options.connections, theirs)
        clients = multiprocessing.get_context("spawn").Process(
            target=hold_connections, args=arguments, daemon=True
        )
        clients.start()
        await asyncio.to_thread(ours.recv)
        tune_garbage_collection()
        watch.install()
        print("| call | longest step, ms | answer, KB | seconds |\n|---|---|---|---|")
        url = f"http://127.0.0.1:{broker.ports['http']}"
        is_quick = True
        login = ("guest", "guest")
        with httpx.Client(base_url=url, auth=login, timeout=CALL_TIMEOUT_S, trust_env=False) as client:
            for call in CALLS:
                step, seconds, size = await asyncio.to_thread(measure, client, watch, call)
                mark = "" if step.seconds * 1000 < STEP_MS_MAX else f" **{step.what}**"
                is_quick = is_quick and not mark
                figures = f"{step.seconds * 1000:.1f}{mark} | {size / 1000:.0f} | {seconds:.2f}"
                print(f"| `{call}` | {figures} |", flush=True)
            begun = time.process_time()
            await asyncio.to_thread(client.get, "/metrics")
            print(f"\na scrape of /metrics: {(time.process_time() - begun) * 1000:.0f} ms of the processor")
        ours.send("end")
        await asyncio.to_thread(clients.join)
    return is_quick


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of all that")
    options = parser.parse_args()
    if options.quick:
        for name in ("queues", "connections", "messages"):
            setattr(options, name, getattr(options, name) // 10)
    raise_limit()
    with tempfile.TemporaryDirectory(prefix="bench-listings-") as directory:
        return 0 if asyncio.run(run(options, Path(directory))) else 1


if __name__ == "__main__":
    raise SystemExit(main())
