"""MQTT in, AMQP out: one QoS 1 publisher into a durable queue, one AMQP consumer of it.

`python -m benchmarks.load.bridge --mqtt-port 1883 --amqp-port 5672 --topic '$queue/bench'`
"""

import argparse
import os
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load import amqp, amqp_wire, mqtt
from benchmarks.load.command_line import add_target_options, print_report, target_from
from benchmarks.load.crew import Crew, cpu_percent, span_s
from benchmarks.load.target import Target, broker_cpu

PUBLISHER, CONSUMER = "publisher", "consumer"


@dataclass(frozen=True)
class BridgeLoad:
    """`bind_topic`: the queue is bound on amq.topic (RabbitMQ); else the topic `$queue/<queue>` names it."""

    size: int = 100
    seconds: float = 5.0
    window: int = 5_000
    bind_topic: bool = False
    devices: int = 0  # that publish, each to a topic of its own; 0: all to one topic
    queue_arguments: dict[str, Any] = field(default_factory=dict)


def run(target: Target, load: BridgeLoad) -> dict[str, Any]:
    """`rate` is messages published, acknowledged and consumed, per second."""
    queue = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    control = amqp_wire.AmqpClient(target.host, target.amqp_port, wait_s=60)
    control.declare_queue(queue, durable=True, arguments=load.queue_arguments)
    if load.bind_topic:
        control.bind_queue(queue, "amq.topic", f"{queue}.*" if load.devices else queue)
    topic = queue if load.bind_topic else f"$queue/{queue}"
    consume = amqp.AmqpLoad(size=load.size, seconds=load.seconds)
    publish = mqtt.MqttLoad(
        size=load.size,
        qos=1,
        seconds=load.seconds,
        window=load.window,
        flow_window=1 << 60,
        devices=load.devices,
    )
    crew = Crew()
    crew.add(CONSUMER, amqp.consumer, target, consume, queue)
    crew.add(PUBLISHER, mqtt.publisher, target, publish, topic)
    with broker_cpu(target) as cpu:
        reports = crew.run(consume.limit_s)
    control.delete_queue(queue)
    control.close()
    seconds = span_s(reports)
    received = reports[CONSUMER]["count"]
    return {
        "messages": received,
        "seconds": round(seconds, 3),
        "rate": round(received / seconds),
        "lost": reports[PUBLISHER]["sent"] - received,
        "client_cpu_percent": cpu_percent(reports, seconds),
        "broker_cpu_percent": cpu.percent(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_target_options(parser)
    parser.add_argument("--size", type=int, default=100, help="payload bytes")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to publish")
    parser.add_argument("--window", type=int, default=5_000, help="unacknowledged messages")
    parser.add_argument("--bind-topic", action="store_true", help="bind the queue on amq.topic (RabbitMQ)")
    parser.add_argument("--devices", type=int, default=0, help="topics, one for each")
    given = parser.parse_args()
    load = BridgeLoad(given.size, given.seconds, given.window, given.bind_topic, given.devices)
    print_report("queue-mqtt-to-amqp", target_from(given), run(target_from(given), load))


if __name__ == "__main__":
    main()
