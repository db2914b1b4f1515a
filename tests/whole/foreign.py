"""The differential mode: the AMQP or MQTT part of sequences against another broker, by the same oracle.

`python -m tests.whole.foreign --amqp PORT` (RabbitMQ, user guest) or `--mqtt PORT` (mosquitto), on loopback.
Each mismatch is a difference between that broker and the oracle, that is, between it and SluiceMQ: a defect,
a documented difference, or a mistake of the oracle. They are counted by kind, with the first of each,
as short as it gets. What is left out here, because it is known to differ and each way is permitted:

- mosquitto sends a copy for each of several subscriptions that match; here a client has one at a time;
- mosquitto answers QoS 2 that nobody is subscribed to with 0x00; SluiceMQ with 0x10, as at QoS 1;
- mosquitto has a will wait also where the session ends with the connection; here such wills have no delay;
- mosquitto keeps a client's own will of QoS 0 for its session; here it may come, or not;
- mosquitto publishes no will where a session is taken over and resumed; here nobody takes over;
- RabbitMQ's classic queues tell no x-delivery-count, and a dead letter is `redelivered` as its original was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import Any

from tests.whole.clients import Amqp, Mqtt
from tests.whole.generate import sequence
from tests.whole.queues import Mismatch
from tests.whole.routes import BUILT_IN, filter_matches
from tests.whole.sessions import Copy
from tests.whole.shrink import kind_of, shrink
from tests.whole.whole import EXCHANGES, Whole
from tests.whole.wills import Will
from tests.whole.world import Operation, Skip

QUEUES = ("q1", "q2", "q3", "d1")


class ForeignPorts:
    """As much of a broker process as a sequence without HTTP and without restarts asks for."""

    def __init__(self, amqp: int, mqtt: int) -> None:
        self.ports = {"amqp": amqp, "mqtt": mqtt, "http": 0}
        self.amqp_port, self.mqtt_port = amqp, mqtt


class Foreign(Whole):
    """Nothing is asked over HTTP: what is to be deleted is deleted by the protocols."""

    tells_nobody = False
    counts_deliveries = False

    def do_m_open(self, name: str, *arguments: Any, **options: Any) -> None:
        if name in self.mqtt:
            raise Skip
        will = options.get("will")
        if will is not None and not options.get("lasting"):
            options["will"] = {key: value for key, value in will.items() if key != "delay_s"}
        super().do_m_open(name, *arguments, **options)

    def publish_will(self, name: str, will: Will) -> None:
        super().publish_will(name, will)
        session = self.sessions.sessions.get(name)
        if session is not None:
            ways = [way for way in session.subscriptions if filter_matches(way, will.topic)]
            if ways and not min(will.qos, max(session.subscriptions[way].qos for way in ways)):
                session.pending.append(Copy(will.body, will.topic, 0, False, [], False, any_options=True))

    def do_sub(self, name: str, topic: str, *arguments: Any, **options: Any) -> None:
        session = self.sessions.sessions.get(name)
        if session is not None and {*session.subscriptions, *map(str, session.shared)} - {topic}:
            raise Skip
        super().do_sub(name, topic, *arguments, **options)

    def do_counts(self, name: str, q: str) -> None:
        raise Skip

    def wait_gone(self, name: str) -> None:
        """Nobody tells: give it a moment."""
        time.sleep(0.02)

    def expect(self, wanted: Any, method: str, path: str, body: Any = None) -> Any:
        return None

    def _delete(self) -> None:
        if self.broker.amqp_port:
            self._sweep()
        for queue in list(self.queues):
            self.forget_queue(queue.name)
        self.sessions.retained.clear()

    def _sweep(self) -> None:
        from pamqp import commands

        cleaner = Amqp("A8", self.broker.amqp_port, "plain")
        for name in QUEUES:
            cleaner.call(commands.Queue.Delete(0, name), commands.Queue.DeleteOk)
        for name in EXCHANGES:
            cleaner.call(commands.Exchange.Delete(0, name), commands.Exchange.DeleteOk)
        for binding in self.routes.bindings:
            if binding.source in BUILT_IN and not binding.to_queue and binding.target in BUILT_IN:
                cleaner.call(
                    commands.Exchange.Unbind(
                        0, binding.target, binding.source, binding.key, False, dict(binding.arguments)
                    ),
                    commands.Exchange.UnbindOk,
                )
        cleaner.close()

    def _nothing_left(self) -> None:
        """There is nothing to ask."""

    def clear_away(self) -> bool:
        for client in self.clients():
            client.drop()
        time.sleep(0.05)
        if self.broker.amqp_port:
            self._sweep()
        if self.broker.mqtt_port:
            for name in (*self.client_names, "M9"):
                Mqtt(name, self.broker.mqtt_port, 5, clean=True).disconnect()
            cleaner = Mqtt("M9", self.broker.mqtt_port, 5, clean=True)
            for topic in self.retained_topics:
                cleaner.reason_of(cleaner.publish(topic, b"", 1, retain=True), 1)
            cleaner.disconnect()
        return True


class ForeignHost:
    """As `run.Host`, with a broker that others have started."""

    def __init__(self, ports: ForeignPorts) -> None:
        self.ports = ports
        self.effective: list[Operation] = []

    def run(self, operations: list[Operation], counts: Counter[str] | None = None) -> Mismatch | None:
        world = Foreign(self.ports, counts)
        try:
            world.run(operations)
        except Mismatch as mismatch:
            self.effective = [*world.effective, *([world.attempted] if world.attempted else [])]
            world.clear_away()
            return mismatch
        if self.ports.mqtt_port:
            world.clear_away()
        return None

    def end(self) -> None:
        """It is not ours."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--amqp", type=int, default=0)
    parser.add_argument("--mqtt", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    host = ForeignHost(ForeignPorts(options.amqp, options.mqtt))
    only = "amqp" if options.amqp else "mqtt"
    differences: Counter[str] = Counter()
    end = time.monotonic() + options.minutes * 60
    seed = options.seed
    while time.monotonic() < end:
        operations = sequence(seed, only=only, restarts=0)
        mismatch = host.run(operations)
        if mismatch is not None:
            kind = kind_of(mismatch)
            differences[kind] += 1
            if differences[kind] == 1:
                smaller, last = shrink(operations, mismatch, lambda: host)
                print(f"seed {seed}: {last}", flush=True)
                for operation in smaller:
                    print(f"    {operation}", flush=True)
        seed += 1
    print(f"{seed - options.seed} sequences, differences by kind:")
    for kind, count in differences.most_common():
        print(f"{count:8} {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
