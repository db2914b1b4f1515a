"""A worker of the demo: takes orders over AMQP 0.9.1 in a consumer group and acknowledges each."""

import signal
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import pika
from pika.exceptions import AMQPError

from examples.demo.report import Done

REPORT_INTERVAL_S = 0.2


def run(group: str, port: int, stopping: Event, reports: Queue) -> None:
    """Work until told to stop; when the broker goes away, connect again and go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while not stopping.is_set():
        try:
            _work(group, port, stopping, reports)
        except (AMQPError, OSError):
            time.sleep(0.1)


def _work(group: str, port: int, stopping: Event, reports: Queue) -> None:
    done: list[tuple[str, bool]] = []
    try:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.basic_qos(prefetch_count=50)
        reported = time.monotonic()
        for method, _, body in channel.consume(
            "orders", arguments={"x-consumer-group": group}, inactivity_timeout=REPORT_INTERVAL_S
        ):
            if method is not None:
                channel.basic_ack(method.delivery_tag)
                done.append((body.decode(), method.redelivered))
            if time.monotonic() - reported > REPORT_INTERVAL_S:
                reported = time.monotonic()
                reports.put(Done(group, done))
                done = []
                if stopping.is_set():
                    break
        channel.cancel()
        connection.close()
    finally:
        reports.put(Done(group, done))
