"""What is compared: one entry per row of the result table, with its peer and its target."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.brokers import Broker
from benchmarks.load import amqp, amqp10, jetstream, mqtt
from benchmarks.load.target import Target

SLUICEMQ, RABBITMQ, MOSQUITTO, NATS = "sluicemq", "rabbitmq", "mosquitto", "nats"
# SluiceMQ takes a quorum queue for what it is to clients: a durable queue. Both sides get the same declare.
QUORUM = {"x-queue-type": "quorum"}
LARGE: dict[str, Any] = {
    "size": 64 * 1024,
    "window": 100,
    "batch": 4,
    "prefetch": 200,
    "queue_arguments": QUORUM,
}


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
    fleet_devices_max=1_000,
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
        """The bounds in words."""
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


Run = Callable[[Broker, Effort], dict[str, Any]]


@dataclass(frozen=True)
class Scenario:
    """`run` does one measured run on a started broker. `fresh`: each run gets a broker with empty data."""

    name: str
    title: str
    peer: str
    metrics: tuple[Metric, ...]
    run: Run
    fresh: bool = False
    runs_max: int = 1_000


def _rate(ratio_min: float | None = None, value_min: float | None = None) -> tuple[Metric, ...]:
    rate = Metric("rate", "msg/s", ratio_min=ratio_min, value_min=value_min)
    return rate, Metric("messages_per_cpu_s", "msg/CPU s")


def _less(key: str, unit: str, value_max: float | None = None) -> Metric:
    return Metric(key, unit, more_is_better=False, value_max=value_max)


def _amqp(name: str, title: str, ratio_min: float, clients: Any = amqp, **load: Any) -> Scenario:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        return amqp.run_together(broker.target, amqp.AmqpLoad(seconds=effort.seconds, **load), clients)

    return Scenario(name, title, RABBITMQ, _rate(ratio_min), run)


def _jetstream(name: str, title: str, **load: Any) -> Scenario:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        wanted = amqp.AmqpLoad(seconds=effort.seconds, queue_arguments=QUORUM, **load)
        return (jetstream if broker.name == NATS else amqp).run_together(broker.target, wanted)

    return Scenario(name, title, NATS, _rate(1.0), run)


def _drain(broker: Broker, effort: Effort) -> dict[str, Any]:
    load = amqp.AmqpLoad(seconds=effort.drain_publish_seconds, messages=effort.drain_messages)
    return amqp.run_publish_then_drain(broker.target, load)


def _mqtt(qos: int, subscribers: int) -> Scenario:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        load = mqtt.MqttLoad(qos=qos, subscribers=subscribers, seconds=effort.seconds)
        return mqtt.run(broker.target, load)

    title = f"plain topic, 100 B, subscribers: {subscribers}"
    return Scenario(f"mqtt-qos{qos}-1to{subscribers}", title, MOSQUITTO, _rate(4.0), run)


def _fleet(
    name: str, title: str, metrics: tuple[Metric, ...], devices: int, window: int = 1, **load: Any
) -> Scenario:
    def run(broker: Broker, effort: Effort) -> dict[str, Any]:
        count = min(devices, effort.fleet_devices_max)
        return mqtt.run_fleet(broker.target, mqtt.FleetLoad(count, window, seconds=effort.seconds, **load))

    return Scenario(name, title, "" if "queue" in load else MOSQUITTO, metrics, run)


def _to_amqp(devices: int) -> Run:
    return lambda broker, effort: mqtt.run_to_amqp(
        broker.target, mqtt.QueueLoad(effort.seconds, broker.name == RABBITMQ, devices, QUORUM)
    )


def _backlog(broker: Broker, messages: int, size: int) -> dict[str, Any]:
    def restart() -> tuple[Target, float]:
        broker.stop()
        started = time.monotonic()
        broker.start()
        return broker.target, started

    return amqp.run_backlog(broker.target, messages, size, restart if broker.can_restart else None)


_RESTART = (_less("restart_serving_s", "s", 5.0), _less("restart_connect_s", "s"))
_DRAIN = (Metric("rate", "msg/s"), Metric("drain_rate", "msg/s"))
_LATENCY = (
    _less("p50_ms", "ms", 1.0),
    _less("p95_ms", "ms"),
    _less("p99_ms", "ms", 10.0),
    _less("p999_ms", "ms"),
    _less("confirm_p50_ms", "ms"),
    Metric("confirm_p99_ms", "ms", more_is_better=False, ratio_min=1.0),
)
_IDLE = (_less("rss_kb_per_connection", "KB", 20.0), _less("rss_kb_per_subscribed_connection", "KB"))
_QUORUM_TITLE = "durable, confirms, 1 producer, 1 consumer; quorum queue"
_TOPIC_TITLE = "durable, confirms, through a topic exchange with 1 binding; classic queue"
_VARIED_TITLE = "100 B, each message with an ID of its own, a time, a header"
_LINKS_TITLE = "AMQP 1.0, durable, 50 links of one session, 1 in flight on each"
_TRANSIENT: dict[str, Any] = {"durable": False, "confirms": False, "no_ack": True, "flow_window": 50_000}
_FAN_IN_TITLE = "1,000 publishers, one QoS 1 message each at a time, 1 subscriber"
_FLEET_TITLE = "500 devices, own topics, JSON of differing size, 1 in flight each, 1 subscriber"
_TO_AMQP_TITLE = "MQTT QoS 1 into a durable queue, AMQP consumer; peer: MQTT plug-in, quorum queue"

SCENARIOS = (
    _amqp("amqp-durable-100B", _QUORUM_TITLE, 1.5, queue_arguments=QUORUM),
    _amqp("amqp-durable-1KB", "the same with 1 KB bodies", 1.5, size=1_024, queue_arguments=QUORUM),
    _amqp("amqp-durable-64KB", "the same with 64 KiB bodies", 1.0, **LARGE),
    _jetstream("jetstream-100B", "durable, acknowledged; the peer over its own protocol, a stream in files"),
    _jetstream("jetstream-1KB", "the same with 1 KB bodies", size=1_024),
    _amqp("amqp-topic-1", _TOPIC_TITLE, 1.0, topic_bindings=1),
    _amqp("amqp-topic-1000", "the same with 1,000 bindings", 1.0, topic_bindings=1_000),
    _amqp("amqp-fanout-10", "durable, confirms, to 10 classic queues, one of them consumed", 1.0, fanout=10),
    _amqp("amqp-durable-varied", _VARIED_TITLE, 1.5, varied=True, queue_arguments=QUORUM),
    _amqp("amqp10-durable-100B", "AMQP 1.0, 1 producer, 1 consumer", 1.5, amqp10, queue_arguments=QUORUM),
    _amqp("amqp10-durable-1KB", "the same with 1 KB bodies", 1.5, amqp10, size=1_024, queue_arguments=QUORUM),
    _amqp("amqp10-durable-varied", _VARIED_TITLE, 1.5, amqp10, varied=True, queue_arguments=QUORUM),
    _amqp("amqp10-links-50", _LINKS_TITLE, 1.2, amqp10, links=50, queue_arguments=QUORUM),
    _amqp("amqp10-transient-100B", "settled both ways, nothing stored", 2.0, amqp10, **_TRANSIENT),
    Scenario(
        "amqp10-latency-500",
        "AMQP 1.0, durable, accepted, 500 msg/s, end to end; quorum queue",
        RABBITMQ,
        (Metric("p50_ms", "ms", more_is_better=False, ratio_min=1.0), *_LATENCY[1:]),
        lambda broker, effort: amqp.run_latency(
            broker.target, amqp.LatencyLoad(seconds=effort.latency_seconds, queue_arguments=QUORUM), amqp10
        ),
    ),
    Scenario(
        "amqp-publish-then-drain",
        "durable, confirms, publish all, then consume all, 100 B; classic durable queue",
        RABBITMQ,
        (*_rate(1.5), Metric("publish_rate", "msg/s"), Metric("drain_rate", "msg/s")),
        _drain,
    ),
    _amqp("amqp-transient-100B", "no confirms, no acks, nothing stored", 3.0, **_TRANSIENT),
    *(_mqtt(qos, subscribers) for qos in (0, 1) for subscribers in (1, 5)),
    _fleet("mqtt-fanin-1000", _FAN_IN_TITLE, _rate(1.3), 1_000, topic="/all"),
    _fleet("mqtt-fleet-1", _FLEET_TITLE, _rate(1.5), 500),
    _fleet("mqtt-fleet-10", "the same, 10 in flight", _rate(2.5), 500, 10),
    _fleet("mqtt-fleet-5000", "5,000 devices, 1 in flight each", _rate(1.2), 5_000),
    _fleet(
        "mqtt-fleet-to-10",
        "500 devices, 10 in flight each, 10 subscribers",
        _rate(1.5),
        500,
        10,
        subscribers=10,
    ),
    _fleet(
        "mqtt-fleet-queue",
        "500 devices, 10 in flight each, to a durable queue",
        _rate(None, 60_000),
        500,
        10,
        queue="fleet",
    ),
    _fleet("mqtt-fleet-queue-1", "the same, 1 in flight", _rate(None, 25_000), 500, queue="fleet"),
    _fleet("mqtt-fleet-queue-50", "the same, 50 devices", _rate(None, 20_000), 50, queue="fleet"),
    Scenario(
        "mqtt-commands",
        "1 publisher, each message to another of 1,000 subscribers",
        MOSQUITTO,
        _rate(2.0),
        lambda broker, effort: mqtt.run_commands(broker.target, effort.seconds),
    ),
    Scenario(
        "mqtt-reconnect-storm",
        "5,000 sessions that last are cut and come back",
        MOSQUITTO,
        (Metric("rate", "connects/s", ratio_min=1.0),),
        lambda broker, effort: mqtt.run_storm(broker.target, effort.idle_connections),
        fresh=True,
    ),
    Scenario("queue-mqtt-to-amqp", _TO_AMQP_TITLE, RABBITMQ, _rate(1.2, 30_000), _to_amqp(0)),
    Scenario(
        "queue-mqtt-devices",
        "the same with 1,000 topics that take turns",
        RABBITMQ,
        _rate(1.2),
        _to_amqp(1_000),
    ),
    Scenario(
        "latency-500",
        "durable, confirmed, 500 msg/s, end to end; quorum queue",
        RABBITMQ,
        _LATENCY,
        lambda broker, effort: amqp.run_latency(
            broker.target, amqp.LatencyLoad(seconds=effort.latency_seconds, queue_arguments=QUORUM)
        ),
    ),
    Scenario(
        "backlog-1M-1KB",
        "1 M x 1 KB waiting: memory, restart, drain; classic durable queue",
        RABBITMQ,
        (_less("rss_mb", "MB", 400.0), *_RESTART, *_DRAIN),
        lambda broker, effort: _backlog(broker, effort.backlog_messages, 1_024),
        fresh=True,
        runs_max=1,
    ),
    Scenario(
        "backlog-5M-100B",
        "5 M x 100 B waiting: memory, restart, drain; classic durable queue",
        RABBITMQ,
        (_less("rss_mb", "MB", 500.0), *_RESTART, *_DRAIN),
        lambda broker, effort: _backlog(broker, effort.deep_backlog_messages, 100),
        fresh=True,
        runs_max=1,
    ),
    Scenario(
        "idle-mqtt-5000",
        "memory of idle connections",
        MOSQUITTO,
        _IDLE,
        lambda broker, effort: mqtt.run_idle(broker.target, effort.idle_connections),
        fresh=True,
        runs_max=1,
    ),
)
