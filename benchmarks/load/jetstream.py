"""NATS JetStream over its own protocol: one producer and one consumer, with acknowledgements."""

import itertools
import json
import socket
import time
from contextlib import suppress
from typing import Any

from benchmarks.load.amqp import CONSUMER, PUBLISHER, STALL_S, AmqpLoad
from benchmarks.load.crew import RECEIVED, SENT_FINAL, Board, Crew, Stopwatch
from benchmarks.load.target import REST_BELOW_BYTES, REST_S, Target, receive_answers, set_wait
from broker.commands.bench_clients import ClientError

STREAM, SUBJECT = "BENCH", "bench.queue"
ACKS, DELIVERIES = "bench-acks", "bench-deliveries"
_numbers = itertools.count()


class Lines:
    """Counts messages that came, by their heads, of which one may be cut in two; bodies have none in them."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._rest = b""
        self.count = 0
        self.last = b""

    def feed(self, data: bytes) -> None:
        """Count the heads that are whole; `last` is the newest of them."""
        data = self._rest + data
        end = data.rfind(b"\r\n") + 2
        self.count += data.count(self._head, 0, end)
        at = data.rfind(self._head, 0, end)
        if at >= 0:
            self.last = data[at : data.index(b"\r\n", at)]
        self._rest = data[end:] if end > 1 else data


def _connected(target: Target) -> socket.socket:
    sock = target.connect(target.nats_port, STALL_S)
    sock.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
    _until(sock, b"PONG\r\n")
    return sock


def _until(sock: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        more = sock.recv(65_536)
        if not more:
            raise ClientError("the broker hung up")
        data += more
    return data


def _ask(target: Target, request: str, **settings: Any) -> None:
    """Ask JetStream's API; an error of anything but a deletion raises ClientError."""
    sock = _connected(target)
    body = json.dumps(settings).encode()
    head = f"SUB answer 1\r\nPUB $JS.API.{request} answer {len(body)}\r\n".encode()
    sock.sendall(head + body + b"\r\n")
    answer = _until(sock, b"}\r\n")
    sock.close()
    if b'"error"' in answer and ".DELETE." not in request:
        raise ClientError(answer.decode(errors="replace"))


def run_together(target: Target, load: AmqpLoad) -> dict[str, Any]:
    """Do as `amqp.run_together`, with a stream in files that keeps what was not acknowledged."""
    name = f"bench{next(_numbers)}"
    _ask(target, f"STREAM.DELETE.{STREAM}")
    _ask(target, f"STREAM.CREATE.{STREAM}", name=STREAM, subjects=[SUBJECT], retention="interest")
    config = {
        "durable_name": name,
        "deliver_subject": DELIVERIES,
        "ack_policy": "all",
        "max_ack_pending": load.prefetch,
    }
    crew = Crew()
    crew.add(CONSUMER, consumer, target, load, name, config)
    crew.add(PUBLISHER, publisher, target, load)
    report = crew.measure(target, load.seconds, PUBLISHER, [CONSUMER])
    _ask(target, f"STREAM.DELETE.{STREAM}")
    return report


def publisher(board: Board, index: int, target: Target, load: AmqpLoad) -> dict[str, Any]:
    """Publish within the window of what is not acknowledged."""
    sock = _connected(target)
    sock.sendall(f"SUB {ACKS} 1\r\n".encode())
    head = f"PUB {SUBJECT} {ACKS} {load.size}\r\n".encode()
    batch = (head + b"x" * load.size + b"\r\n") * load.batch
    acks = Lines(b"MSG " + ACKS.encode())
    board.wait_start(index)
    watch = Stopwatch()
    sent = 0
    while time.monotonic() < watch.started + load.seconds:
        while sent - acks.count > load.window - load.batch:
            acks.feed(receive_answers(sock, STALL_S))
        sock.sendall(batch)
        sent += load.batch
        with suppress(BlockingIOError):
            acks.feed(sock.recv(65_536, socket.MSG_DONTWAIT))
    while acks.count < sent:
        acks.feed(receive_answers(sock, STALL_S))
    watch.finished = time.monotonic()
    board.cells[SENT_FINAL] = sent
    sock.close()
    return watch.report(sent=sent)


def consumer(
    board: Board, index: int, target: Target, load: AmqpLoad, name: str, config: dict[str, Any]
) -> dict[str, Any]:
    """Count deliveries until everything sent has come, and acknowledge up to the newest now and then."""
    sock = _connected(target)
    sock.sendall(f"SUB {DELIVERIES} 1\r\nPING\r\n".encode())
    _until(sock, b"PONG\r\n")
    _ask(target, f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", stream_name=STREAM, config=config)
    set_wait(sock, 0.05)
    messages = Lines(b"MSG " + SUBJECT.encode())
    acked = 0
    board.wait_start(index)
    watch = Stopwatch()
    while not 0 <= board.cells[SENT_FINAL] <= messages.count:
        try:
            data = sock.recv(1 << 20)
        except BlockingIOError:
            if time.monotonic() - watch.finished > STALL_S + load.seconds:
                break
            continue
        messages.feed(data)
        watch.finished = time.monotonic()
        board.cells[RECEIVED] = messages.count
        if messages.count - acked >= load.ack_every:
            acked = messages.count
            sock.sendall(b"PUB " + messages.last.split()[3] + b" 4\r\n+ACK\r\n")
        if len(data) < REST_BELOW_BYTES:
            time.sleep(REST_S)
    sock.close()
    return watch.report(count=messages.count)
