"""What is compared: one entry per row of the result table, with its peer and its target."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.brokers import Broker, Mosquitto, RabbitMQ
from benchmarks.load import amqp, backlog, bridge, commands, fanin, fleet, idle, latency, mqtt, storm
from benchmarks.load.target import Target

# SluiceMQ takes a quorum queue for what it is to clients: a durable queue. Both sides get the same declare.
QUORUM = {"x-queue-type": "quorum"}
TRANSIENT_FLOW_WINDOW = 50_000


@dataclass(frozen=True)
class Effort:
    """How much work a comparison does; the quick one fits into three minutes."""

    runs: int = 3
    seconds: float = 4.0
    latency_seconds: float = 8.0
    drain_messages: int = 1_000_000
    drain_publish_seconds: float = 45.0  # a slow publisher stops here, wherever it is
    backlog_messages: int = 1_000_000
    deep_backlog_messages: int = 5_000_000
    idle_connections: int = 5_000
    fleet_devices_max: int = 5_000
    restart_brokers: bool = True


FULL = Effort()
QUICK = Effort(
    seconds=0.8,
    latency_seconds=1.5,
    drain_messages=20_000,
    backlog_messages=30_000,
    deep_backlog_messages=100_000,
    idle_connections=1_000,
    fleet_devices_max=500,
    restart_brokers=False,
)


@dataclass(frozen=True)
class Metric:
    """One compared figure. The target is met when any of the given bounds holds."""

    key: str
    unit: str
    more_is_better: bool = True
    ratio_min: float | None = None
    value_min: float | None = None
    value_max: float | None = None

    def target(self) -> str:
        bounds = []
        if self.ratio_min is not None:
            bounds.append(f">= {self.ratio_min:g}x")
        if self.value_min is not None:
            bounds.append(f">= {self.value_min:,.0f}")
        if self.value_max is not None:
            bounds.append(f"<= {self.value_max:g}")
        return " or ".join(bounds)

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """None when nothing can be said (no target, or only a ratio and no peer)."""
        answers = []
        if self.ratio_min is not None and ratio is not None:
            answers.append(ratio >= self.ratio_min)
        if self.value_min is not None:
            answers.append(ours >= self.value_min)
        if self.value_max is not None:
            answers.append(ours <= self.value_max)
        return any(answers) if answers else None


@dataclass(frozen=True)
class Scenario:
    """`run` does one measured run on a started broker. `fresh`: each run gets a broker with empty data."""

    name: str
    title: str
    peer: str
    metrics: tuple[Metric, ...]
    run: Callable[[Broker, Effort], dict[str, Any]]
    fresh: bool = False
    runs_max: int = 1_000


def _rate(ratio_min: float, value_min: float | None = None) -> tuple[Metric, ...]:
    return (Metric("rate", "msg/s", ratio_min=ratio_min, value_min=value_min),)


def _amqp_durable(size: int, *, varied: bool = False) -> Callable[[Broker, Effort], dict[str, Any]]:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        load = amqp.AmqpLoad(size=size, seconds=effort.seconds, varied=varied, queue_arguments=QUORUM)
        return amqp.run_together(broker.target, load)

    return run


def _amqp_exchange(*, topic_bindings: int = 0, fanout: int = 0) -> Callable[[Broker, Effort], dict[str, Any]]:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        load = amqp.AmqpLoad(seconds=effort.seconds, topic_bindings=topic_bindings, fanout=fanout)
        return amqp.run_together(broker.target, load)

    return run


def _amqp_publish_then_drain(broker: Broker, effort: Effort) -> dict[str, Any]:
    load = amqp.AmqpLoad(size=100, seconds=effort.drain_publish_seconds, messages=effort.drain_messages)
    return amqp.run_publish_then_drain(broker.target, load)


def _amqp_transient(broker: Broker, effort: Effort) -> dict[str, Any]:
    load = amqp.AmqpLoad(
        size=100,
        seconds=effort.seconds,
        durable=False,
        confirms=False,
        no_ack=True,
        flow_window=TRANSIENT_FLOW_WINDOW,
    )
    return amqp.run_together(broker.target, load)


def _mqtt(qos: int, subscribers: int) -> Callable[[Broker, Effort], dict[str, Any]]:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        load = mqtt.MqttLoad(qos=qos, subscribers=subscribers, seconds=effort.seconds)
        return mqtt.run(broker.target, load)

    return run


def _mqtt_fanin(broker: Broker, effort: Effort) -> dict[str, Any]:
    return fanin.run(broker.target, fanin.FanInLoad(publishers=1_000, seconds=effort.seconds))


def _fleet(devices: int, window: int, subscribers: int = 1) -> Callable[[Broker, Effort], dict[str, Any]]:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        load = fleet.FleetLoad(min(devices, effort.fleet_devices_max), window, subscribers, effort.seconds)
        return fleet.run(broker.target, load)

    return run


def _fleet_queue(devices: int, in_flight: int) -> Callable[[Broker, Effort], dict[str, Any]]:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        return fleet.run(broker.target, fleet.FleetLoad(devices, in_flight, 0, effort.seconds, queue="fleet"))

    return run


def _commands(broker: Broker, effort: Effort) -> dict[str, Any]:
    return commands.run(broker.target, commands.CommandLoad(seconds=effort.seconds))


def _storm(broker: Broker, effort: Effort) -> dict[str, Any]:
    return storm.run(broker.target, storm.StormLoad(effort.idle_connections))


def _queue_mqtt_to_amqp(devices: int) -> Callable[[Broker, Effort], dict[str, Any]]:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        load = bridge.BridgeLoad(
            seconds=effort.seconds,
            bind_topic=broker.name == RabbitMQ.name,
            devices=devices,
            queue_arguments=QUORUM,
        )
        return bridge.run(broker.target, load)

    return run


def _latency(broker: Broker, effort: Effort) -> dict[str, Any]:
    load = latency.LatencyLoad(rate=500, seconds=effort.latency_seconds, queue_arguments=QUORUM)
    return latency.run(broker.target, load)


def _backlog(broker: Broker, effort: Effort) -> dict[str, Any]:
    return backlog.run(broker.target, backlog.BacklogLoad(effort.backlog_messages), _restart(broker))


def _deep_backlog(broker: Broker, effort: Effort) -> dict[str, Any]:
    return backlog.run(
        broker.target, backlog.BacklogLoad(effort.deep_backlog_messages, 100), _restart(broker)
    )


def _restart(broker: Broker) -> Callable[[], tuple[Target, float]]:
    def restart() -> tuple[Target, float]:
        broker.stop()
        started = time.monotonic()
        broker.start()
        return broker.target, started

    return restart


def _idle(broker: Broker, effort: Effort) -> dict[str, Any]:
    return idle.run(broker.target, idle.IdleLoad(effort.idle_connections))


SCENARIOS = (
    Scenario(
        "amqp-durable-100B",
        "durable, confirms, 1 producer, 1 consumer; quorum queue",
        RabbitMQ.name,
        _rate(1.5),
        _amqp_durable(100),
    ),
    Scenario(
        "amqp-durable-1KB",
        "the same with 1 KB bodies",
        RabbitMQ.name,
        _rate(1.5),
        _amqp_durable(1_024),
    ),
    Scenario(
        "amqp-topic-1",
        "durable, confirms, through a topic exchange with 1 binding; classic queue",
        RabbitMQ.name,
        _rate(1.0),
        _amqp_exchange(topic_bindings=1),
    ),
    Scenario(
        "amqp-topic-1000",
        "the same with 1,000 bindings",
        RabbitMQ.name,
        _rate(1.0),
        _amqp_exchange(topic_bindings=1_000),
    ),
    Scenario(
        "amqp-fanout-10",
        "durable, confirms, to 10 classic queues, of which one is consumed",
        RabbitMQ.name,
        _rate(1.0),
        _amqp_exchange(fanout=10),
    ),
    Scenario(
        "amqp-durable-varied",
        "100 B, each message with an ID of its own, a time, a header",
        RabbitMQ.name,
        _rate(1.5),
        _amqp_durable(100, varied=True),
    ),
    Scenario(
        "amqp-publish-then-drain",
        "durable, confirms, publish all, then consume all, 100 B; classic durable queue",
        RabbitMQ.name,
        (
            *_rate(1.5),
            Metric("publish_rate", "msg/s"),
            Metric("drain_rate", "msg/s"),
        ),
        _amqp_publish_then_drain,
    ),
    Scenario(
        "amqp-transient-100B",
        "no confirms, no acks, nothing stored",
        RabbitMQ.name,
        _rate(3.0),
        _amqp_transient,
    ),
    Scenario("mqtt-qos0-1to1", "plain topic, 100 B", Mosquitto.name, _rate(4.0), _mqtt(0, 1)),
    Scenario("mqtt-qos0-1to5", "plain topic, 100 B, 5 subscribers", Mosquitto.name, _rate(4.0), _mqtt(0, 5)),
    Scenario("mqtt-qos1-1to1", "plain topic, 100 B", Mosquitto.name, _rate(4.0), _mqtt(1, 1)),
    Scenario("mqtt-qos1-1to5", "plain topic, 100 B, 5 subscribers", Mosquitto.name, _rate(4.0), _mqtt(1, 5)),
    Scenario(
        "mqtt-fanin-1000",
        "1,000 publishers, one QoS 1 message each at a time, 1 subscriber",
        Mosquitto.name,
        _rate(1.3),
        _mqtt_fanin,
    ),
    Scenario(
        "mqtt-fleet-1",
        "500 devices, own topics, JSON of differing size, 1 in flight each, 1 subscriber",
        Mosquitto.name,
        _rate(1.2),
        _fleet(500, 1),
    ),
    Scenario("mqtt-fleet-10", "the same, 10 in flight", Mosquitto.name, _rate(1.5), _fleet(500, 10)),
    Scenario(
        "mqtt-fleet-5000", "5,000 devices, 1 in flight each", Mosquitto.name, _rate(1.2), _fleet(5_000, 1)
    ),
    Scenario(
        "mqtt-fleet-to-10",
        "500 devices, 10 in flight each, 10 subscribers",
        Mosquitto.name,
        _rate(1.5),
        _fleet(500, 10, 10),
    ),
    Scenario(
        "mqtt-fleet-queue",
        "500 devices, 10 in flight each, to a durable queue",
        "",
        (Metric("rate", "msg/s", value_min=60_000),),
        _fleet_queue(500, 10),
    ),
    Scenario(
        "mqtt-fleet-queue-1",
        "the same, 1 in flight",
        "",
        (Metric("rate", "msg/s", value_min=25_000),),
        _fleet_queue(500, 1),
    ),
    Scenario(
        "mqtt-fleet-queue-50",
        "the same, 50 devices",
        "",
        (Metric("rate", "msg/s", value_min=20_000),),
        _fleet_queue(50, 1),
    ),
    Scenario(
        "mqtt-commands",
        "1 publisher, each message to another of 1,000 subscribers",
        Mosquitto.name,
        _rate(2.0),
        _commands,
    ),
    Scenario(
        "mqtt-reconnect-storm",
        "5,000 sessions that last are cut and come back",
        Mosquitto.name,
        (Metric("rate", "connects/s", ratio_min=1.0),),
        _storm,
        fresh=True,
    ),
    Scenario(
        "queue-mqtt-to-amqp",
        "MQTT QoS 1 into a durable queue, AMQP consumer; peer: MQTT plug-in, quorum queue",
        RabbitMQ.name,
        _rate(1.2, value_min=30_000),
        _queue_mqtt_to_amqp(0),
    ),
    Scenario(
        "queue-mqtt-devices",
        "the same with 1,000 topics that take turns",
        RabbitMQ.name,
        _rate(1.2),
        _queue_mqtt_to_amqp(1_000),
    ),
    Scenario(
        "latency-500",
        "durable, confirmed, 500 msg/s, end to end; quorum queue",
        RabbitMQ.name,
        (
            Metric("p50_ms", "ms", more_is_better=False, value_max=1.0),
            Metric("p95_ms", "ms", more_is_better=False),
            Metric("p99_ms", "ms", more_is_better=False, value_max=10.0),
            Metric("p999_ms", "ms", more_is_better=False),
            Metric("confirm_p50_ms", "ms", more_is_better=False),
            Metric("confirm_p99_ms", "ms", more_is_better=False),
        ),
        _latency,
    ),
    Scenario(
        "backlog-1M-1KB",
        "1 M x 1 KB waiting: memory, restart, drain; classic durable queue",
        RabbitMQ.name,
        (
            Metric("rss_mb", "MB", more_is_better=False, value_max=400.0),
            Metric("restart_serving_s", "s", more_is_better=False, value_max=5.0),
            Metric("restart_connect_s", "s", more_is_better=False),
            Metric("rate", "msg/s"),
            Metric("drain_rate", "msg/s"),
        ),
        _backlog,
        fresh=True,
        runs_max=1,
    ),
    Scenario(
        "backlog-5M-100B",
        "5 M x 100 B waiting: memory, restart, drain; classic durable queue",
        RabbitMQ.name,
        (
            Metric("rss_mb", "MB", more_is_better=False, value_max=500.0),
            Metric("restart_serving_s", "s", more_is_better=False, value_max=5.0),
            Metric("rate", "msg/s"),
            Metric("drain_rate", "msg/s"),
        ),
        _deep_backlog,
        fresh=True,
        runs_max=1,
    ),
    Scenario(
        "idle-mqtt-5000",
        "memory of idle connections",
        Mosquitto.name,
        (
            Metric("rss_kb_per_connection", "KB", more_is_better=False, value_max=20.0),
            Metric("rss_kb_per_subscribed_connection", "KB", more_is_better=False),
        ),
        _idle,
        fresh=True,
        runs_max=1,
    ),
)
