"""The differential mode: the AMQP or MQTT part of sequences against another broker, by the same oracle.

`python -m tests.whole.foreign --amqp PORT` (RabbitMQ, user guest) or `--mqtt PORT` (mosquitto), on loopback.
Each mismatch is a difference between that broker and the oracle, that is, between it and SluiceMQ: a defect,
a documented difference, or a mistake of the oracle. They are counted by kind, with the first of each,
as short as it gets. What is left out here, because it is known to differ and each way is permitted:

- mosquitto sends a copy for each of several subscriptions that match; here a client has one at a time;
- mosquitto answers QoS 2 that nobody is subscribed to with 0x00; SluiceMQ with 0x10, as at QoS 1;
- mosquitto has a will wait also where the session ends with the connection; here such wills have no delay;
- mosquitto keeps a client's own will of QoS 0 for its session, also as a member of `$share`; here it may
  come, or not;
- mosquitto publishes no will where a session is taken over and resumed; here nobody takes over;
- mosquitto counts what is too large for a client as sent: its topic has an alias that the client was never
  told, and at QoS 1 and 2 it takes the room of Receive Maximum for ever; here a client with a Maximum Packet
  Size has neither;
- RabbitMQ's classic queues tell no x-delivery-count, and a dead letter is `redelivered` as its original was;
- RabbitMQ routes what a transaction publishes at the publish; here nothing changes before the commit;
- RabbitMQ drops the head also of the highest priority for what is of the lowest;
- RabbitMQ refuses `exclusive` where the queue has a single active consumer (403);
- RabbitMQ takes a mandatory reply as routed, also where the requester is gone.
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
from tests.whole.sessions import Copy, Session
from tests.whole.shrink import kind_of, shrink
from tests.whole.whole import EXCHANGES, Whole
from tests.whole.wills import Will, Wills
from tests.whole.world import Operation, Skip

QUEUES = ("q1", "q2", "q3", "d1")
CHANGES = {"declare", "delete", "xdeclare", "xdelete", "bind", "unbind", "cancel", "a_close"}  # of routes


class ForeignPorts:
    """As much of a broker process as a sequence without HTTP and without restarts asks for."""

    def __init__(self, amqp: int, mqtt: int) -> None:
        self.ports = {"amqp": amqp, "mqtt": mqtt, "http": 0}
        self.amqp_port, self.mqtt_port = amqp, mqtt
        self.config: dict[str, Any] = {}


class CoarseWills(Wills):
    """mosquitto counts delays in whole seconds of its clock."""

    def leave(self, client: str, session: Session | None) -> Will | None:
        will = super().leave(client, session)
        if client in self.waiting:
            self.waiting[client].low -= 1
            self.waiting[client].high += 1
        return will


class Foreign(Whole):
    """Nothing is asked over HTTP: what is to be deleted is deleted by the protocols."""

    tells_nobody = False
    counts_deliveries = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.wills = CoarseWills()

    def do_m_open(self, name: str, *arguments: Any, **options: Any) -> None:
        if name in self.mqtt:
            raise Skip
        will = options.get("will")
        if will is not None and not options.get("lasting"):
            options["will"] = {key: value for key, value in will.items() if key != "delay_s"}
        if options.get("packet_maximum"):
            options |= {"alias_maximum": 0, "receive_maximum": 0}
        super().do_m_open(name, *arguments, **options)

    def publish_will(self, name: str, will: Will) -> None:
        super().publish_will(name, will)
        session = self.sessions.sessions.get(name)
        if session is None:
            return
        all_ways = [*session.subscriptions.items(), *((key[1], way) for key, way in session.shared.items())]
        granted = [way.qos for topic_filter, way in all_ways if filter_matches(topic_filter, will.topic)]
        if granted and not min(will.qos, max(granted)):
            session.pending.append(Copy(will.body, will.topic, 0, False, [], False, any_options=True))

    def do_sub(self, name: str, topic: str, *arguments: Any, **options: Any) -> None:
        session = self.sessions.sessions.get(name)
        if session is not None and {*session.subscriptions, *map(str, session.shared)} - {topic}:
            raise Skip
        super().do_sub(name, topic, *arguments, **options)

    def do_counts(self, name: str, q: str) -> None:
        raise Skip

    def do_declare(self, name: str, q: str, *arguments: Any, **wanted: Any) -> None:
        if wanted.get("max_length") is not None and wanted.get("overflow", "drop-head") == "drop-head":
            wanted.pop("max_priority", None)
        super().do_declare(name, q, *arguments, **wanted)

    def do_consume(self, name: str, q: str, *arguments: Any, **options: Any) -> Any:
        queue = self.queues.queues.get(q)
        if options.get("exclusive") and queue is not None and queue.settings.single_active:
            raise Skip
        return super().do_consume(name, q, *arguments, **options)

    def do_answer(self, name: str, i: int = 0, n: int = 1, mandatory: bool = False) -> None:
        super().do_answer(name, i, n)

    def step(self, operation: Operation) -> None:
        published = any(transaction.publishes for transaction in self.transactions.values())
        if published and operation[0] in CHANGES:
            return
        super().step(operation)

    def wait_gone(self, name: str) -> None:
        """Nobody tells: give it a moment."""
        time.sleep(0.1)

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
