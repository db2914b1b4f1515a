"""Publishers and consumers that go on through every crash, each a thread on a bare socket."""

import abc
import random
import struct
import threading
import time
from collections import deque

import httpx
from pamqp import commands

from tests.crash.ledger import Delivery, Ledger
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_amqp import RawAmqp
from tests.waiting import pass_time, until

QUEUE = "work"
BATCH = 10
PAUSE_S = 0.02
PADDING = b" " + b"." * 80
PERSISTENT = b"\x10\x00\x02"  # property flags and delivery-mode 2
HOLD_EVERY = 40  # consumers keep every 40th message unacked, to see it again after the crash
GONE = (OSError, TimeoutError, AssertionError, struct.error)


class Stage:
    """What the clients share: the broker of the moment, and when to go on, to drain and to stop."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger) -> None:
        self.broker = broker
        self.ledger = ledger
        self.life = 0
        self.serving = threading.Event()
        self.publishing = threading.Event()
        self.draining = threading.Event()
        self.stopped = threading.Event()

    def kill(self) -> None:
        """End the life of the broker; what clients meet from here on is no failure of it."""
        self.ledger.killed_at[self.life] = time.monotonic()
        self.serving.clear()
        self.broker.kill9()

    def start(self) -> None:
        """Begin the next life, and let the clients connect."""
        self.broker.start()
        self.life += 1
        self.serving.set()


def wait_for_a_while(rng: random.Random, least_s: float, most_s: float) -> None:
    """Let the broker work until a moment that nothing it does can choose."""
    pass_time(rng.uniform(least_s, most_s))


def wait_for_groups(broker: BrokerProcess, *wanted: str) -> None:
    """Return once the groups are there: a later one would not be given what the others are done with."""

    def groups() -> list[str]:
        answer = httpx.get(f"{broker.http_url}/api/v1/queues/{QUEUE}", trust_env=False, timeout=20)
        return list(answer.json()["groups"])

    until(lambda: set(wanted) <= set(groups()), told=groups)


class Client(threading.Thread, abc.ABC):
    """Connects whenever the broker serves; `work` runs until the connection breaks."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stage = stage
        self.ledger = stage.ledger

    def run(self) -> None:
        while not self.stage.stopped.is_set():
            if not self.stage.serving.wait(0.1):
                continue
            life = self.stage.life
            try:
                self.work(life)
            except GONE as error:
                if life not in self.ledger.killed_at:
                    self.ledger.fail(f"{self.name} lost its connection in life {life}: {error!r}")
                    return

    @abc.abstractmethod
    def work(self, life: int) -> None:
        """Connect to the broker of this life and use it; raises one of GONE when it breaks."""


class Publisher(Client):
    """Sends batches, at most two unconfirmed; what a crash leaves unconfirmed is never sent again."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        self._number = 0

    def next_batch(self) -> list[str]:
        numbers = range(self._number, self._number + BATCH)
        self._number += BATCH
        bodies = [f"{self.name}-{number}" for number in numbers]
        self.ledger.send(bodies)
        return bodies

    def publish_in_batches(self, send, wait_confirmed) -> None:
        """`send(bodies)` and `wait_confirmed(bodies)`, in turn, until publishing ends."""
        unconfirmed: deque[list[str]] = deque()
        self.stage.publishing.wait()
        while not self.stage.draining.wait(PAUSE_S):
            batch = self.next_batch()
            send(batch)
            unconfirmed.append(batch)
            if len(unconfirmed) > 1:
                wait_confirmed(unconfirmed[0])
                self.ledger.confirm(unconfirmed.popleft())
        for batch in unconfirmed:
            wait_confirmed(batch)
            self.ledger.confirm(batch)
        self.stage.stopped.wait()


class AmqpPublisher(Publisher):
    def work(self, life: int) -> None:
        connection = RawAmqp(self.stage.broker.amqp_port)
        connection.open_channel(confirm=True)
        wanted = reached = 0  # delivery tags: to wait for, and below which all are confirmed
        singles: set[int] = set()

        def send(bodies: list[str]) -> None:
            for body in bodies:
                connection.publish(1, QUEUE, body.encode() + PADDING, PERSISTENT)

        def wait_confirmed(bodies: list[str]) -> None:
            nonlocal wanted, reached
            wanted += len(bodies)
            while reached < wanted:
                ack = connection.expect(commands.Basic.Ack)
                if ack.multiple:
                    reached = max(reached, ack.delivery_tag)
                else:
                    singles.add(ack.delivery_tag)
                while reached + 1 in singles:
                    reached += 1
                    singles.remove(reached)

        self.publish_in_batches(send, wait_confirmed)
        connection.drop()


class MqttPublisher(Publisher):
    def work(self, life: int) -> None:
        connection = wire.RawMqtt(self.stage.broker.mqtt_port, client_id=self.name)
        packet_ids: deque[int] = deque()
        next_id = 1

        def send(bodies: list[str]) -> None:
            nonlocal next_id
            packets = []
            for body in bodies:
                payload = body.encode() + PADDING
                packets.append(wire.publish(f"$queue/{QUEUE}/m", payload, qos=1, packet_id=next_id))
                packet_ids.append(next_id)
                next_id = next_id % 60_000 + 1
            connection.send_bytes(b"".join(packets))

        def wait_confirmed(bodies: list[str]) -> None:
            for body in bodies:
                puback = connection.expect(wire.PUBACK).body
                if struct.unpack_from(">H", puback)[0] != packet_ids.popleft():
                    self.ledger.fail(f"PUBACK out of order at {body}")
                if len(puback) > 2 and puback[2] >= 0x80:
                    self.ledger.fail(f"{body} refused with {puback[2]:#x}")

        self.publish_in_batches(send, wait_confirmed)
        connection.drop()


class Consumer(Client):
    """Acks what it gets, except a few it holds for the next life; once draining, all."""

    def __init__(self, stage: Stage, name: str, group: str) -> None:
        super().__init__(stage, name)
        self.group = group

    def take(self, life: int, payload: bytes, redelivered: bool) -> tuple[str, bool]:
        """Note a delivery; its body, and whether to ack it now."""
        body = payload.split(b" ", 1)[0].decode()
        self.ledger.deliver(Delivery(self.group, self.name, life, time.monotonic(), body, redelivered))
        number = int(body.rsplit("-", 1)[1])
        hold = number % HOLD_EVERY == 0 and not redelivered and not self.stage.draining.is_set()
        return body, not hold


class AmqpConsumer(Consumer):
    def work(self, life: int) -> None:
        connection = RawAmqp(self.stage.broker.amqp_port)
        connection.open_channel()
        connection.call(1, commands.Basic.Qos(0, 100, False), commands.Basic.QosOk)
        consume = commands.Basic.Consume(0, QUEUE, "c", arguments={"x-consumer-group": self.group})
        connection.call(1, consume, commands.Basic.ConsumeOk)
        held: list[tuple[int, str]] = []
        while not self.stage.stopped.is_set():
            if held and self.stage.draining.is_set():
                for tag, body in held:
                    self._ack(connection, tag, body, life)
                held = []
            try:
                method, _, payload = connection.read_content_bytes(commands.Basic.Deliver, 0.5)
            except TimeoutError:
                continue
            body, ack = self.take(life, payload, method.redelivered)
            if ack:
                self._ack(connection, method.delivery_tag, body, life)
            else:
                held.append((method.delivery_tag, body))
        connection.drop()

    def _ack(self, connection: RawAmqp, tag: int, body: str, life: int) -> None:
        connection.send(1, commands.Basic.Ack(tag))
        self.ledger.ack(self.group, body, life)


class MqttConsumer(Consumer):
    """Settles by PUBACK; `attempts` among the user properties tells a redelivery."""

    def work(self, life: int) -> None:
        connection = wire.RawMqtt(self.stage.broker.mqtt_port, client_id=self.name, props=b"\x21\x00\x64")
        props = wire.user_property("consumer-group", self.group) + wire.user_property("ack", "puback")
        connection.send_bytes(wire.subscribe(f"$queue/{QUEUE}", 1, props=props))
        connection.expect(wire.SUBACK)
        held: list[tuple[int, str]] = []
        while not self.stage.stopped.is_set():
            if held and self.stage.draining.is_set():
                for packet_id, body in held:
                    self._ack(connection, packet_id, body, life)
                held = []
            try:
                received = connection.read(0.5)
            except TimeoutError:
                continue
            if received is None:
                raise ConnectionResetError("the broker hung up")
            if received.kind != wire.PUBLISH:
                continue
            packet_id, attempts, payload = self._parse(received.body)
            body, ack = self.take(life, payload, attempts > 1)
            if ack:
                self._ack(connection, packet_id, body, life)
            else:
                held.append((packet_id, body))
        connection.drop()

    @staticmethod
    def _parse(body: bytes) -> tuple[int, int, bytes]:
        position = 2 + struct.unpack_from(">H", body)[0]
        packet_id = struct.unpack_from(">H", body, position)[0]
        position += 2
        size = shift = 0
        while True:
            digit = body[position]
            position += 1
            size |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                break
        block = body[position : position + size]
        key = wire.string("attempts")
        start = block.index(key) + len(key)
        attempts = int(block[start + 2 : start + 2 + struct.unpack_from(">H", block, start)[0]])
        return packet_id, attempts, body[position + size :]

    def _ack(self, connection: wire.RawMqtt, packet_id: int, body: str, life: int) -> None:
        connection.send_bytes(wire.acknowledgement(wire.PUBACK, packet_id))
        self.ledger.ack(self.group, body, life)
