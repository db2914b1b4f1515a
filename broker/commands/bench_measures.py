"""The measures of `sluicemq bench`, each for so many seconds."""

from __future__ import annotations

import os
import select
import selectors
import socket
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from broker.commands.bench_clients import CHANNEL, DELIVERY, WAIT_S, ClientError, MqttClient, Target, received
from protocols.amqp091.client import PERSISTENT, encode_publish
from protocols.amqp091.hot import ACK_FRAME_BYTES, encode_ack
from protocols.mqtt.constants import MQTT_3_1_1
from protocols.mqtt.hot import encode_publish as encode_mqtt_publish

BODY_BYTES: Final = 100
SYNC_BYTES: Final = 4_096

_BATCH: Final = 500  # publishes in one send
_WINDOW: Final = 5_000  # unconfirmed publishes
_PREFETCH: Final = 5_000
_PUBACK_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, `count` times."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> Times:
        """Return the percentiles. Raises ClientError where nothing was measured."""
        if not seconds:
            raise ClientError("nothing was done in the time given; give more")
        ordered = sorted(seconds)
        last = len(ordered) - 1
        p50, p99 = (round(1_000 * ordered[int(part * last)], 3) for part in (0.5, 0.99))
        return cls(len(ordered), p50, p99)


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages in all, and in a second."""

    count: int
    per_second: int

    @classmethod
    def of(cls, count: int, seconds: float) -> Rate:
        """Return the rate of so many in that time."""
        return cls(count, round(count / max(seconds, 1e-9)))


def sync_times(directory: Path, seconds: float) -> Times:
    """Write 4 KiB and have them on the disk, again and again."""
    path = directory / f"sluicemq-bench-{os.getpid()}"
    taken = []
    try:
        with path.open("wb", buffering=0) as file:
            end = time.perf_counter() + seconds
            while (begun := time.perf_counter()) < end:
                file.write(bytes(SYNC_BYTES))
                os.fdatasync(file.fileno())
                taken.append(time.perf_counter() - begun)
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    finally:
        path.unlink(missing_ok=True)
    return Times.of(taken)


def lone_confirms(target: Target, queue: str, seconds: float) -> Times:
    """Publish one durable message at a time over AMQP, and time each from sending it to its confirm."""
    with closing(target.amqp()) as client:
        client.declare(queue)
        client.select_confirms()
        message = encode_publish(queue, bytes(BODY_BYTES), PERSISTENT)
        taken = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            client.sock.sendall(message)
            confirm = received(client.sock)
            while len(confirm) < ACK_FRAME_BYTES:
                confirm += received(client.sock)
            taken.append(time.perf_counter() - begun)
        client.delete(queue)
    return Times.of(taken)


def one_to_one(target: Target, queue: str, seconds: float) -> Rate:
    """Count what arrives from a publisher with confirms at a consumer that acknowledges, everything
    durable.
    """
    with closing(target.amqp()) as publisher, closing(target.amqp()) as consumer:
        publisher.declare(queue)
        publisher.select_confirms()
        deliveries, confirms = consumer.consume(queue, _PREFETCH), b""
        batch = encode_publish(queue, bytes(BODY_BYTES), PERSISTENT) * _BATCH
        sent = confirmed = count = 0
        begun = ended = time.perf_counter()
        while (goes_on := ended < begun + seconds) or min(confirmed, count) < sent:
            has_room = goes_on and sent - confirmed <= _WINDOW - _BATCH
            if has_room:
                publisher.sock.sendall(batch)
                sent += _BATCH
            sockets = (publisher.sock, consumer.sock)
            ready = select.select(sockets, (), (), 0 if has_room else WAIT_S)[0]
            if not ready and not has_room:
                raise ClientError(f"{count} of {sent} messages arrived")
            if publisher.sock in ready:
                confirms += received(publisher.sock)
                whole = len(confirms) // ACK_FRAME_BYTES * ACK_FRAME_BYTES
                if whole:  # they come in order: the last says it all
                    confirmed = int.from_bytes(confirms[whole - 10 : whole - 2], "big")
                    confirms = confirms[whole:]
            if consumer.sock in ready:
                deliveries = deliveries[1 - len(DELIVERY) :] + received(consumer.sock)
                if more := deliveries.count(DELIVERY):
                    count += more
                    consumer.sock.sendall(encode_ack(CHANNEL, count, True))
            ended = time.perf_counter()
        publisher.delete(queue)
    return Rate.of(count, ended - begun)


def mqtt_fleet(target: Target, queue: str, devices: int, seconds: float) -> tuple[Rate, Times]:
    """Let devices each publish the next message (QoS 1, to a durable queue) when the last is answered."""
    with closing(target.amqp()) as client:
        client.declare(queue)
        fleet = []
        for number in range(devices):
            topic = f"$queue/{queue}/{number}".encode()
            publish = encode_mqtt_publish(MQTT_3_1_1, topic, 1, False, False, 1, b"", bytes(BODY_BYTES))
            fleet.append((target.mqtt(f"bench-{os.getpid()}-{number}"), publish))
        try:
            return _run_fleet(fleet, seconds)
        finally:
            for device, _ in fleet:
                device.sock.close()
            client.delete(queue)


def _run_fleet(fleet: list[tuple[MqttClient, bytes]], seconds: float) -> tuple[Rate, Times]:
    """Run devices, each with its packet."""
    taken: list[float] = []
    sent_at = {}
    with selectors.DefaultSelector() as selector:
        for device, publish in fleet:
            selector.register(device.sock, selectors.EVENT_READ, publish)
        begun = time.perf_counter()
        for device, publish in fleet:
            sent_at[device.sock.fileno()] = time.perf_counter()
            device.sock.sendall(publish)
        end = begun + seconds
        while (now := time.perf_counter()) < end:
            for key, _ in selector.select(min(WAIT_S, end - now)):
                sock = cast(socket.socket, key.fileobj)
                if len(received(sock)) < _PUBACK_BYTES:
                    raise ClientError("a PUBACK came in parts")
                now = time.perf_counter()
                taken.append(now - sent_at[key.fd])
                sent_at[key.fd] = now
                sock.sendall(key.data)
    return Rate.of(len(taken), time.perf_counter() - begun), Times.of(taken)
