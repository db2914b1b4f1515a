"""How long one client that does something large holds up everybody else.

    python -m benchmarks.stalls [--only CASE] [--rounds 3]

In each case another client, an MQTT device, asks for a sign of life (PINGREQ) a hundred times a second: its
p50, p99 and longest wait are told, and what the broker itself says of its event loop (`loop.stalled`). The
first row, with nobody else there, is what the machine does by itself.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import httpx
from pamqp import base, commands

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import amqp
from benchmarks.load.counters import TRANSIENT, MarkCounter
from benchmarks.load.target import Target
from broker.commands.bench_clients import CHANNEL, CONSUMER_TAG, AmqpClient
from protocols.amqp091.client import encode_publish
from protocols.amqp091.methods import encode_method
from protocols.mqtt import codec, packets
from protocols.mqtt.constants import MQTT_3_1_1

PING_INTERVAL_S = 0.01
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
QUIET_S = 1.0
WAIT_S = 60.0
HELD = 65_535
BODY = b"x" * 100
LARGE_BYTES = 40 * 1024 * 1024
DELETED_QUEUES = 5_000
DELETED_MESSAGES = 300_000
CONSUMERS = 1_000
BURST = 30_000
IMPORTED_QUEUES = 5_000
RETAINED_TOPICS = 20_000
TRANSACTION_PUBLISHES = 10_000

Waits = tuple[int, float, float, float]  # count, p50, p99 and longest in ms


class Result(NamedTuple):
    """One round of a case: what a device waited for its answers, and the longest stall the broker logged."""

    case: str
    ping_count: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    stalled_ms: int
    doing: str


@contextlib.contextmanager
def pings(target: Target, found: list[Waits]) -> Iterator[None]:
    """Have a device ping, in a process of its own (a busy client is none), and add what it waited."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_ping, args=(target, theirs))
    process.start()
    ours.recv()
    try:
        yield
    finally:
        ours.send("stop")
        found.append(ours.recv())
        process.join(WAIT_S)
        process.kill()


def _ping(target: Target, told: Connection) -> None:
    client = target.mqtt("pinger", WAIT_S)
    waits = []
    told.send("connected")
    due = time.monotonic()
    while not told.poll(max(0.0, due - time.monotonic())):
        client.sock.sendall(PINGREQ)
        answer = b""
        while len(answer) < len(PINGRESP):
            answer += client.sock.recv(len(PINGRESP))
        waits.append((time.monotonic() - due) * 1000)  # those that a stall kept from being sent waited, too
        due += PING_INTERVAL_S
    client.close()
    waits.sort()
    told.send((len(waits), statistics.median(waits), waits[len(waits) * 99 // 100], waits[-1]))


def publish(target: Target, queue: str, count: int) -> None:
    """Publish to a queue, confirmed."""
    amqp.publish_all(target, repeat(encode_publish(queue, BODY, TRANSIENT), count), 5_000)


def holder(target: Target, queue: str) -> AmqpClient:
    """A consumer that has been given all 65,535 messages of a new queue and has settled none."""
    target.declare(queue)
    publish(target, queue, HELD)
    client = target.amqp(WAIT_S)
    receive(client, client.consume(queue, HELD), HELD)
    return client


def receive(client: AmqpClient, data: bytes, count: int) -> None:
    """Take deliveries, of which `data` came already, until there were `count`."""
    deliveries = MarkCounter(client.sock, data)
    while deliveries.count < count:
        deliveries.receive()


def settle(client: AmqpClient, *methods: base.Frame) -> None:
    """Send methods and wait until the broker has acted on them."""
    client.sock.sendall(b"".join([encode_method(CHANNEL, method) for method in methods]))
    client.call(commands.Basic.Qos(0, 1), commands.Basic.QosOk)


def nothing(target: Target, pinging: Callable[[], object]) -> None:
    """Nobody else is there."""
    pinging()
    time.sleep(2)


def disconnect(target: Target, pinging: Callable[[], object]) -> None:
    """A consumer with 65,535 unsettled messages is cut off."""
    client = holder(target, "held")
    pinging()
    client.sock.close()


def redelivery(target: Target, pinging: Callable[[], object]) -> None:
    """What a consumer of 65,535 unsettled messages leaves goes to another that waits for it."""
    first = holder(target, "again")
    second = target.amqp(WAIT_S)
    begun = second.consume("again", HELD)
    pinging()
    first.sock.close()
    receive(second, begun, HELD)
    second.sock.close()


def nack_multiple(target: Target, pinging: Callable[[], object]) -> None:
    """65,535 messages are handed back by one basic.nack with multiple and requeue."""
    client = holder(target, "nacked")
    client.sock.sendall(encode_method(CHANNEL, commands.Basic.Cancel(CONSUMER_TAG)))
    pinging()
    settle(client, commands.Basic.Nack(HELD, multiple=True, requeue=True))
    client.sock.close()


def ack_multiple(target: Target, pinging: Callable[[], object]) -> None:
    """65,535 messages are settled by one basic.ack with multiple."""
    client = holder(target, "acked")
    pinging()
    settle(client, commands.Basic.Ack(HELD, multiple=True))
    time.sleep(QUIET_S)
    client.sock.close()


def delete_large(target: Target, pinging: Callable[[], object]) -> None:
    """A queue with 300,000 messages is deleted."""
    target.declare("full")
    publish(target, "full", DELETED_MESSAGES)
    client = target.amqp(WAIT_S)
    pinging()
    client.delete("full")
    time.sleep(QUIET_S)
    client.close()


def pipelined_deletes(target: Target, pinging: Callable[[], object]) -> None:
    """5,000 durable queues are deleted, the requests sent at once."""
    names = [f"deleted-{number}" for number in range(DELETED_QUEUES)]
    target.declare(*names)
    client = target.amqp(WAIT_S)
    pinging()
    settle(client, *(commands.Queue.Delete(queue=name, nowait=True) for name in names))
    client.close()


def large_body(target: Target, pinging: Callable[[], object]) -> None:
    """One message of 40 MiB."""
    target.declare("large")
    message = encode_publish("large", bytes(LARGE_BYTES))
    pinging()
    amqp.publish_all(target, [message], 1)


def consumers_of(target: Target, queue: str) -> list[AmqpClient]:
    """1,000 consumers of a queue."""
    target.declare(queue)
    clients = []
    for _ in range(CONSUMERS):
        client = target.amqp(WAIT_S)
        client.consume(queue, no_ack=True)
        clients.append(client)
    return clients


def many_consumers(target: Target, pinging: Callable[[], object]) -> None:
    """A burst of 30,000 messages for 1,000 consumers of one queue."""
    clients = consumers_of(target, "shared")
    pinging()
    publish(target, "shared", BURST)
    time.sleep(QUIET_S)
    for client in clients:
        client.close()


def many_lost(target: Target, pinging: Callable[[], object]) -> None:
    """The 1,000 consumers of a queue are cut off at once."""
    clients = consumers_of(target, "lost")
    pinging()
    for client in clients:
        client.sock.close()


def import_definitions(target: Target, pinging: Callable[[], object]) -> None:
    """Definitions of 5,000 queues, each bound twice, are imported over HTTP."""
    names = [f"imported-{number}" for number in range(IMPORTED_QUEUES)]
    bindings = [
        {"source": exchange, "destination": name, "routing_key": f"{name}.#", "vhost": "/"}
        for name in names
        for exchange in ("amq.topic", "amq.direct")
    ]
    queues = [{"name": name, "vhost": "/", "durable": True} for name in names]
    url = f"http://{target.host}:{target.http_port}/api/definitions"
    with httpx.Client(auth=("guest", "guest"), timeout=WAIT_S) as client:
        client.get(url).raise_for_status()  # HTTP is imported once the broker serves
        pinging()
        client.post(url, json={"queues": queues, "bindings": bindings}).raise_for_status()


def retained_filters(target: Target, pinging: Callable[[], object]) -> None:
    """One SUBSCRIBE of `#`, then one of 300 filters with wildcards, over 20,000 retained messages."""
    device = target.mqtt("device", WAIT_S)
    topics = [f"a/{number % 5}/{number % 7}/{number % 11}/z{number}" for number in range(RETAINED_TOPICS)]
    publishes = [packets.Publish(topic, BODY, retain=True) for topic in topics]
    device.sock.sendall(b"".join(codec.encode_packet(publish, MQTT_3_1_1) for publish in publishes))
    device.close()
    for filters in (["#"], [f"a/+/+/+/z{number}" for number in range(300)]):
        client = target.mqtt("subscriber", WAIT_S)
        if filters == ["#"]:
            pinging()
        requests = [packets.SubscriptionRequest(topic_filter, 0) for topic_filter in filters]
        client.sock.sendall(codec.encode_packet(packets.Subscribe(1, requests), MQTT_3_1_1))
        for _ in range(1 + (RETAINED_TOPICS if filters == ["#"] else len(filters))):  # SUBACK and messages
            client.next_packet()
        client.close()


def transaction(target: Target, pinging: Callable[[], object]) -> None:
    """A transaction of 10,000 publishes that differ is committed."""
    target.declare("committed")
    client = target.amqp(WAIT_S)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    publishes = [
        encode_publish("committed", BODY + str(number).encode()) for number in range(TRANSACTION_PUBLISHES)
    ]
    pinging()
    client.sock.sendall(b"".join(publishes))
    client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    client.close()


CASES: dict[str, Callable[[Target, Callable[[], object]], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        nothing,
        disconnect,
        redelivery,
        nack_multiple,
        ack_multiple,
        delete_large,
        pipelined_deletes,
        large_body,
        many_consumers,
        many_lost,
        import_definitions,
        retained_filters,
        transaction,
    )
}


class WatchedBroker(SluiceMQ):
    """Takes messages of 40 MiB, and logs as JSON."""

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {
            "log": {"format": "json"},
            "queues": [{"name": "large", "limits": {"max_message_size": "64MB"}}],
        }

    def longest_stall(self) -> tuple[int, str]:
        """What it logged of its loop: the longest stall in ms, and what it did."""
        stalls = [(0, "")]
        for line in (self.directory / "output.log").read_text().splitlines():
            if '"loop.stalled"' in line:
                logged = json.loads(line)
                stalls.append((logged["ms"], logged["doing"]))
        return max(stalls)


def measure(name: str) -> Result:
    """One case on a broker of its own."""
    found: list[Waits] = []
    with started(WatchedBroker) as broker:
        with contextlib.ExitStack() as stack:
            CASES[name](broker.target, lambda: stack.enter_context(pings(broker.target, found)))
            time.sleep(QUIET_S)  # what it left behind is worked off
        return Result(name, *found[0], *broker.longest_stall())


def table(results: list[Result]) -> str:
    """The results as a Markdown table, the rounds of a case together."""
    lines = [
        "| case | ping p50 | p99 | longest | the broker says | doing |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(result.case for result in results):
        rounds = [result for result in results if result.case == name]
        worst = max(rounds, key=lambda result: result.stalled_ms)
        cells = [
            f"{statistics.median(result.p50_ms for result in rounds):.2f} ms",
            f"{statistics.median(result.p99_ms for result in rounds):.1f} ms",
            f"{statistics.median(result.longest_ms for result in rounds):.0f} ms",
            f"{statistics.median(result.stalled_ms for result in rounds):.0f} ms",
            worst.doing,
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    results = []
    for _ in range(given.rounds):
        for name in given.only or CASES:
            results.append(measure(name))
            print(results[-1], flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
