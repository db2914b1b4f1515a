"""MQTT 3.1.1 throughput: one busy publisher, one or more subscribers, QoS 0 or 1, plain topics.

`python -m benchmarks.load.mqtt --mqtt-port 1883 --qos 1 --subscribers 5 --seconds 5`
"""

import argparse
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.load import mqtt_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import RECEIVED, SENT, SENT_FINAL, Board, Crew, Stopwatch, cpu_percent, span_s
from benchmarks.load.payloads import make_bodies
from benchmarks.load.sockets import REST_BELOW_BYTES, REST_S, receive_answers
from benchmarks.load.target import Target, broker_cpu

PUBLISHER = "publisher"
STALL_S = 10.0
IDLE_S = 2.0


@dataclass(frozen=True)
class MqttLoad:
    """One MQTT run. `window`: unacknowledged QoS 1 messages; `flow_window`: sent but not yet received.

    The flow window goes through shared memory, not the broker: QoS 0 has no other brake, and without one
    a broker is free to drop.
    """

    size: int = 100
    qos: int = 0
    subscribers: int = 1
    seconds: float = 5.0
    window: int = 5_000
    flow_window: int = 20_000
    batch: int = 100
    devices: int = 0  # see `mqtt_wire.publish_ring`

    @property
    def limit_s(self) -> float:
        return self.seconds * 5 + 30


def run(target: Target, load: MqttLoad) -> dict[str, Any]:
    """`rate` is messages published and received by every subscriber, per second until the last arrival."""
    topic = f"bench/{os.getpid()}/{time.monotonic_ns()}"
    crew = Crew()
    names = [f"subscriber{number}" for number in range(1, load.subscribers + 1)]
    for number, name in enumerate(names):
        crew.add(name, subscriber, target, load, topic, number)
    crew.add(PUBLISHER, publisher, target, load, topic)
    with broker_cpu(target) as cpu:
        reports = crew.run(load.limit_s)
    seconds = span_s(reports)
    sent = reports[PUBLISHER]["sent"]
    received = [reports[name]["count"] for name in names]
    return {
        "messages": sent,
        "seconds": round(seconds, 3),
        "rate": round(min(received) / seconds),
        "delivery_rate": round(sum(received) / seconds),
        "lost": sent * load.subscribers - sum(received),
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def publisher(board: Board, index: int, target: Target, load: MqttLoad, topic: str) -> dict[str, Any]:
    """Send batches of ready-made packets within both windows."""
    client = mqtt_wire.MqttClient(
        target.host, target.mqtt_port, f"bench-publisher-{os.getpid()}", login=target.login
    )
    client.set_wait(STALL_S)
    payloads = make_bodies(load.size, load.batch)
    ring, packet_bytes = mqtt_wire.publish_ring(topic, payloads, load.devices) if load.qos else (b"", 0)
    board.wait_start(index)
    watch = Stopwatch()
    if load.qos:
        sent = publish_acknowledged(board, client.sock, ring, packet_bytes, load, watch)
    else:
        blob = b"".join(mqtt_wire.publish_packet(topic, payload, 0) for payload in payloads)
        sent = _publish_unacknowledged(board, client.sock, blob, load, watch)
    client.close()
    return watch.report(sent=sent)


def _publish_unacknowledged(
    board: Board, sock: socket.socket, blob: bytes, load: MqttLoad, watch: Stopwatch
) -> int:
    cells, clock, batch = board.cells, time.monotonic, load.batch
    received = range(RECEIVED, RECEIVED + load.subscribers)
    room = load.flow_window - batch
    sent, deadline, allowed = 0, watch.started + load.seconds, room
    while clock() < deadline:
        if sent > allowed:
            allowed = min(cells[cell] for cell in received) + room
            if sent > allowed:
                time.sleep(REST_S)
            continue
        sock.sendall(blob)
        sent += batch
    watch.finished = clock()
    cells[SENT_FINAL] = sent
    return sent


def publish_acknowledged(
    board: Board, sock: socket.socket, ring: bytes, packet_bytes: int, load: MqttLoad, watch: Stopwatch
) -> int:
    """QoS 1 from a ring of packets, a whole number of batches; returns how many were acknowledged."""
    cells, clock, batch = board.cells, time.monotonic, load.batch
    received = range(RECEIVED, RECEIVED + load.subscribers)
    view, batch_bytes = memoryview(ring), batch * packet_bytes
    counter = mqtt_wire.AckCounter()
    room, flow_room = load.window - batch, load.flow_window - batch
    sent, at, deadline, allowed = 0, 0, watch.started + load.seconds, flow_room
    while clock() < deadline:
        while sent - counter.confirmed > room:
            counter.feed(receive_answers(sock, STALL_S))
        if sent > allowed:
            allowed = min(cells[cell] for cell in received) + flow_room
            if sent > allowed:
                time.sleep(REST_S)
            continue
        sock.sendall(view[at : at + batch_bytes])
        sent += batch
        at = (at + batch_bytes) % len(ring)
        cells[SENT] = sent
        try:
            counter.feed(sock.recv(65_536, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
    while counter.confirmed < sent:
        counter.feed(receive_answers(sock, STALL_S))
    watch.finished = clock()
    cells[SENT_FINAL] = sent
    return sent


def subscriber(
    board: Board, index: int, target: Target, load: MqttLoad, topic: str, number: int
) -> dict[str, Any]:
    """Count until everything sent has come, or nothing has come for a while."""
    client = mqtt_wire.MqttClient(
        target.host, target.mqtt_port, f"bench-subscriber{number}-{os.getpid()}", login=target.login
    )
    client.subscribe(topic, load.qos)
    client.set_wait(0.05)
    sock, cells, clock = client.sock, board.cells, time.monotonic
    counter = mqtt_wire.PublishCounter(topic, load.size, load.qos, make_bodies(load.size, load.batch))
    cell = RECEIVED + number
    board.wait_start(index)
    watch = Stopwatch()
    while not 0 <= cells[SENT_FINAL] <= counter.count:
        before = counter.count
        try:
            acks = counter.receive(sock)
        except BlockingIOError:
            if cells[SENT_FINAL] >= 0 and clock() - watch.finished > IDLE_S:
                break
            if clock() - watch.finished > STALL_S + load.seconds:
                break
            continue
        watch.finished = clock()
        cells[cell] = counter.count
        if acks:
            sock.sendall(acks)
        if (counter.count - before) * load.size < REST_BELOW_BYTES:
            time.sleep(REST_S)
    client.close()
    return watch.report(count=counter.count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--size", type=int, default=100, help="payload bytes")
    parser.add_argument("--qos", type=int, choices=[0, 1], default=0)
    parser.add_argument("--subscribers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to publish")
    parser.add_argument("--window", type=int, default=5_000, help="unacknowledged QoS 1 messages")
    parser.add_argument("--flow-window", type=int, default=20_000, help="messages sent but not yet received")
    parser.add_argument("--batch", type=int, default=100, help="messages in one send")
    given = parser.parse_args()
    load = MqttLoad(
        size=given.size,
        qos=given.qos,
        subscribers=given.subscribers,
        seconds=given.seconds,
        window=given.window,
        flow_window=given.flow_window,
        batch=given.batch,
    )
    print_report(f"mqtt-qos{load.qos}", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
