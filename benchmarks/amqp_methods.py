"""What AMQP can do besides a plain stream of messages, beside a peer.

    python -m benchmarks.amqp_methods [--only rpc,transactions,bodies,connections,storms]
        [--seconds 3] [--runs 3] [--peer rabbitmq,amqp=5672]

`rpc`: round trips over direct reply-to, one at a time and many at once. `transactions`: ten persistent
messages and a commit, one after the other. `bodies`: 50 MB from a publisher to a consumer, and how long
somebody else had to wait for an answer meanwhile. `connections`: 200 with five channels each, every channel
with one persistent message at a time, confirmed. `storms`: twenty clients declare, bind and
delete a durable queue each, a thousand times a second in all, while others publish with one confirm at a
time.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import selectors
import socket
import statistics
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event

from pamqp import base, commands

from benchmarks import command_line
from benchmarks.brokers import Broker, SluiceMQ, peer, started
from benchmarks.load.counters import DeliveryCounter, MarkCounter
from benchmarks.load.target import Target
from broker.commands.bench_clients import CHANNEL
from protocols.amqp091.client import PERSISTENT, encode_publish
from protocols.amqp091.content import Properties, decode_properties, encode_properties
from protocols.amqp091.methods import encode_method

Figures = dict[str, float]
REPLY_TO = "amq.rabbitmq.reply-to"
BODY = b"x" * 100
PIPELINED = 50
TRANSACTION_MESSAGES = 10
LARGE_BYTES = 50_000_000
CONNECTIONS = 200
CHANNELS = 5
QUEUES = 10
CONTENT_HEAD_BYTES = 12
_ACK_BYTES = 21
STORM_PER_S = 1_000
STORM_CLIENTS = 20
STORM_PUBLISHERS = 4


def respond(target: Target, ready: Event) -> None:
    """Answer every request with BODY, until it is killed; all requests have the same reply address."""
    first = target.amqp(60)
    first.declare("rpc", durable=False)
    first.call(commands.Queue.Purge(queue="rpc"), commands.Queue.PurgeOk)  # of the run before
    ready.set()
    get = commands.Basic.Get(queue="rpc", no_ack=True)
    while not isinstance(first.call(get, base.Frame), commands.Basic.GetOk):
        time.sleep(0.01)
    properties = decode_properties(first.next_frame().payload[CONTENT_HEAD_BYTES:])
    client = target.amqp(60)
    correlated = encode_properties(Properties(correlation_id="c"))
    reply = encode_publish(str(properties.reply_to), BODY, correlated)
    client.sock.sendall(reply)
    requests = DeliveryCounter(client.consume("rpc", no_ack=True))
    requests.scan()  # one may have come with consume-ok
    answered = 0
    while True:
        client.sock.sendall(reply * (requests.count - answered))
        answered = requests.count
        requests.receive(client.sock)


def rpc(target: Target, seconds: float) -> Figures:
    ready = mp.Event()
    responder = mp.Process(target=respond, args=(target, ready), daemon=True)
    responder.start()
    ready.wait(30)
    client = target.amqp(60)
    client.consume(REPLY_TO, no_ack=True)
    asking = encode_properties(Properties(reply_to=REPLY_TO, correlation_id="c"))
    request = encode_publish("rpc", BODY, asking)
    replies = MarkCounter(client.sock)  # RabbitMQ gives all of them one delivery tag
    trips_s: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        client.sock.sendall(request)
        wanted = replies.count + 1
        while replies.count < wanted:
            replies.receive()
        trips_s.append(time.perf_counter() - began)
    trips_s.sort()
    first = replies.count
    sent = first + PIPELINED
    client.sock.sendall(request * PIPELINED)
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        replies.receive()
        more = replies.count + PIPELINED - sent
        client.sock.sendall(request * more)
        sent += more
    rate = (replies.count - first) / (now - began)
    responder.kill()
    responder.join()
    client.delete("rpc")  # with what is left of the responder: it takes no request of the next run
    client.close()
    return {
        "rpc one at a time, round trips/s": len(trips_s) / seconds,
        "rpc one at a time, p99 ms": 1000 * trips_s[int(len(trips_s) * 0.99)],
        f"rpc {PIPELINED} at once, round trips/s": rate,
    }


def transactions(target: Target, seconds: float) -> Figures:
    client = target.amqp(60)
    client.declare("transactions")
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    publishes = encode_publish("transactions", BODY, PERSISTENT) * TRANSACTION_MESSAGES
    count = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        client.sock.sendall(publishes)
        client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
        count += 1
    rate = count / (time.perf_counter() - began)
    client.delete("transactions")
    client.close()
    return {f"transactions of {TRANSACTION_MESSAGES}, per s": rate}


def ask(target: Target, asking: Event, answers: mp.Queue[float]) -> None:
    """Put the longest time that an answer took, while `asking` is set."""
    client = target.amqp(60)
    longest = 0.0
    answers.put(0.0)
    asking.wait(30)
    while asking.is_set():
        began = time.perf_counter()
        client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.002)
    answers.put(longest)
    client.close()


def bodies(target: Target, seconds: float) -> Figures:
    asking = mp.Event()
    answers: mp.Queue[float] = mp.Queue()
    asker = mp.Process(target=ask, args=(target, asking, answers), daemon=True)
    asker.start()
    answers.get()
    publisher = target.amqp(60)
    publisher.declare("large")
    consumer = target.amqp(60)
    consumer.consume("large", no_ack=True)
    body = os.urandom(LARGE_BYTES)
    message = encode_publish("large", body, PERSISTENT)
    asking.set()
    count = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        sender = mp.Process(target=publisher.sock.sendall, args=(message,))
        sender.start()
        left = len(body)
        while left > 0:
            left -= len(consumer.sock.recv(1 << 20))
        sender.join()
        count += 1
    rate = count * len(body) / (time.perf_counter() - began)
    asking.clear()
    longest = answers.get()
    asker.join()
    for client in (consumer, publisher):
        client.sock.close()
    return {"50 MB bodies, MB/s": rate / 1e6, "50 MB bodies, longest wait of another, ms": 1000 * longest}


def connections(target: Target, seconds: float) -> Figures:
    clients = [target.amqp(60) for _ in range(CONNECTIONS)]
    for number in range(QUEUES):
        clients[0].declare(f"c{number}")
    waiting = selectors.DefaultSelector()
    for number, client in enumerate(clients):
        by_channel = {}
        queue = f"c{number % QUEUES}"
        for channel in range(1, CHANNELS + 1):
            opening = [commands.Channel.Open()] if channel > 1 else []
            for method in (*opening, commands.Confirm.Select()):
                client.sock.sendall(encode_method(channel, method))
                client.next_frame()
            by_channel[channel.to_bytes(2, "big")] = encode_publish(queue, BODY, PERSISTENT, channel=channel)
        waiting.register(client.sock, selectors.EVENT_READ, by_channel)
        client.sock.sendall(b"".join(by_channel.values()))
    count = 0
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        for key, _ in waiting.select(1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            data = sock.recv(1 << 16)
            numbers = [data[at + 1 : at + 3] for at in range(0, len(data), _ACK_BYTES)]
            count += len(numbers)
            sock.sendall(b"".join(key.data[number] for number in numbers))
    rate = count / (now - began)
    for client in clients:
        client.sock.close()
    return {f"{CONNECTIONS} connections x {CHANNELS} channels, confirmed/s": rate}


def storm(target: Target, going: Event, rates: mp.Queue[float]) -> None:
    """Have many clients declare, bind and delete a queue each at a steady rate while `going` is set; put how
    many queues a second.
    """
    clients = [target.amqp(60) for _ in range(STORM_CLIENTS)]
    asked = []
    for number in range(STORM_CLIENTS):
        name = f"storm{number}"
        methods: list[base.Frame] = [
            commands.Queue.Declare(queue=name, durable=True),
            commands.Queue.Bind(queue=name, exchange="amq.topic", routing_key=f"{name}.#"),
            commands.Queue.Delete(queue=name),
        ]
        asked.append([encode_method(CHANNEL, method) for method in methods])
    rates.put(0.0)
    going.wait(30)
    count = 0
    began = due = time.perf_counter()
    while going.is_set():
        for step in range(len(asked[0])):
            for client, methods_of_it in zip(clients, asked, strict=True):
                client.sock.sendall(methods_of_it[step])
            for client in clients:
                client.next_frame()
        count += STORM_CLIENTS
        due = max(due + STORM_CLIENTS / STORM_PER_S, time.perf_counter() - 1)  # what was late comes again
        time.sleep(max(0.0, due - time.perf_counter()))
    rates.put(count / (time.perf_counter() - began))
    for client in clients:
        client.sock.close()


def _confirmed(target: Target, seconds: float) -> list[float]:
    """How long confirms took, in ms, sorted, of publishers with one message at a time."""
    waiting = selectors.DefaultSelector()
    clients = [target.amqp(60) for _ in range(STORM_PUBLISHERS)]
    sent: dict[socket.socket, float] = {}
    message = encode_publish("storm-published", BODY, PERSISTENT)
    clients[0].declare("storm-published")
    for client in clients:
        client.select_confirms()
        waiting.register(client.sock, selectors.EVENT_READ)
    took = []
    end = time.perf_counter() + seconds
    for client in clients:
        sent[client.sock] = time.perf_counter()
        client.sock.sendall(message)
    while time.perf_counter() < end:
        for key, _ in waiting.select(1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            sock.recv(1 << 16)
            now = time.perf_counter()
            took.append(1000 * (now - sent[sock]))
            sent[sock] = now
            sock.sendall(message)
    clients[0].delete("storm-published")
    for client in clients:
        client.sock.close()
    return sorted(took)


def storms(target: Target, seconds: float) -> Figures:
    quiet = _confirmed(target, seconds)
    going = mp.Event()
    rates: mp.Queue[float] = mp.Queue()
    stormer = mp.Process(target=storm, args=(target, going, rates), daemon=True)
    stormer.start()
    rates.get()
    going.set()
    stormy = _confirmed(target, seconds)
    going.clear()
    rate = rates.get()
    stormer.join()
    return {
        "storm: queues declared, bound and deleted/s": rate,
        "storm: confirms of others, p50 ms": stormy[len(stormy) // 2],
        "storm: confirms of others, p99 ms": stormy[len(stormy) * 99 // 100],
        "no storm: confirms, p50 ms": quiet[len(quiet) // 2],
        "no storm: confirms, p99 ms": quiet[len(quiet) * 99 // 100],
    }


MEASURES: dict[str, Callable[[Target, float], Figures]] = {
    "rpc": rpc,
    "transactions": transactions,
    "bodies": bodies,
    "connections": connections,
    "storms": storms,
}


def compare(names: list[str], seconds: float, runs: int, peers: list[Broker]) -> None:
    """Print the medians of alternating runs."""
    with started(SluiceMQ) as own:
        for name in names:
            found: dict[str, dict[str, list[float]]] = {}
            for _ in range(runs):
                for broker in (own, *peers):
                    for figure, value in MEASURES[name](broker.target, seconds).items():
                        found.setdefault(figure, {}).setdefault(broker.name, []).append(value)
            for figure, values in found.items():
                told = (f"{broker} {statistics.median(each):,.1f}" for broker, each in values.items())
                print(f"{figure}: {', '.join(told)}", flush=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", default=",".join(MEASURES))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer", action="append", default=[], type=peer, help="another broker that runs")
    given = parser.parse_args()
    compare(given.only.split(","), given.seconds, given.runs, given.peer)


if __name__ == "__main__":
    main()
