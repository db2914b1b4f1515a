"""Access is asked when a client begins something, not for each message: what is allowed lies in the plan."""

import asyncio
from typing import Any

import pytest
from pamqp import commands

from broker.access.login import Identity
from broker.access.passwords import hashed
from broker.access.rights import Rights
from broker.app import Broker
from broker.commands.bench_clients import CHANNEL, Target
from config.access_settings import AccessSettings, PermissionSettings, UserSettings, UsersSettings
from config.settings import AmqpListenerSettings, ListenersSettings, MqttListenerSettings, Settings
from config.users_file import save_users
from protocols.amqp091.client import PERSISTENT, encode_publish
from protocols.amqp091.hot import encode_ack
from protocols.mqtt import packets
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.constants import MQTT_3_1_1

BATCH = 20
STEPS = 40
NARROWED = PermissionSettings(configure="^bench-", write="^bench[-/]", read="^bench[-/]")
ASKED = {Identity: ("may", "check", "may_use_keys", "check_keys", "may_all_topics"), Rights: ("cover",)}


class Amqp:
    """Durable messages with confirms through a queue; a step is a batch, published to acknowledged."""

    def __init__(self, target):
        self._publisher, self._consumer = target.amqp(), target.amqp()
        self._publisher.declare("bench-counted")
        self._publisher.select_confirms()
        self._consumer.consume("bench-counted", 2 * BATCH)
        self._sent = 0

    def step(self):
        self._publisher.sock.sendall(encode_publish("bench-counted", b"x", PERSISTENT) * BATCH)
        self._sent += BATCH
        for client, kind in ((self._publisher, commands.Basic.Ack), (self._consumer, commands.Basic.Deliver)):
            tag = 0
            while tag < self._sent:
                method = client.next_frame().method
                tag = method.delivery_tag if isinstance(method, kind) else tag
        self._consumer.sock.sendall(encode_ack(CHANNEL, self._sent, True))

    def close(self):
        self._consumer.close()
        self._publisher.delete("bench-counted")
        self._publisher.close()


class Mqtt:
    """QoS 1 from one client to another, likewise."""

    def __init__(self, target):
        self._publisher, self._subscriber = target.mqtt("from"), target.mqtt("to")
        self._subscriber.subscribe("bench/counted", 1)
        made = [packets.Publish("bench/counted", b"x", qos=1, packet_id=each + 1) for each in range(BATCH)]
        self._batch = b"".join(encode_packet(packet, MQTT_3_1_1) for packet in made)

    def step(self):
        self._publisher.sock.sendall(self._batch)
        for _ in range(BATCH):
            assert isinstance(self._publisher.next_packet(), packets.PubAck)
            answer = packets.PubAck(self._subscriber.next_packet().packet_id)
            self._subscriber.sock.sendall(encode_packet(answer, MQTT_3_1_1))

    def close(self):
        self._publisher.close()
        self._subscriber.close()


@pytest.fixture
async def guarded(tmp_path):
    """A broker in this process with one user who may do what the loads do."""
    path = tmp_path / "users.yaml"
    user = UserSettings(name="bench", password=hashed(b"pw"), permissions=(NARROWED,))
    save_users(path, UsersSettings(users=(user,)))
    listeners = ListenersSettings(mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0))
    access = AccessSettings(users_file=str(path), anonymous="never")
    settings = Settings(storage={"url": "memory:"}, listeners=listeners, access=access)
    async with Broker(settings) as broker:
        yield broker


@pytest.mark.parametrize("load", [Amqp, Mqtt])
async def test_no_permission_is_looked_up_for_a_message(guarded, load, monkeypatch):
    calls: list[Any] = []
    for kind, names in ASKED.items():
        for name in names:
            monkeypatch.setattr(kind, name, _counted(calls, getattr(kind, name)))
    ports = guarded.ports
    target = Target(amqp_port=ports["amqp"], mqtt_port=ports["mqtt"], user="bench", password="pw")

    def run():
        steps = load(target)
        steps.step()
        before = len(calls)
        for _ in range(STEPS):
            steps.step()
        after = len(calls)
        steps.close()
        return before, after

    before, after = await asyncio.to_thread(run)
    assert before > 0  # for what the clients began
    assert after == before


def _counted(calls, method):
    def call(*arguments):
        calls.append(method.__name__)
        return method(*arguments)

    return call
