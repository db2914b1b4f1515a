"""pika, with the few shortcuts the tests need: connect, collect deliveries, confirm."""

import threading
import time
from typing import Any, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

from tests.e2e.broker_process import BrokerProcess

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
    "get",
    "is_missing",
    "publish",
]

QUIET_ROUNDS = 8
SETTLED_S = 0.2  # by which the broker writes what was settled
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


def get(channel: BlockingChannel, queue: str, *, auto_ack: bool = True) -> Delivery | None:
    """The next message of the queue, if there is one."""
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    return None if method is None else Delivery(method, properties, body)


def is_missing(connection: pika.BlockingConnection, queue: str) -> bool:
    """Whether there is no such queue; looks on a channel of its own."""
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as closed:
        return bool(closed.reply_code == 404)
    channel.close()
    return False


def until_settled(broker: BrokerProcess, channel: BlockingChannel, other_queue: str) -> None:
    """Return once what was settled before is on the store, however slow the machine is.

    The channel confirms, the broker is `timed`. Settlements go with a commit at least 20 ms later: the second
    one of these is such, for the broker had seen them when it confirmed the first.
    """
    publish(channel, other_queue, "first")
    broker.pass_time(SETTLED_S)
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

    def wait_quiet(self) -> list[Delivery]:
        """The deliveries so far, once the broker has answered a few times and sent nothing before an answer.

        Between two answers the broker delivers what it can, to everybody.
        """
        quiet = 0
        while quiet < QUIET_ROUNDS:
            before = len(self.deliveries)
            self.channel.flow(True)  # as it is already: it has an answer, and changes nothing
            self.channel.connection.process_data_events(0)
            quiet = quiet + 1 if len(self.deliveries) == before else 0
        return self.deliveries

    def bodies(self) -> list[str]:
        return bodies(self.deliveries)

    def cancel(self) -> None:
        self.channel.basic_cancel(self.tag)
