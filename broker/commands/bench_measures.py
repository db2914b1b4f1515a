"""What `sluicemq bench` measures, each for so many seconds."""

from __future__ import annotations

import os
import select
import selectors
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.commands.bench_clients import (
    CONFIRM_BYTES,
    PUBACK_BYTES,
    WAIT_S,
    AmqpClient,
    BenchError,
    MqttDevice,
    Target,
    last_tag,
    publish_frames,
    received,
)

BODY_BYTES: Final = 100
SYNC_BYTES: Final = 4_096

_BATCH: Final = 100  # publishes in one send
_WINDOW: Final = 5_000  # unconfirmed publishes
_PREFETCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, `count` times."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> Times:
        """Raises BenchError where nothing was measured."""
        if not seconds:
            raise BenchError("nothing was done in the time given; give more")
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
        """Of so many in that time."""
        return cls(count, round(count / max(seconds, 1e-9)))


def sync_times(directory: Path, seconds: float) -> Times:
    """Writing 4 KiB and having them on the disk, again and again."""
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
        raise BenchError(f"{path}: {error.strerror}") from None
    finally:
        path.unlink(missing_ok=True)
    return Times.of(taken)


def lone_confirms(target: Target, queue: str, seconds: float) -> Times:
    """One durable message at a time over AMQP: from sending it to its confirm."""
    with closing(AmqpClient(target)) as client:
        client.declare(queue)
        client.select_confirms()
        message = publish_frames(queue, bytes(BODY_BYTES))
        taken = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            client.sock.sendall(message)
            confirm = received(client.sock)
            while len(confirm) < CONFIRM_BYTES:
                confirm += received(client.sock)
            taken.append(time.perf_counter() - begun)
        client.delete(queue)
    return Times.of(taken)


def one_to_one(target: Target, queue: str, seconds: float) -> Rate:
    """A publisher with confirms and a consumer that acknowledges, everything durable: what arrives."""
    with closing(AmqpClient(target)) as client:
        client.declare(queue)
        consumer = _Consumer(target, queue)
        consumer.start()
        begun = time.perf_counter()
        try:
            consumer.expect(_publish(target, queue, begun + seconds))
            ended = consumer.wait()
        finally:
            consumer.give_up()
            client.delete(queue)
    return Rate.of(consumer.count, ended - begun)


def _publish(target: Target, queue: str, end: float) -> int:
    """Publish until then, wait for all confirms; how many it were."""
    with closing(AmqpClient(target)) as client:
        client.select_confirms()
        batch = publish_frames(queue, bytes(BODY_BYTES)) * _BATCH
        sent = confirmed = 0
        rest = b""
        while not (is_over := time.perf_counter() >= end) or confirmed < sent:
            if not is_over and sent - confirmed <= _WINDOW - _BATCH:
                client.sock.sendall(batch)
                sent += _BATCH
                if not select.select([client.sock], [], [], 0)[0]:
                    continue
            rest += received(client.sock)
            whole = len(rest) - len(rest) % CONFIRM_BYTES
            if whole:
                confirmed, rest = last_tag(rest[:whole]), rest[whole:]
        return sent


class _Consumer(threading.Thread):
    """Counts deliveries, which are all of one size, and acknowledges what came."""

    def __init__(self, target: Target, queue: str) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self._client = AmqpClient(target)
        self._read = self._client.consume(queue, _PREFETCH)
        self._wanted: int | None = None
        self._ended = 0.0
        self._failure: BenchError | None = None

    def expect(self, count: int) -> None:
        """So many are to come in all."""
        self._wanted = count

    def wait(self) -> float:
        """When the last of them came. Raises BenchError."""
        deadline = time.perf_counter() + WAIT_S
        while self.count < (self._wanted or 0) and self.is_alive() and time.perf_counter() < deadline:
            self.join(0.001)
        if self._failure is not None:
            raise self._failure
        if self.count < (self._wanted or 0):
            raise BenchError(f"{self.count} of {self._wanted} messages arrived")
        return self._ended

    def give_up(self) -> None:
        """Let go of the connection, which ends the thread."""
        self._client.close()

    def run(self) -> None:
        """Read until the connection ends."""
        size = 0
        total = len(self._read)
        head = self._read
        try:
            while True:
                data = received(self._client.sock)
                total += len(data)
                if not size:
                    head += data
                    size = _content_bytes(head)
                if size and total // size > self.count:
                    self.count = total // size
                    self._ended = time.perf_counter()
                    self._client.ack_up_to(self.count)
        except BenchError as error:
            if self._wanted is None:
                self._failure = error


def _content_bytes(data: bytes) -> int:
    """The size of a delivery: method, header and body frame; 0 until they are there."""
    at = 0
    for _ in range(3):
        if len(data) < at + 7:
            return 0
        at += int.from_bytes(data[at + 3 : at + 7], "big") + 8
    return at


def mqtt_fleet(target: Target, queue: str, devices: int, seconds: float) -> tuple[Rate, Times]:
    """Devices that each publish the next message (QoS 1, to a durable queue) when the last is answered."""
    with closing(AmqpClient(target)) as client:
        client.declare(queue)
        fleet = [_device(target, queue, number) for number in range(devices)]
        try:
            return _run_fleet(fleet, seconds)
        finally:
            for device in fleet:
                device.close()
            client.delete(queue)


def _device(target: Target, queue: str, number: int) -> MqttDevice:
    return MqttDevice(target, f"bench-{os.getpid()}-{number}", f"$queue/{queue}/{number}", bytes(BODY_BYTES))


def _run_fleet(fleet: list[MqttDevice], seconds: float) -> tuple[Rate, Times]:
    taken: list[float] = []
    with selectors.DefaultSelector() as selector:
        for device in fleet:
            selector.register(device.sock, selectors.EVENT_READ, device)
        begun = time.perf_counter()
        sent_at = {}
        for device in fleet:
            sent_at[device] = time.perf_counter()
            device.publish()
        end = begun + seconds
        while (now := time.perf_counter()) < end:
            ready = selector.select(min(WAIT_S, end - now))
            for key, _ in ready:
                device = key.data
                if len(received(device.sock)) < PUBACK_BYTES:
                    raise BenchError("a PUBACK came in parts")
                now = time.perf_counter()
                taken.append(now - sent_at[device])
                sent_at[device] = now
                device.publish()
    return Rate.of(len(taken), time.perf_counter() - begun), Times.of(taken)
