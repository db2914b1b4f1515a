"""MQTT reconnect storm: sessions that last are cut all at once and come back as fast as they are let in.

`python -m benchmarks.load.storm --mqtt-port 1883 --sessions 5000`
"""

import argparse
import os
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.load import mqtt_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import LoadError
from benchmarks.load.idle import SPARE_DESCRIPTORS, allow_descriptors
from benchmarks.load.target import Target, broker_cpu

AT_ONCE = 200  # connections that are being made
STALL_S = 20.0
CONNACK_BYTES = 4
_CLEAN_SESSION_AT = 9  # in a CONNECT with a one-byte length, the connect flags


@dataclass(frozen=True)
class StormLoad:
    sessions: int = 5_000


def run(target: Target, load: StormLoad) -> dict[str, Any]:
    """`rate` is sessions that are connected again, per second."""
    allow_descriptors(load.sessions + SPARE_DESCRIPTORS)
    names = [f"storm-{os.getpid()}-{number}" for number in range(load.sessions)]
    first = _connect_all(target, names)
    for number, connection in enumerate(first):
        connection.sendall(mqtt_wire.subscribe_packet(1, f"storm/{number}/#", 1))
    for connection in first:
        connection.recv(16)
        connection.close()
    begin = time.monotonic()
    with broker_cpu(target) as cpu:
        again = _connect_all(target, names)
        seconds = time.monotonic() - begin
    for connection in again:
        connection.sendall(b"\xe0\x00")
        connection.close()
    for connection in _connect_all(target, names, flags=2):  # ends the sessions
        connection.close()
    return {
        "messages": load.sessions,
        "sessions": load.sessions,
        "seconds": round(seconds, 3),
        "rate": round(load.sessions / seconds),
        "lost": 0,
        "broker_cpu_percent": cpu.percent(seconds),
    }


def _connect_all(target: Target, names: list[str], flags: int = 0) -> list[socket.socket]:
    """Connect sessions, so many at a time; each is let in before another takes its place."""
    poller = select.epoll()
    connected: list[socket.socket] = []
    waiting: dict[int, socket.socket] = {}
    left = iter(names)
    while len(connected) < len(names):
        while len(waiting) < AT_ONCE and (name := next(left, None)) is not None:
            connection = socket.create_connection((target.host, target.mqtt_port), timeout=STALL_S)
            packet = bytearray(mqtt_wire.connect_packet(name))
            packet[_CLEAN_SESSION_AT] = flags
            connection.sendall(packet)
            waiting[connection.fileno()] = connection
            poller.register(connection.fileno(), select.EPOLLIN)
        events = poller.poll(STALL_S, AT_ONCE)
        if not events:
            raise LoadError(f"no CONNACK within {STALL_S:.0f} s")
        for descriptor, _ in events:
            connection = waiting.pop(descriptor)
            poller.unregister(descriptor)
            answer = connection.recv(CONNACK_BYTES)
            if len(answer) < CONNACK_BYTES or answer[3]:
                raise LoadError(f"CONNECT was refused: {answer!r}")
            connected.append(connection)
    return connected


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--sessions", type=int, default=5_000)
    given = parser.parse_args()
    print_report("mqtt-storm", target_from(given), run(target_from(given), StormLoad(given.sessions)))


if __name__ == "__main__":
    main()
