"""A broker under load, by blocking sockets whose waits the kernel bounds (no poll() before each call)."""

import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.commands import bench_clients

SEND_TIMEOUT_S = 30.0
# A client that wakes up for every small segment takes CPU from the broker it measures (peers that flush each
# message get up to twice as fast when their readers rest a moment after a small read).
REST_S = 0.0002
REST_BELOW_BYTES = 16_384
RECEIVE_BYTES = 1 << 20
TLS_NAME = "localhost"


class TlsSocket(socket.socket):
    """A connected socket with TLS on it, which waits, and tells that nothing came, as a plain one does."""

    def __init__(self, plain: socket.socket, ca_file: str, server_name: str) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=ca_file)
        self._tls = context.wrap_bio(self._coming, self._going, server_hostname=server_name)
        self._until_done(self._tls.do_handshake)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        buffer = bytearray(bufsize)
        return bytes(buffer[: self.recv_into(buffer, bufsize, flags)])

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer)
        filled, size = 0, nbytes or len(view)
        while filled < size:
            try:
                got = self._tls.read(size - filled, view[filled:])
            except ssl.SSLWantReadError:
                if filled or not self._fetch(flags):
                    break
                continue
            if not got:  # the other side ended TLS
                break
            filled += int(got)
        return filled

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        super().sendall(self._going.read(), flags)

    def _until_done(self, step: Callable[[], None]) -> None:
        while True:
            try:
                step()
            except ssl.SSLWantReadError:
                super().sendall(self._going.read())
                if not self._fetch(0):
                    raise ConnectionError("the broker closed the connection in its handshake") from None
            else:
                super().sendall(self._going.read())
                return

    def _fetch(self, flags: int) -> bool:
        """Whether something came, and not the end; raises BlockingIOError when nothing did."""
        data = super().recv(RECEIVE_BYTES, flags)
        self._coming.write(data)
        return bool(data)


@dataclass(frozen=True)
class Target(bench_clients.Target):
    """A running broker; `pid` 0: its processes cannot be looked at. With `ca_file` its ports speak TLS."""

    name: str = ""
    pid: int = 0
    http_port: int = 0
    nats_port: int = 0
    ca_file: str = ""

    def connect(self, port: int, wait_s: float) -> socket.socket:
        """A connected socket; recv waits at most `wait_s`, then BlockingIOError."""
        sock = super().connect(port, wait_s)
        sock.settimeout(None)
        set_wait(sock, wait_s)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_TIMEOUT_S))
        return TlsSocket(sock, self.ca_file, TLS_NAME) if self.ca_file else sock

    def declare(self, *queues: str, arguments: dict[str, Any] | None = None) -> None:
        """Declare durable queues, one after the other."""
        client = self.amqp(60)
        for queue in queues:
            client.declare(queue, arguments=arguments)
        client.close()


def set_wait(sock: socket.socket, wait_s: float) -> None:
    """Change how long recv waits before it raises BlockingIOError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(wait_s))


def receive_answers(sock: socket.socket, wait_s: float) -> bytes:
    """Confirms that arrived; rests after few. `wait_s` is the socket's wait, for the text of TimeoutError."""
    try:
        data = sock.recv(65_536)
    except BlockingIOError:
        raise TimeoutError(f"no confirm within {wait_s:.0f} s") from None
    if len(data) < REST_BELOW_BYTES:
        time.sleep(REST_S)
    return data


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
