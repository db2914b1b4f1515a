"""The workers of the demo in one process: AMQP 0.9.1 over aio-pika."""

import asyncio
import json
import signal
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from examples.pipeline_demo.books import Delivered

COUNT = 3
PREFETCH = 20
WORK_S = 0.02
UNKNOWN = ("press-03", "press-11")  # no worker can do anything for these: dead letters


def run(port: int, stopping: Event, reports: Queue) -> None:
    """Take alerts until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_run(port, stopping, reports))


async def _run(port: int, stopping: Event, reports: Queue) -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")

    async def work(message: AbstractIncomingMessage) -> None:
        at = time.time()
        await asyncio.sleep(WORK_S)
        rejected = json.loads(message.body)["device"] in UNKNOWN
        if rejected:
            await message.reject(requeue=False)
        else:
            await message.ack()
        reports.put(
            Delivered(at, message.message_id or "", message.body, bool(message.redelivered), rejected)
        )

    async with connection:
        for _ in range(COUNT):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.get_queue("alerts", ensure=False)
            await queue.consume(work)
        await asyncio.to_thread(stopping.wait)
