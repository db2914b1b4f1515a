"""What a message costs whose clients are at another worker than its queue, and what more cores make of it.

    python -m benchmarks.workers [--rounds 3] [--seconds 2] [--in-flight 1,10,100,1000]

One publisher and one consumer, in lockstep: so many persistent messages of 100 bytes, confirmed, delivered
and acknowledged, then the next. Processor time of each process, the least of the rounds, which take turns: a
broker of one process (`alone`), one of two workers whose clients are at the queue's worker (`here`), and one
whose clients are at the other worker (`there`, with what each of the two takes).

The forecast says how much more a machine of so many cores does than one process, if every core has a worker
and no other work, from these processor times: clients of many queues anywhere (each message takes the link
but for one in as many as there are workers), clients at the worker of their queue, and one hot queue.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from benchmarks.load import process_stat
from benchmarks.load.counters import ConfirmCounter, DeliveryCounter
from benchmarks.load.target import Target
from broker.commands.bench_clients import CHANNEL, AmqpClient
from protocols.amqp091.client import PERSISTENT, encode_publish
from protocols.amqp091.hot import encode_ack

BODY = b"x" * 100
QUEUE = "hot"
WORKERS = 2
CONNECTS_MAX = 200
CORES = (4, 8, 16)
WARM_S = 0.5


class Workers(SluiceMQ):
    """A broker of several workers."""

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"workers": WORKERS}


def connected(target: Target, worker: int | None) -> AmqpClient:
    """A client of this worker: the kernel gives connections to one or the other."""
    for _ in range(CONNECTS_MAX):
        client = target.amqp()
        if worker is None or client.server_properties.get("worker") == worker:
            return client
        client.close()
    raise SystemExit(f"none of {CONNECTS_MAX} connections came to worker {worker}")


def pids_of(target: Target, worker_count: int) -> list[int]:
    """The processes that serve, by their numbers."""
    found = process_stat.process_tree(target.pid)
    return found[:1] if worker_count == 1 else sorted(found[1:])[:worker_count]


def lockstep(publisher: AmqpClient, consumer: AmqpClient, count: int, seconds: float) -> int:
    """Publish, confirm, deliver and acknowledge `count` messages at a time; how many it were."""
    confirms = ConfirmCounter()
    deliveries = DeliveryCounter(consumer.consume(QUEUE))
    publisher.select_confirms()
    frames = encode_publish(QUEUE, BODY, PERSISTENT) * count
    done = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        publisher.send(frames)
        done += count
        while confirms.confirmed < done:
            confirms.feed(publisher.sock.recv(1 << 20))
        while deliveries.count < done:
            deliveries.receive(consumer.sock)
        consumer.send(encode_ack(CHANNEL, done, True))
    return done


def us_per_message(
    broker: SluiceMQ, workers: Sequence[int], at: int | None, in_flight: int, seconds: float
) -> list[float]:
    """Microseconds of processor a message, in each of these processes."""
    publisher, consumer = connected(broker.target, at), connected(broker.target, at)
    lockstep_s = [WARM_S, seconds]
    for duration_s in lockstep_s:
        before = [process_stat.process_cpu_ns(pid) for pid in workers]
        count = lockstep(publisher, consumer, in_flight, duration_s)
        spent = [process_stat.process_cpu_ns(pid) - was for pid, was in zip(workers, before, strict=True)]
        publisher.close()
        consumer.close()
        publisher, consumer = connected(broker.target, at), connected(broker.target, at)
    publisher.close()
    consumer.close()
    return [each / count / 1000 for each in spent]


@contextmanager
def both() -> Iterator[tuple[SluiceMQ, SluiceMQ]]:
    """A broker of one process, and one of several workers; the queue is at the first worker."""
    with started(SluiceMQ) as alone, started(Workers) as several:
        connected(alone.target, None).declare(QUEUE)
        connected(several.target, 0).declare(QUEUE)
        yield alone, several


def measure(rounds: int, seconds: float, in_flight: Sequence[int]) -> dict[int, dict[str, list[float]]]:
    """The least of the rounds, by messages in flight and setting."""
    least: dict[int, dict[str, list[float]]] = {count: {} for count in in_flight}
    with both() as (alone, several):
        one, workers = pids_of(alone.target, 1), pids_of(several.target, WORKERS)
        settings = {
            "alone": (alone, one, None),
            "here": (several, workers, 0),
            "there": (several, workers, 1),
        }
        for _ in range(rounds):
            for count in in_flight:
                for name, (broker, pids, at) in settings.items():
                    taken = us_per_message(broker, pids, at, count, seconds)
                    known = least[count].get(name)
                    if known is None or sum(taken) < sum(known):
                        least[count][name] = taken
    return least


def forecast(costs: dict[str, list[float]], cores: int) -> dict[str, float]:
    """How many times what one process does so many cores do; see this module."""
    alone, here, there = (sum(costs[name]) for name in ("alone", "here", "there"))
    anywhere = here / cores + there * (cores - 1) / cores
    busiest = max(costs["there"])
    return {
        "anywhere": round(cores * alone / anywhere, 1),
        "at_their_worker": round(cores * alone / here, 1),
        "one_hot_queue": round(alone / busiest, 1),
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--in-flight", default="1,10,100,1000")
    given = parser.parse_args()
    least = measure(given.rounds, given.seconds, [int(text) for text in given.in_flight.split(",")])
    report = {}
    for count, costs in least.items():
        alone, here, there = (sum(costs[name]) for name in ("alone", "here", "there"))
        report[count] = {
            "us_per_message": {name: [round(each, 2) for each in costs[name]] for name in costs},
            "here_to_alone": round(here / alone, 3),
            "hop_us": round(there - alone, 1),
            "forecast": {cores: forecast(costs, cores) for cores in CORES},
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
