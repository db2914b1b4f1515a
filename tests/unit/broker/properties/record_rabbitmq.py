"""Records what RabbitMQ makes of messages that come by one protocol and leave by another.

    python -m tests.unit.broker.properties.record_rabbitmq AMQP-PORT MQTT-PORT

writes `rabbitmq43_translations.json` beside it, which the tests compare with; they need no RabbitMQ. It wants
a broker of version 4.3 with its MQTT plugin, user guest. Needs pika and paho-mqtt.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import pika
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from tests import amqp10_values as v
from tests.e2e import amqp
from tests.unit.broker.properties import translation_cases as cases
from tests.waiting import until

FILE: Final = Path(__file__).with_name("rabbitmq43_translations.json")
NULL: Final[v.Value] = ("null", None)


class Amqp10:
    """A connection with one session; raw, so that messages stay as they are."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._buffer = b""
        self._handle = 0
        self._delivery = 0
        self._socket.sendall(b"AMQP\x03\x01\x00\x00")
        assert self._take(8) == b"AMQP\x03\x01\x00\x00"
        self._next()
        init = [("symbol", "PLAIN"), ("binary", b"\0guest\0guest")]
        self._send(0x41, init, kind=1)
        outcome = self._next()
        assert outcome[1][0] == ("ubyte", 0), outcome
        self._socket.sendall(b"AMQP\x00\x01\x00\x00")
        assert self._take(8) == b"AMQP\x00\x01\x00\x00"
        self._send(0x10, [("string", "recorder"), ("string", "localhost"), ("uint", 131_072)])
        self._send(0x11, [NULL, ("uint", 0), ("uint", 2_048), ("uint", 2_048)])
        self._until(0x11)

    def publish(self, address: str, message: bytes) -> str:
        """Send a message by a link of its own; gives the outcome."""
        handle = self._attach(address, receiver=False)
        self._until(0x13)
        number = self._delivery
        self._delivery += 1
        tag = ("binary", b"%d" % number)
        self._send(
            0x14,
            [("uint", handle), ("uint", number), tag, ("uint", 0), ("boolean", False)],
            message,
        )
        answer = self._until(0x15, 0x16)
        self._detach(handle)
        return str(v.text(answer[1][4])) if answer[0] == 0x15 else f"detached: {answer[1]}"

    def get(self, address: str) -> bytes:
        """Take one message from a link of its own."""
        handle = self._attach(address, receiver=True)
        self._until(0x12)
        flow: list[v.Value] = [
            ("uint", 0), ("uint", 2_048), ("uint", 0), ("uint", 2_048), ("uint", handle), ("uint", 0),
            ("uint", 1),
        ]  # fmt: skip
        self._send(0x13, flow)
        _, transfer, payload = self._until(0x14)
        accepted: v.Value = ("described", (("ulong", 0x24), ("list", [])))
        number = transfer[1]
        self._send(0x15, [("boolean", True), number, number, ("boolean", True), accepted])
        self._detach(handle)
        return payload

    def close(self) -> None:
        self._socket.close()

    def _attach(self, address: str, *, receiver: bool) -> int:
        handle = self._handle
        self._handle += 1
        place: v.Value = ("list", [("string", address)])
        empty: v.Value = ("list", [])
        source: v.Value = ("described", (("ulong", 0x28), place if receiver else empty))
        target: v.Value = ("described", (("ulong", 0x29), empty if receiver else place))
        self._send(
            0x12,
            [
                ("string", f"link{handle}"), ("uint", handle), ("boolean", receiver), ("ubyte", 0),
                ("ubyte", 0), source, target, NULL, NULL, ("uint", 0),
            ],
        )  # fmt: skip
        return handle

    def _detach(self, handle: int) -> None:
        self._send(0x16, [("uint", handle), ("boolean", True)])
        self._until(0x16)

    def _send(self, code: int, items: list[v.Value], payload: bytes = b"", kind: int = 0) -> None:
        body = v.section(code, ("list", items)) + payload
        self._socket.sendall(struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self._socket.recv(65_536)
            assert data, "the connection was closed"
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _next(self) -> tuple[int, list[v.Value], bytes]:
        while True:
            size, offset, _, _ = struct.unpack(">IBBH", self._take(8))
            body = self._take(size - 8)[4 * offset - 8 :]
            if body:
                (_, (descriptor, fields)), end = v.decode(body)
                return descriptor[1], fields[1], body[end:]

    def _until(self, *codes: int) -> tuple[int, list[v.Value], bytes]:
        while True:
            found = self._next()
            if found[0] in codes:
                return found
            assert found[0] not in (0x16, 0x17, 0x18), found


class Recorder:
    def __init__(self, amqp_port: int, mqtt_port: int) -> None:
        self._amqp_port = amqp_port
        self._mqtt_port = mqtt_port
        self._pika = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))
        self._channel = self._pika.channel()
        self._channel.queue_declare("q", exclusive=False, durable=True)
        self._channel.queue_bind("q", "amq.topic", "m.#")
        self._amqp10 = Amqp10(amqp_port)

    def record(self) -> Iterator[dict[str, Any]]:
        for name, message in cases.AMQP10.items():
            sent = {"name": name, "from": "amqp10", "sent": message.hex()}
            for to, take in (("amqp091", self._get091), ("amqp10", self._get10)):
                assert self._amqp10.publish("/queues/q", message) == "['described', 'ulong 36', ['list']]"
                yield {**sent, "to": to, "got": self._tried(take)}
            yield {**sent, "to": "mqtt", "got": self._to_mqtt(message)}
        for name, (header, body) in cases.AMQP091.items():
            properties = pika.BasicProperties()
            properties.decode(header)
            self._channel.basic_publish("", "q", body, properties)
            yield {
                "name": name, "from": "amqp091", "sent": header.hex(), "body": body.hex(), "to": "amqp10",
                "got": self._tried(self._get10),
            }  # fmt: skip
        for name, (block, body, qos) in cases.MQTT.items():
            for to, take in (("amqp10", self._get10), ("amqp091", self._get091)):
                self._from_mqtt(block, body, qos)
                yield {
                    "name": name, "from": "mqtt", "sent": block.hex(), "body": body.hex(), "qos": qos,
                    "to": to, "got": self._tried(take),
                }  # fmt: skip

    def _tried(self, take: Any) -> Any:
        try:
            return take()
        except Exception as error:
            print("   ", repr(error)[:200])
            self.__init__(self._amqp_port, self._mqtt_port)  # type: ignore[misc]
            self._channel.queue_purge("q")
            return {"fails": True}

    def _get091(self) -> dict[str, Any]:
        found = until(lambda: amqp.get(self._channel, "q"))
        seen = {name: value for name, value in vars(found.properties).items() if value is not None}
        seen["headers"] = {n: cases.shown(x) for n, x in (seen.pop("headers", None) or {}).items()}
        return {**seen, "body": found.body.hex()}

    def _get10(self) -> dict[str, Any]:
        payload = self._amqp10.get("/queues/q")
        return {**v.describe(payload), "raw": payload.hex()}

    def _client(self) -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.connect("127.0.0.1", self._mqtt_port)
        return client

    def _to_mqtt(self, message: bytes) -> dict[str, Any]:
        came: queue.Queue[Any] = queue.Queue()
        client = self._client()
        client.on_subscribe = lambda *_: came.put(None)
        client.on_message = lambda _client, _userdata, found: came.put(found)
        client.on_connect = lambda *_: client.subscribe("k/#", 1)  # type: ignore[assignment]
        client.loop_start()
        try:
            came.get(timeout=5)
            self._amqp10.publish("/exchanges/amq.topic/k.a", message)
            found = came.get(timeout=2)
            if found is None:  # the client had to connect again
                return {"fails": True}
        except queue.Empty:
            return {"fails": True}
        finally:
            client.disconnect()
            client.loop_stop()
        packed = found.properties.pack()
        block = packed[1:] if packed[0] < 128 else packed[2:]
        return {"block": block.hex(), "qos": found.qos, "body": found.payload.hex()} | cases.shown_block(
            block
        )

    def _from_mqtt(self, block: bytes, body: bytes, qos: int) -> None:
        properties = PahoProperties(PacketTypes.PUBLISH)
        properties.unpack(bytes((len(block),)) + block)
        client = self._client()
        client.loop_start()
        client.publish("m/a", body, qos, properties=properties).wait_for_publish(5)
        client.disconnect()
        client.loop_stop()


def main() -> None:
    found = list(Recorder(int(sys.argv[1]), int(sys.argv[2])).record())
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, sort_keys=True) for case in found)
    FILE.write_text(f"[\n{lines}\n]\n")
    print(len(found), "cases")


if __name__ == "__main__":
    main()
