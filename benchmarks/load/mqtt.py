"""MQTT 3.1.1 loads: one busy publisher, fleets of devices, commands to them, storms, idle connections."""

import json
import os
import random
import resource
import select
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands

from benchmarks.load import amqp, process_stat
from benchmarks.load.counters import (
    AckCounter,
    LoneAcks,
    PublishCounter,
    make_bodies,
    mqtt_publish,
    mqtt_ring,
    packet_ids,
)
from benchmarks.load.crew import RECEIVED, SENT, SENT_FINAL, Board, Crew, Stopwatch
from benchmarks.load.target import REST_BELOW_BYTES, REST_S, Target, receive_answers, set_wait
from broker.commands.bench_clients import ClientError
from protocols.mqtt import packets
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.constants import MQTT_3_1_1

PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
STALL_S = 10.0
IDLE_S = 2.0
PUBACK_BYTES = 4
PUBACKS_PER_READ = 8  # of a device with one message in flight, whose PUBACKs count by their events
REST_BELOW_EVENTS = 50
SUBSCRIBER_REST_S = 0.001
SPARE_DESCRIPTORS = 200
SETTLE_S = 1.0
AT_ONCE = 200  # connections that are being made
CONNACK_BYTES = 4
READ_BYTES = 1 << 16  # of one connection at once; a buffer of a megabyte each costs more than the message


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
    rest_s: float = 0.0  # of a subscriber after each read; 0: only after small ones
    devices: int = 0  # see `counters.mqtt_ring`


def run(target: Target, load: MqttLoad) -> dict[str, Any]:
    """`rate` is messages published and received by every subscriber, per second until the last arrival."""
    topic = f"bench/{os.getpid()}/{time.monotonic_ns()}"
    crew = Crew()
    names = [f"{SUBSCRIBER}{number}" for number in range(load.subscribers)]
    for number, name in enumerate(names):
        crew.add(name, subscriber, target, load, topic, number)
    crew.add(PUBLISHER, publisher, target, load, topic)
    return crew.measure(target, load.seconds, PUBLISHER, names)


def publisher(board: Board, index: int, target: Target, load: MqttLoad, topic: str) -> dict[str, Any]:
    """Send batches of ready-made packets within both windows."""
    client = target.mqtt(f"bench-publisher-{os.getpid()}")
    set_wait(client.sock, STALL_S)
    payloads = make_bodies(load.size, load.batch)
    if load.qos:
        ring, packet_bytes = mqtt_ring(topic, payloads, load.devices)
        batch_bytes = load.batch * packet_bytes
    else:
        ring = b"".join(mqtt_publish(topic, payload, 0) for payload in payloads)
        batch_bytes = len(ring)
    board.wait_start(index)
    watch = Stopwatch()
    sent = _publish(board, client.sock, ring, batch_bytes, load, watch)
    client.close()
    return watch.report(sent=sent)


def _publish(
    board: Board, sock: socket.socket, ring: bytes, batch_bytes: int, load: MqttLoad, watch: Stopwatch
) -> int:
    """Publish from a ring of packets, a whole number of batches; returns how many (at QoS 1 acknowledged)."""
    cells, clock, batch = board.cells, time.monotonic, load.batch
    received = range(RECEIVED, RECEIVED + load.subscribers)
    view = memoryview(ring)
    counter = AckCounter()
    room, flow_room = load.window - batch if load.qos else 1 << 62, load.flow_window - batch
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
        if load.qos:
            with suppress(BlockingIOError):
                counter.feed(sock.recv(65_536, socket.MSG_DONTWAIT))
    while load.qos and counter.confirmed < sent:
        counter.feed(receive_answers(sock, STALL_S))
    watch.finished = clock()
    cells[SENT_FINAL] = sent
    return sent


def subscriber(
    board: Board, index: int, target: Target, load: MqttLoad, topic: str, number: int
) -> dict[str, Any]:
    """Count until everything sent has come, or nothing has come for a while."""
    client = target.mqtt(f"bench-subscriber{number}-{os.getpid()}")
    client.subscribe(topic, load.qos)
    set_wait(client.sock, 0.05)
    sock, cells, clock = client.sock, board.cells, time.monotonic
    counter = PublishCounter(topic, load.size, load.qos, make_bodies(load.size, load.batch) or None)
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
        if load.rest_s or (counter.count - before) * load.size < REST_BELOW_BYTES:
            time.sleep(load.rest_s or REST_S)
    client.close()
    return watch.report(count=counter.count)


@dataclass(frozen=True)
class FleetLoad:
    """Devices with QoS 1 on one epoll; `window` messages of each wait for their PUBACK.

    Each has a topic of its own and JSON of differing size. `topic`: all publish to that one, `size` random
    bytes each. `queue`: they publish to `$queue/<queue>/...`, and no client is subscribed.
    """

    devices: int = 500
    window: int = 1
    subscribers: int = 1
    seconds: float = 5.0
    queue: str = ""
    topic: str = ""
    size: int = 100


def run_fleet(target: Target, load: FleetLoad) -> dict[str, Any]:
    """`rate` is messages acknowledged to their devices and received by every subscriber, per second."""
    root = f"$queue/{load.queue}" if load.queue else f"fleet/{os.getpid()}/{time.monotonic_ns()}"
    if load.queue:
        control = target.amqp()
        control.declare(load.queue)
    crew = Crew()
    names = [f"{SUBSCRIBER}{number}" for number in range(0 if load.queue else load.subscribers)]
    for number, name in enumerate(names):
        if load.topic:
            alike = MqttLoad(load.size, 1, seconds=load.seconds, batch=0, rest_s=SUBSCRIBER_REST_S)
            crew.add(name, subscriber, target, alike, root + load.topic, number)
        else:
            crew.add(name, readers, target, number, [f"{root}/#"], SUBSCRIBER_REST_S)
    crew.add(PUBLISHER, devices, target, load, root)
    report = crew.measure(target, load.seconds, PUBLISHER, names)
    if load.queue:
        control.delete(load.queue)
        control.close()
    return report


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
    bodies = make_bodies(load.size, load.devices) if load.topic else []
    clients, rings = [], {}
    poller = select.epoll()
    for number in range(load.devices):
        client = target.mqtt(f"fleet-{os.getpid()}-{number}")
        clients.append(client)
        topic = root + (load.topic or f"/site{number % 17}/device{number:05}/telemetry")
        rings[client.sock.fileno()] = [
            mqtt_publish(topic, bodies[number] if bodies else reading(chance, number), 1, packet_id + 1)
            for packet_id in range(load.window)
        ]
        client.sock.setblocking(False)
        poller.register(client.sock.fileno(), select.EPOLLIN | (select.EPOLLET if load.topic else 0))
    board.wait_start(index)
    watch = Stopwatch()
    for descriptor, ring in rings.items():
        os.write(descriptor, b"".join(ring))
    keep_publishing = _publish_by_events if load.topic else _publish_by_answers
    sent = load.devices * load.window + keep_publishing(poller, rings, load, watch)
    board.cells[SENT_FINAL] = sent
    for client in clients:
        client.sock.close()
    return watch.report(sent=sent)


def _publish_by_events(
    poller: select.epoll, rings: dict[int, list[bytes]], load: FleetLoad, watch: Stopwatch
) -> int:
    """Returns the messages sent beyond the first of each device, all acknowledged.

    Edge-triggered: with one message outstanding, one event is one PUBACK, so only every eighth is read (and
    proves the count). That takes a system call per message off the machine the broker shares.
    """
    clock, read, write = time.monotonic, os.read, os.write
    packets = {descriptor: ring[0] for descriptor, ring in rings.items()}
    unread: dict[int, int] = {}
    sent, outstanding, deadline = 0, load.devices, watch.started + load.seconds
    while outstanding:
        events = poller.poll(STALL_S, load.devices)
        if not events:
            raise ClientError(f"no acknowledgement within {STALL_S:.0f} s")
        more = clock() < deadline
        for descriptor, _ in events:
            count = unread.get(descriptor, 0) + 1
            if count == PUBACKS_PER_READ or not more:
                got = len(read(descriptor, 4_096))
                if got != count * PUBACK_BYTES:
                    raise ClientError(f"{got} bytes of acknowledgements for {count} messages")
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


def _publish_by_answers(
    poller: select.epoll, rings: dict[int, list[bytes]], load: FleetLoad, watch: Stopwatch
) -> int:
    """Returns the messages sent beyond the first window of each device, all acknowledged."""
    clock, read, write = time.monotonic, os.read, os.write
    next_packet = dict.fromkeys(rings, 0)
    window = load.window
    sent, outstanding, deadline = 0, load.devices * window, watch.started + load.seconds
    while outstanding:
        events = poller.poll(STALL_S, load.devices)
        if not events:
            raise ClientError(f"no acknowledgement within {STALL_S:.0f} s")
        more = clock() < deadline
        for descriptor, _ in events:
            count = len(read(descriptor, 4_096)) // PUBACK_BYTES
            if not more:
                outstanding -= count
                continue
            ring, at = rings[descriptor], next_packet[descriptor]
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


def run_commands(target: Target, seconds: float, subscribers: int = 1_000) -> dict[str, Any]:
    """One publisher, each QoS 1 message to another of many subscribers; `rate` is messages received."""
    root = f"commands/{os.getpid()}/{time.monotonic_ns()}"
    load = MqttLoad(qos=1, seconds=seconds, window=1_000, flow_window=4_000, devices=subscribers)
    crew = Crew()
    filters = [f"{root}/device{number:05}" for number in range(subscribers)]
    crew.add(SUBSCRIBER, readers, target, 0, filters, REST_S)
    crew.add(PUBLISHER, publisher, target, load, root)
    return crew.measure(target, load.seconds, PUBLISHER, [SUBSCRIBER])


def readers(
    board: Board, index: int, target: Target, number: int, filters: list[str], rest_s: float
) -> dict[str, Any]:
    """Subscribers on one epoll, each with its filter; count, and acknowledge, until everything has come."""
    allow_descriptors(len(filters) + SPARE_DESCRIPTORS)
    clients = {}
    poller = select.epoll()
    for place, topic_filter in enumerate(filters):
        client = target.mqtt(f"reader{number}-{os.getpid()}-{place}")
        client.subscribe(topic_filter, 1)
        client.sock.setblocking(False)
        clients[client.sock.fileno()] = client
        poller.register(client.sock.fileno(), select.EPOLLIN)
    cells, clock = board.cells, time.monotonic
    count, rests, lone = 0, dict.fromkeys(clients, b""), LoneAcks()
    board.wait_start(index)
    watch = Stopwatch()
    while not 0 <= cells[SENT_FINAL] <= count:
        events = poller.poll(0.05, len(filters))
        if not events and clock() - watch.finished > STALL_S:
            break
        for descriptor, _ in events:
            data = rests[descriptor] + os.read(descriptor, READ_BYTES)
            if answer := lone.answer(data):
                count += 1
                os.write(descriptor, answer)
                rests[descriptor] = b""
                continue
            ids, rests[descriptor] = packet_ids(data)
            if len(ids) == 1 and not rests[descriptor]:
                lone.learn(data)
            count += len(ids)
            os.write(descriptor, b"".join([b"\x40\x02" + struct.pack(">H", one) for one in ids]))
        if events:
            watch.finished = clock()
            cells[RECEIVED + number] = count
            time.sleep(rest_s)
    for client in clients.values():
        client.sock.close()
    return watch.report(count=count)


@dataclass(frozen=True)
class QueueLoad:
    """`bind_topic`: the queue is bound on amq.topic (RabbitMQ); else the topic `$queue/<queue>` names it."""

    seconds: float = 5.0
    bind_topic: bool = False
    devices: int = 0  # topics that take turns; 0: one topic
    queue_arguments: dict[str, Any] = field(default_factory=dict)


def run_to_amqp(target: Target, load: QueueLoad) -> dict[str, Any]:
    """QoS 1 into a durable queue, an AMQP consumer; `rate` is messages published and consumed, a second."""
    consume = amqp.AmqpLoad(seconds=load.seconds, queue_arguments=load.queue_arguments)
    queue = amqp.declare(target, consume)
    if load.bind_topic:
        key = f"{queue}.*" if load.devices else queue
        control = target.amqp()
        control.call(commands.Queue.Bind(0, queue, "amq.topic", key), commands.Queue.BindOk)
        control.close()
    topic = queue if load.bind_topic else f"$queue/{queue}"
    publish = MqttLoad(qos=1, seconds=load.seconds, flow_window=1 << 60, devices=load.devices)
    crew = Crew()
    crew.add(SUBSCRIBER, amqp.consumer, target, consume, queue)
    crew.add(PUBLISHER, publisher, target, publish, topic)
    report = crew.measure(target, load.seconds, PUBLISHER, [SUBSCRIBER])
    amqp.delete(target, consume, queue)
    return report


def run_storm(target: Target, sessions: int) -> dict[str, Any]:
    """Sessions that last, cut off all at once; `rate` is how many are connected again, per second."""
    allow_descriptors(sessions + SPARE_DESCRIPTORS)
    names = [f"storm-{os.getpid()}-{number}" for number in range(sessions)]
    first = _connect_all(target, names)
    for number, connection in enumerate(first):
        asked = packets.Subscribe(1, [packets.SubscriptionRequest(f"storm/{number}/#", 1)])
        connection.sendall(encode_packet(asked, MQTT_3_1_1))
    for connection in first:
        connection.recv(16)
        connection.close()
    begin = time.monotonic()
    cpu_s = process_stat.cpu_s(target.pid)
    again = _connect_all(target, names)
    seconds = time.monotonic() - begin
    cpu_s = process_stat.cpu_s(target.pid) - cpu_s
    for connection in again:
        connection.sendall(b"\xe0\x00")
        connection.close()
    for connection in _connect_all(target, names, clean=True):  # ends the sessions
        connection.close()
    return {
        "messages": sessions,
        "seconds": round(seconds, 3),
        "rate": round(sessions / seconds),
        "broker_cpu_percent": round(100 * cpu_s / seconds, 1),
    }


def _connect_all(target: Target, names: list[str], *, clean: bool = False) -> list[socket.socket]:
    """Connect sessions, so many at a time; each is let in before another takes its place."""
    poller = select.epoll()
    connected: list[socket.socket] = []
    waiting: dict[int, socket.socket] = {}
    left = iter(names)
    while len(connected) < len(names):
        while len(waiting) < AT_ONCE and (name := next(left, None)) is not None:
            connection = socket.create_connection((target.host, target.mqtt_port), timeout=STALL_S)
            asked = packets.Connect(MQTT_3_1_1, name, clean_start=clean)
            connection.sendall(encode_packet(asked, MQTT_3_1_1))
            waiting[connection.fileno()] = connection
            poller.register(connection.fileno(), select.EPOLLIN)
        events = poller.poll(STALL_S, AT_ONCE)
        if not events:
            raise ClientError(f"no CONNACK within {STALL_S:.0f} s")
        for descriptor, _ in events:
            connection = waiting.pop(descriptor)
            poller.unregister(descriptor)
            answer = connection.recv(CONNACK_BYTES)
            if len(answer) < CONNACK_BYTES or answer[3]:
                raise ClientError(f"CONNECT was refused: {answer!r}")
            connected.append(connection)
    return connected


def run_idle(target: Target, connections: int) -> dict[str, Any]:
    """`rss_kb_per_connection` (10^3 bytes) by the growth of the broker's resident memory."""
    allow_descriptors(connections + SPARE_DESCRIPTORS)
    target.mqtt("bench-first").close()
    time.sleep(SETTLE_S)
    before = process_stat.rss_bytes(target.pid)
    begin = time.monotonic()
    clients = []
    try:
        for number in range(connections):
            clients.append(target.mqtt(f"bench-idle-{os.getpid()}-{number}"))  # noqa: PERF401 - ended if one fails
        seconds = time.monotonic() - begin
        time.sleep(SETTLE_S)
        connected = process_stat.rss_bytes(target.pid)
        for number, client in enumerate(clients):
            client.subscribe(f"bench/idle/{number}/#", 1)
        time.sleep(SETTLE_S)
        subscribed = process_stat.rss_bytes(target.pid)
    finally:
        for client in clients:
            client.sock.close()
    return {
        "seconds": round(seconds, 3),
        "rss_kb_per_connection": round((connected - before) / 1e3 / connections, 2),
        "rss_kb_per_subscribed_connection": round((subscribed - before) / 1e3 / connections, 2),
    }


def allow_descriptors(count: int) -> None:
    """Raise the soft limit of open files. Raises ClientError when the hard limit forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ClientError(f"{count} open files are needed, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
