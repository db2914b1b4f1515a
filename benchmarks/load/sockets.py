"""Blocking sockets whose waits are bounded by the kernel (no poll() before each call)."""

import socket
import struct
import time

SEND_TIMEOUT_S = 30.0
# A client that wakes up for every small segment takes CPU from the broker it measures (peers that flush each
# message get up to twice as fast when their readers rest a moment after a small read).
REST_S = 0.0002
REST_BELOW_BYTES = 16_384


def connect(host: str, port: int, wait_s: float = 0.1) -> socket.socket:
    """A connected TCP socket; recv waits at most `wait_s` and then raises BlockingIOError."""
    sock = socket.create_connection((host, port), timeout=10)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    set_wait(sock, wait_s)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(SEND_TIMEOUT_S))
    return sock


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
