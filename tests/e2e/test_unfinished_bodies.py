"""Messages that have come in part only take a bounded amount of memory, over all connections."""

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import limits
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import BrokerProcess

pytestmark = pytest.mark.extension

CLIENTS = 60
BODY_BYTES = 15_000_000
STILL_S = 0.5


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class Uploads:
    """Clients that send what they have as fast as the broker reads it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._unsent: dict[socket.socket, memoryview] = {}

    def add(self, client: socket.socket, data: bytes) -> None:
        client.setblocking(False)
        self._sockets.append(client)
        self._send(client, data)

    def _send(self, client: socket.socket, data: bytes) -> None:
        self._unsent[client] = memoryview(data)
        self._selector.register(client, selectors.EVENT_WRITE)

    def run(self) -> None:
        """Send until nothing can be sent for a while, or all has been."""
        moved = time.monotonic()
        while self._unsent and time.monotonic() - moved < STILL_S:
            for key, _ in self._selector.select(0.05):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                with contextlib.suppress(BlockingIOError):
                    self._unsent[client] = self._unsent[client][client.send(self._unsent[client][:262_144]) :]
                    moved = time.monotonic()
                if not self._unsent[client]:
                    del self._unsent[client]
                    self._selector.unregister(client)

    @property
    def waiting(self) -> list[socket.socket]:
        """Who has something left to send."""
        return list(self._unsent)

    @property
    def done(self) -> list[socket.socket]:
        return [client for client in self._sockets if client not in self._unsent]

    def close(self) -> None:
        for client in self._sockets:
            client.close()


@pytest.fixture
def uploads() -> Iterator[Uploads]:
    made = Uploads()
    yield made
    made.close()


@pytest.fixture
def process(own_broker) -> BrokerProcess:
    return own_broker(storage="memory:")


@pytest.mark.timeout(120)
def test_many_large_publishes_at_once_wait_for_each_other(process, raw_mqtt, uploads):
    message = wire.publish("plain", bytes(BODY_BYTES), qos=1)
    before = resident_bytes(process.pid)
    for _ in range(CLIENTS):
        uploads.add(raw_mqtt(process).socket, message[:-1])
    uploads.run()
    grown = resident_bytes(process.pid) - before
    assert grown < 1.5 * limits.UNFINISHED_BYTES_MAX, f"{grown >> 20} MiB"
    fitting = limits.UNFINISHED_BYTES_MAX // BODY_BYTES
    assert len(uploads.done) == fitting
    small = raw_mqtt(process)
    small.send_bytes(wire.publish("plain", b"small", qos=1))
    small.expect(wire.PUBACK)

    confirmed = 0
    while confirmed < CLIENTS:
        for client in uploads.done:
            client.setblocking(True)
            client.sendall(message[-1:])
            client.settimeout(10)
            client.recv(1)
            client.close()
            confirmed += 1
            uploads._sockets.remove(client)
        uploads.run()
    assert process.alive
