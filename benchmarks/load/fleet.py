"""A fleet of MQTT devices: each with a topic of its own and JSON of differing size, QoS 1.

`python -m benchmarks.load.fleet --mqtt-port 1883 --devices 500 --window 10 --subscribers 1`
"""

import argparse
import json
import os
import random
import select
import struct
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.load import amqp_wire, mqtt_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import RECEIVED, SENT_FINAL, Board, Crew, LoadError, Stopwatch, cpu_percent, span_s
from benchmarks.load.idle import SPARE_DESCRIPTORS, allow_descriptors
from benchmarks.load.sockets import REST_S
from benchmarks.load.target import Target, broker_cpu

DEVICES = "devices"
STALL_S = 10.0
PUBACK_BYTES = 4
REST_BELOW_EVENTS = 50
SUBSCRIBER_REST_S = 0.001


@dataclass(frozen=True)
class FleetLoad:
    """`window` messages of each device wait for their PUBACK. `queue`: they go to `$queue/<queue>/...`, and
    nobody is subscribed to them.
    """

    devices: int = 500
    window: int = 1
    subscribers: int = 1
    seconds: float = 5.0
    queue: str = ""

    @property
    def limit_s(self) -> float:
        return self.seconds * 5 + 30


def run(target: Target, load: FleetLoad) -> dict[str, Any]:
    """`rate` is messages acknowledged to their devices and received by every subscriber, per second."""
    root = f"$queue/{load.queue}" if load.queue else f"fleet/{os.getpid()}/{time.monotonic_ns()}"
    if load.queue:
        control = amqp_wire.AmqpClient(target.host, target.amqp_port, login=target.login)
        control.declare_queue(load.queue, durable=True)
    crew = Crew()
    names = [f"subscriber{number}" for number in range(0 if load.queue else load.subscribers)]
    for number, name in enumerate(names):
        crew.add(name, subscriber, target, root, number)
    crew.add(DEVICES, devices, target, load, root)
    with broker_cpu(target) as cpu:
        reports = crew.run(load.limit_s)
    if load.queue:
        control.delete_queue(load.queue)
        control.close()
    seconds = span_s(reports)
    sent = reports[DEVICES]["sent"]
    received = [reports[name]["count"] for name in names]
    return {
        "messages": sent,
        "seconds": round(seconds, 3),
        "rate": round(min([sent, *received]) / seconds),
        "devices": load.devices,
        "lost": sent * len(names) - sum(received),
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def reading(chance: random.Random, number: int) -> bytes:
    """What a device says: about 60 to 300 bytes of JSON."""
    values = {f"v{index}": round(chance.uniform(-40, 120), 2) for index in range(chance.randint(1, 16))}
    return json.dumps(
        {"device": f"d{number:05}", "at": chance.randint(10**12, 2 * 10**12), **values}
    ).encode()


def devices(board: Board, index: int, target: Target, load: FleetLoad, root: str) -> dict[str, Any]:
    """All devices on one epoll: each PUBACK is answered by that device's next message."""
    allow_descriptors(load.devices + SPARE_DESCRIPTORS)
    chance = random.Random(load.devices)
    clients, packets = [], {}
    for number in range(load.devices):
        client = mqtt_wire.MqttClient(target.host, target.mqtt_port, f"fleet-{os.getpid()}-{number}")
        clients.append(client)
        topic = f"{root}/site{number % 17}/device{number:05}/telemetry"
        packets[client.sock.fileno()] = [
            mqtt_wire.publish_packet(topic, reading(chance, number), 1, packet_id + 1)
            for packet_id in range(load.window)
        ]
    poller = select.epoll()
    for client in clients:
        client.sock.setblocking(False)
        poller.register(client.sock.fileno(), select.EPOLLIN)
    board.wait_start(index)
    watch = Stopwatch()
    for descriptor, ring in packets.items():
        os.write(descriptor, b"".join(ring))
    sent = load.devices * load.window + _keep_publishing(poller, packets, load, watch)
    board.cells[SENT_FINAL] = sent
    for client in clients:
        client.sock.close()
    return watch.report(sent=sent)


def _keep_publishing(
    poller: select.epoll, packets: dict[int, list[bytes]], load: FleetLoad, watch: Stopwatch
) -> int:
    """Returns the messages sent beyond the first window of each device, all acknowledged."""
    clock, read, write = time.monotonic, os.read, os.write
    next_packet = dict.fromkeys(packets, 0)
    window = load.window
    sent, outstanding, deadline = 0, load.devices * window, watch.started + load.seconds
    while outstanding:
        events = poller.poll(STALL_S, load.devices)
        if not events:
            raise LoadError(f"no acknowledgement within {STALL_S:.0f} s")
        more = clock() < deadline
        for descriptor, _ in events:
            count = len(read(descriptor, 4_096)) // PUBACK_BYTES
            if not more:
                outstanding -= count
                continue
            ring, at = packets[descriptor], next_packet[descriptor]
            if count == 1:
                write(descriptor, ring[at])
            else:
                write(descriptor, b"".join((ring + ring)[at : at + count]))
            next_packet[descriptor] = (at + count) % window
            sent += count
        if len(events) < REST_BELOW_EVENTS:
            time.sleep(REST_S)
    watch.finished = clock()
    return sent


def subscriber(board: Board, index: int, target: Target, root: str, number: int) -> dict[str, Any]:
    """Count, and acknowledge, until everything sent has come."""
    client = mqtt_wire.MqttClient(target.host, target.mqtt_port, f"fleet-reader{number}-{os.getpid()}")
    client.subscribe(f"{root}/#", 1)
    client.set_wait(0.05)
    cells, clock = board.cells, time.monotonic
    count, rest = 0, b""
    board.wait_start(index)
    watch = Stopwatch()
    while not 0 <= cells[SENT_FINAL] <= count:
        try:
            data = client.sock.recv(1 << 20)
        except BlockingIOError:
            if clock() - watch.finished > STALL_S:
                break
            continue
        ids, rest = packet_ids(rest + data)
        count += len(ids)
        if ids:
            client.sock.sendall(b"\x40\x02" + b"\x40\x02".join([struct.pack(">H", one) for one in ids]))
        watch.finished = clock()
        cells[RECEIVED + number] = count
        time.sleep(SUBSCRIBER_REST_S)
    client.close()
    return watch.report(count=count)


def packet_ids(data: bytes) -> tuple[list[int], bytes]:
    """The packet identifiers of the QoS 1 publishes in some bytes, and the bytes of one that is not whole."""
    ids, at, end = [], 0, len(data)
    while at + 4 < end:
        size, body = data[at + 1], at + 2
        if size & 0x80:
            size, body = size & 0x7F | data[at + 2] << 7, at + 3
        if body + size > end:
            break
        topic = data[body] << 8 | data[body + 1]
        ids.append(data[body + 2 + topic] << 8 | data[body + 3 + topic])
        at = body + size
    return ids, data[at:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--window", type=int, default=1, help="messages of a device that wait for PUBACK")
    parser.add_argument("--subscribers", type=int, default=1)
    parser.add_argument("--queue", default="", help="publish to this queue instead")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to publish")
    given = parser.parse_args()
    load = FleetLoad(given.devices, given.window, given.subscribers, given.seconds, given.queue)
    print_report("mqtt-fleet", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
