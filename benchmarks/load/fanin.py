"""MQTT fan-in: many publishers, each with one QoS 1 message outstanding, one subscriber.

`python -m benchmarks.load.fanin --mqtt-port 1883 --publishers 1000 --seconds 5`
"""

import argparse
import os
import select
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.load import mqtt_wire
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import RECEIVED, SENT_FINAL, Board, Crew, LoadError, Stopwatch, cpu_percent, span_s
from benchmarks.load.idle import SPARE_DESCRIPTORS, allow_descriptors
from benchmarks.load.payloads import make_bodies
from benchmarks.load.sockets import REST_S
from benchmarks.load.target import Target, broker_cpu

PUBLISHERS, SUBSCRIBER = "publishers", "subscriber"
STALL_S = 10.0
PUBACK_BYTES = 4
PUBACKS_PER_READ = 8
REST_BELOW_EVENTS = 50
SUBSCRIBER_REST_S = 0.001


@dataclass(frozen=True)
class FanInLoad:
    """`publishers` connections driven by one process. The subscriber has QoS 1 too."""

    publishers: int = 1_000
    size: int = 100
    seconds: float = 5.0
    subscriber_qos: int = 1

    @property
    def limit_s(self) -> float:
        return self.seconds * 5 + 30


def run(target: Target, load: FanInLoad) -> dict[str, Any]:
    """`rate` is messages acknowledged to their publishers and received, per second."""
    topic = f"fanin/{os.getpid()}/{time.monotonic_ns()}"
    crew = Crew()
    crew.add(SUBSCRIBER, subscriber, target, load, topic)
    crew.add(PUBLISHERS, publishers, target, load, topic)
    with broker_cpu(target) as cpu:
        reports = crew.run(load.limit_s)
    seconds = span_s(reports)
    sent, received = reports[PUBLISHERS]["sent"], reports[SUBSCRIBER]["count"]
    return {
        "messages": sent,
        "seconds": round(seconds, 3),
        "rate": round(received / seconds),
        "publishers": load.publishers,
        "lost": sent - received,
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def publishers(board: Board, index: int, target: Target, load: FanInLoad, topic: str) -> dict[str, Any]:
    """All publishers on one epoll: each PUBACK read is answered by that publisher's next message."""
    allow_descriptors(load.publishers + SPARE_DESCRIPTORS)
    clients = [
        mqtt_wire.MqttClient(target.host, target.mqtt_port, f"bench-{os.getpid()}-{number}")
        for number in range(load.publishers)
    ]
    # One packet id is enough: a publisher's only outstanding message is always the same packet.
    bodies = make_bodies(load.size, load.publishers)
    packets = {
        client.sock.fileno(): mqtt_wire.publish_packet(topic, body, 1, 1)
        for client, body in zip(clients, bodies, strict=True)
    }
    poller = select.epoll()
    for client in clients:
        client.sock.setblocking(False)
        poller.register(client.sock.fileno(), select.EPOLLIN | select.EPOLLET)
    board.wait_start(index)
    watch = Stopwatch()
    for descriptor, packet in packets.items():
        os.write(descriptor, packet)
    sent = load.publishers + _keep_publishing(poller, packets, load, watch)
    board.cells[SENT_FINAL] = sent
    for client in clients:
        client.sock.close()
    return watch.report(sent=sent)


def _keep_publishing(
    poller: select.epoll, packets: dict[int, bytes], load: FanInLoad, watch: Stopwatch
) -> int:
    """Returns the messages sent beyond the first of each publisher, all acknowledged.

    Edge-triggered: with one message outstanding, one event is one PUBACK, so only every eighth is read (and
    proves the count). That takes a system call per message off the machine the broker shares.
    """
    clock, read, write = time.monotonic, os.read, os.write
    unread: dict[int, int] = {}
    sent, outstanding, deadline = 0, load.publishers, watch.started + load.seconds
    while outstanding:
        events = poller.poll(STALL_S, load.publishers)
        if not events:
            raise LoadError(f"no acknowledgement within {STALL_S:.0f} s")
        more = clock() < deadline
        for descriptor, _ in events:
            count = unread.get(descriptor, 0) + 1
            if count == PUBACKS_PER_READ or not more:
                got = len(read(descriptor, 4_096))
                if got != count * PUBACK_BYTES:
                    raise LoadError(f"{got} bytes of acknowledgements for {count} messages")
                count = 0
            unread[descriptor] = count
            if more:
                write(descriptor, packets[descriptor])
                sent += 1
            else:
                outstanding -= 1
        if len(events) < REST_BELOW_EVENTS:
            time.sleep(REST_S)
    watch.finished = clock()
    return sent


def subscriber(board: Board, index: int, target: Target, load: FanInLoad, topic: str) -> dict[str, Any]:
    """Count until everything sent has come."""
    client = mqtt_wire.MqttClient(target.host, target.mqtt_port, f"bench-subscriber-{os.getpid()}")
    client.subscribe(topic, load.subscriber_qos)
    client.set_wait(0.05)
    cells, clock = board.cells, time.monotonic
    counter = mqtt_wire.PublishCounter(topic, load.size, load.subscriber_qos)
    board.wait_start(index)
    watch = Stopwatch()
    while not 0 <= cells[SENT_FINAL] <= counter.count:
        try:
            acks = counter.receive(client.sock)
        except BlockingIOError:
            if clock() - watch.finished > STALL_S:
                break
            continue
        watch.finished = clock()
        cells[RECEIVED] = counter.count
        if acks:
            client.sock.sendall(acks)
        time.sleep(SUBSCRIBER_REST_S)
    client.close()
    return watch.report(count=counter.count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--publishers", type=int, default=1_000)
    parser.add_argument("--size", type=int, default=100, help="payload bytes")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to publish")
    given = parser.parse_args()
    load = FanInLoad(publishers=given.publishers, size=given.size, seconds=given.seconds)
    print_report("mqtt-fanin", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
