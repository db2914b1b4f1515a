"""MQTT command fan-out: one publisher, each QoS 1 message to another of many subscribers.

`python -m benchmarks.load.commands --mqtt-port 1883 --subscribers 1000`
"""

import argparse
import os
import select
import struct
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.load import mqtt_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import RECEIVED, SENT_FINAL, Board, Crew, Stopwatch, cpu_percent, span_s
from benchmarks.load.fleet import STALL_S, packet_ids
from benchmarks.load.idle import SPARE_DESCRIPTORS, allow_descriptors
from benchmarks.load.mqtt import MqttLoad, publish_acknowledged
from benchmarks.load.payloads import make_bodies
from benchmarks.load.sockets import REST_S
from benchmarks.load.target import Target, broker_cpu

PUBLISHER, SUBSCRIBERS = "publisher", "subscribers"


@dataclass(frozen=True)
class CommandLoad:
    subscribers: int = 1_000
    size: int = 100
    seconds: float = 5.0
    window: int = 1_000

    @property
    def limit_s(self) -> float:
        return self.seconds * 5 + 60


def run(target: Target, load: CommandLoad) -> dict[str, Any]:
    """`rate` is messages received, all subscribers together, per second."""
    root = f"commands/{os.getpid()}/{time.monotonic_ns()}"
    crew = Crew()
    crew.add(SUBSCRIBERS, subscribers, target, load, root)
    crew.add(PUBLISHER, publisher, target, load, root)
    with broker_cpu(target) as cpu:
        reports = crew.run(load.limit_s)
    seconds = span_s(reports)
    sent, received = reports[PUBLISHER]["sent"], reports[SUBSCRIBERS]["count"]
    return {
        "messages": sent,
        "seconds": round(seconds, 3),
        "rate": round(received / seconds),
        "lost": sent - received,
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def publisher(board: Board, index: int, target: Target, load: CommandLoad, root: str) -> dict[str, Any]:
    """Send packets for one subscriber after the other, within the window."""
    client = mqtt_wire.MqttClient(target.host, target.mqtt_port, f"commander-{os.getpid()}")
    client.set_wait(STALL_S)
    ring, packet_bytes = mqtt_wire.publish_ring(root, make_bodies(load.size, 100), load.subscribers)
    board.wait_start(index)
    watch = Stopwatch()
    busy = MqttLoad(qos=1, seconds=load.seconds, window=load.window, flow_window=4 * load.window)
    sent = publish_acknowledged(board, client.sock, ring, packet_bytes, busy, watch)
    client.close()
    return watch.report(sent=sent)


def subscribers(board: Board, index: int, target: Target, load: CommandLoad, root: str) -> dict[str, Any]:
    """All subscribers on one epoll, each with its topic."""
    allow_descriptors(load.subscribers + SPARE_DESCRIPTORS)
    clients = {}
    poller = select.epoll()
    for number in range(load.subscribers):
        client = mqtt_wire.MqttClient(target.host, target.mqtt_port, f"commanded-{os.getpid()}-{number}")
        client.subscribe(f"{root}/device{number:05}", 1)
        client.sock.setblocking(False)
        clients[client.sock.fileno()] = client
        poller.register(client.sock.fileno(), select.EPOLLIN)
    cells, clock = board.cells, time.monotonic
    count, rests = 0, dict.fromkeys(clients, b"")
    board.wait_start(index)
    watch = Stopwatch()
    while not 0 <= cells[SENT_FINAL] <= count:
        events = poller.poll(0.05, load.subscribers)
        if not events and clock() - watch.finished > STALL_S:
            break
        for descriptor, _ in events:
            ids, rests[descriptor] = packet_ids(rests[descriptor] + os.read(descriptor, 65_536))
            count += len(ids)
            os.write(descriptor, b"".join([b"\x40\x02" + struct.pack(">H", one) for one in ids]))
        if events:
            watch.finished = clock()
            cells[RECEIVED] = count
            time.sleep(REST_S)
    for client in clients.values():
        client.sock.close()
    return watch.report(count=count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to publish")
    given = parser.parse_args()
    load = CommandLoad(subscribers=given.subscribers, seconds=given.seconds)
    print_report("mqtt-commands", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
