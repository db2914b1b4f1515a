"""All devices of the demo in one process, each with a connection of its own: MQTT 5, QoS 1."""

import asyncio
import logging
import signal
import time
from contextlib import AsyncExitStack
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import aiomqtt

from examples.pipeline_demo.books import Finished, Published
from examples.pipeline_demo.plant import DEVICES, MINUTES_MAX, SPEED, STEP_S, Message, Plant

PUBLISH_TIMEOUT_S = 20


def run(port: int, plant: Plant, stopping: Event, reports: Queue) -> None:
    """Publish to `$queue/telemetry/<device>`, all in step, until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("mqtt").setLevel(logging.ERROR)  # a hundred unconfirmed messages are nothing unusual
    asyncio.run(_run(port, plant, stopping, reports))


async def _run(port: int, plant: Plant, stopping: Event, reports: Queue) -> None:
    async with AsyncExitStack() as stack:
        clients = {}
        for device in DEVICES:
            client = aiomqtt.Client("127.0.0.1", port, identifier=device, protocol=aiomqtt.ProtocolVersion.V5)
            clients[device] = await stack.enter_async_context(client)

        async def publish(message: Message) -> None:
            topic = f"$queue/telemetry/{message.device}"
            await clients[message.device].publish(topic, message.body, qos=1, timeout=PUBLISH_TIMEOUT_S)

        async def step(number: int, messages: list[Message]) -> None:
            await asyncio.gather(*map(publish, messages))
            problems = [message.problem for message in messages if message.problem]
            reports.put(Published(time.time(), number, len(messages), problems))

        number = 0
        due = time.monotonic()
        while not stopping.is_set() and number * STEP_S < MINUTES_MAX * 60:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            # all devices go in step: what is late is so on purpose, not because this machine is busy
            await step(number, plant.step(number))
            number += 1
            due = max(due + STEP_S / SPEED, time.monotonic() - 1)
        await step(number, plant.rest())
        await step(number, plant.ticks(number))
    reports.put(Finished())
