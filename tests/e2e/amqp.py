"""pika, with the few shortcuts the tests need: connect, collect deliveries, confirm."""

import threading
import time
from typing import Any, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

__all__ = [
    "AMQPError",
    "BlockingChannel",
    "ChannelClosedByBroker",
    "Collector",
    "ConnectionClosedByBroker",
    "Delivery",
    "bodies",
    "close_quietly",
    "connect",
    "count",
    "publish",
]

QUIET_S = 0.2
WAIT_S = 20.0


class Delivery(NamedTuple):
    """One delivery as pika hands it over."""

    method: Any
    properties: Any
    body: bytes

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)

    @property
    def headers(self) -> dict[str, Any]:
        return self.properties.headers or {}


def connect(
    port: int,
    *,
    user: str = "guest",
    password: str = "guest",
    vhost: str = "/",
    heartbeat: int = 0,
    frame_max: int = 131_072,
    channel_max: int = 2_047,
) -> pika.BlockingConnection:
    """A blocking connection to a broker on loopback, tried once."""
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            port,
            vhost,
            pika.PlainCredentials(user, password),
            heartbeat=heartbeat,
            frame_max=frame_max,
            channel_max=channel_max,
            connection_attempts=1,
            socket_timeout=WAIT_S,
            stack_timeout=WAIT_S,
            blocked_connection_timeout=WAIT_S,
        )
    )


def close_quietly(connection: pika.BlockingConnection, timeout_s: float = 3) -> None:
    """Close; a broker that does not answer delays this by `timeout_s` at most."""

    def close() -> None:
        try:
            if connection.is_open:
                connection.close()
        except (AMQPError, OSError, ValueError):
            pass

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    closer.join(timeout_s)


def publish(channel: BlockingChannel, queue: str, *payloads: bytes | str, **properties: Any) -> None:
    """Publish to a queue by name over the default exchange, persistent unless told otherwise."""
    properties.setdefault("delivery_mode", 2)
    for payload in payloads:
        channel.basic_publish("", queue, payload, pika.BasicProperties(**properties))


def count(channel: BlockingChannel, queue: str) -> int:
    """Messages waiting in the queue (not those in flight)."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def until_settled(channel: BlockingChannel, other_queue: str) -> None:
    """Return once what was settled before is on the store, however slow the machine is; the channel confirms.

    Settlements go with a commit at least 20 ms later: the second one of these is such, for the broker had
    seen them when it confirmed the first.
    """
    publish(channel, other_queue, "first")
    time.sleep(0.1)
    publish(channel, other_queue, "second")


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.body.decode() for delivery in deliveries]


class Collector:
    """A consumer that keeps what it is given; `ack=True` acknowledges as it comes."""

    def __init__(
        self,
        channel: BlockingChannel,
        queue: str,
        *,
        ack: bool = False,
        auto_ack: bool = False,
        **options: Any,
    ) -> None:
        self.channel = channel
        self.deliveries: list[Delivery] = []
        self._ack = ack
        self.tag = channel.basic_consume(queue, self._on_message, auto_ack=auto_ack, **options)

    def _on_message(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.deliveries.append(Delivery(method, properties, body))
        if self._ack:
            channel.basic_ack(method.delivery_tag)

    def wait(self, count: int, timeout_s: float = WAIT_S) -> list[Delivery]:
        """The deliveries so far, once there are `count`; fails when they do not come."""
        deadline = time.monotonic() + timeout_s
        while len(self.deliveries) < count and time.monotonic() < deadline:
            self.channel.connection.process_data_events(time_limit=0.05)
        assert len(self.deliveries) >= count, f"{len(self.deliveries)} of {count} deliveries in {timeout_s} s"
        return self.deliveries

    def wait_quiet(self, seconds: float = QUIET_S) -> list[Delivery]:
        """The deliveries so far, after listening for `seconds` more."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.channel.connection.process_data_events(time_limit=left)
        return self.deliveries

    def bodies(self) -> list[str]:
        return bodies(self.deliveries)

    def cancel(self) -> None:
        self.channel.basic_cancel(self.tag)
