"""Publishing over MQ-Core: keep-alive clients that each send the next message once the last is answered.

    python -m benchmarks.mqcore [--clients 32] [--messages 20000] [--rounds 5] [--quick]

Durable messages of 100 bytes. The figures of each round: publishes a second, and the broker's processor time
for each, all its threads; the rate has the client's own work in it, where the machine has few cores.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import statistics
import time
from typing import Any, Final, NamedTuple

from benchmarks.brokers import HOST, SluiceMQ, free_port, started
from benchmarks.load import process_stat
from benchmarks.load.crew import LoadError

QUEUE: Final = "bench"
BODY: Final = b"x" * 100
PUBLISH: Final = (
    f"POST /{QUEUE}/messages HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: text/plain\r\n"
    f"content-length: {len(BODY)}\r\n\r\n"
).encode() + BODY
DECLARE: Final = f"PUT /{QUEUE} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
WARM_UP_MESSAGES: Final = 2_000
ANSWER_BYTES_MAX: Final = 4_096
WAIT_S: Final = 20.0


class Figures(NamedTuple):
    """One round: publishes a second, and the broker's processor time for each."""

    rate: float
    cpu_us: float


class WithMqCore(SluiceMQ):
    """With a port for MQ-Core."""

    def prepare(self) -> None:
        self.mqcore_port = free_port()
        super().prepare()

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"listeners": {"mqcore": {"port": self.mqcore_port}}}


class Clients:
    """Connections that stay, each with one request at a time."""

    def __init__(self, port: int, count: int) -> None:
        self._sockets = [socket.create_connection((HOST, port), WAIT_S) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(each, selectors.EVENT_READ, each)
        self._sockets[0].sendall(DECLARE)
        self._expect(self._sockets[0], b"HTTP/1.1 201 ")

    def publish(self, message_count: int) -> None:
        """So many messages, by all clients together; raises LoadError."""
        begun = answered = 0
        for each in self._sockets[:message_count]:
            each.sendall(PUBLISH)
            begun += 1
        while answered < message_count:
            ready = self._selector.select(WAIT_S)
            if not ready:
                raise LoadError("the broker does not answer")
            for key, _ in ready:
                self._expect(key.data, b"HTTP/1.1 201 ")
                answered += 1
                if begun < message_count:
                    key.data.sendall(PUBLISH)
                    begun += 1

    @staticmethod
    def _expect(each: socket.socket, beginning: bytes) -> None:
        """An answer without a body comes as one piece."""
        answer = each.recv(ANSWER_BYTES_MAX)
        if not answer.startswith(beginning) or not answer.endswith(b"\r\n\r\n"):
            raise LoadError(f"not published: {answer[:200]!r}")

    def close(self) -> None:
        """All of them."""
        for each in self._sockets:
            each.close()


def measure(broker: WithMqCore, client_count: int, message_count: int, rounds: int) -> list[Figures]:
    """The figures of each round."""
    clients = Clients(broker.mqcore_port, client_count)
    clients.publish(WARM_UP_MESSAGES)
    measured = []
    for _ in range(rounds):
        spent_ns, begun = process_stat.process_cpu_ns(broker.pid), time.monotonic()
        clients.publish(message_count)
        seconds = time.monotonic() - begun
        spent_ns = process_stat.process_cpu_ns(broker.pid) - spent_ns
        measured.append(Figures(message_count / seconds, spent_ns / message_count / 1000))
        print(f"{measured[-1].rate:,.0f}/s, {measured[-1].cpu_us:.1f} us", flush=True)
    clients.close()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--messages", type=int, default=20_000, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds of 3,000 messages")
    given = parser.parse_args()
    rounds, messages = (2, 3_000) if given.quick else (given.rounds, given.messages)
    with started(WithMqCore) as broker:
        measured = measure(broker, given.clients, messages, rounds)
    median, least = statistics.median(run.rate for run in measured), min(run.cpu_us for run in measured)
    print(f"median {median:,.0f} publishes/s; least processor time {least:.1f} us each")


if __name__ == "__main__":
    main()
