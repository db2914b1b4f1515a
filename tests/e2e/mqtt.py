"""paho-mqtt, with the few shortcuts the tests need: every call waits for its acknowledgement."""

import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from config.name_rules import queue_level

V311, V5 = 4, 5
QUIET_ROUNDS = 8
WAIT_S = 20.0
_numbers = itertools.count(1)

UserProperties = Iterable[tuple[str, str]]


class MqttRefused(Exception):
    """The broker refused the connection; `code` is the CONNACK's."""

    def __init__(self, code: Any) -> None:
        super().__init__(str(code))
        self.code = code


def make_properties(packet_type: int, user: UserProperties = (), **values: Any) -> Properties:
    """MQTT 5 properties, user properties in order."""
    made = Properties(packet_type)
    for key, value in values.items():
        setattr(made, key, value)
    for pair in user:
        made.UserProperty = pair  # paho appends
    return made


def user_properties(message: paho.MQTTMessage) -> list[tuple[str, str]]:
    return list(getattr(message.properties, "UserProperty", []))


def user_property(message: paho.MQTTMessage, key: str) -> str | None:
    """The value of the last user property of that name (the broker stamps its own after the publisher's)."""
    values = [value for name, value in user_properties(message) if name == key]
    return values[-1] if values else None


def payloads(messages: Iterable[paho.MQTTMessage]) -> list[str]:
    return [message.payload.decode() for message in messages]


class _Paho(paho.Client):
    """Gives a message to `on_handled` after its acknowledgement is in the queue of what goes out.

    Paho calls `on_message` before that: a test that has the message could have DISCONNECT go out first.
    """

    on_handled: Callable[[paho.MQTTMessage], None]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._received: list[paho.MQTTMessage] = []
        self.on_message = lambda client, userdata, message: self._received.append(message)

    def _packet_handle(self) -> paho.MQTTErrorCode:
        code = super()._packet_handle()
        while self._received:
            self.on_handled(self._received.pop(0))
        return code


class MqttClient:
    """One paho client with its network thread. `manual_ack`: deliveries are acknowledged by `puback` only."""

    def __init__(
        self,
        port: int,
        *,
        version: int = V5,
        client_id: str | None = None,
        clean: bool = True,
        keep_alive: int = 60,
        manual_ack: bool = False,
        will: dict[str, Any] | None = None,
        username: str | None = None,
        password: str | None = None,
        **connect_properties: Any,
    ) -> None:
        self.port = port
        self.version = version
        self.client_id = f"test-{os.getpid()}-{next(_numbers)}" if client_id is None else client_id
        clean_session = clean if version == V311 else None
        self._client = _Paho(
            paho.CallbackAPIVersion.VERSION2,
            self.client_id,
            clean_session,
            protocol=paho.MQTTProtocolVersion(version),
            reconnect_on_failure=False,
            manual_ack=manual_ack,
        )
        self._clean = clean
        self._keep_alive = keep_alive
        self._connect_properties = connect_properties
        if will is not None:
            self._client.will_set(**will)
        if username is not None:
            self._client.username_pw_set(username, password)
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.connack: tuple[Any, Any, Any] | None = None
        self.disconnect_reason: Any = None
        self.disconnected = threading.Event()
        self._connected = threading.Event()
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_handled = self.messages.put
        self._client.on_publish = lambda client, userdata, mid, code, props: self._answer(mid, code)
        self._client.on_subscribe = lambda client, userdata, mid, codes, props: self._answer(mid, codes)
        self._client.on_unsubscribe = lambda client, userdata, mid, codes, props: self._answer(mid, codes)

    def _on_connect(self, client: Any, userdata: Any, flags: Any, code: Any, props: Any) -> None:
        self.connack = (flags, code, props)
        self._connected.set()

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, code: Any, props: Any) -> None:
        self.disconnect_reason = code
        self.disconnected.set()
        self._connected.set()
        with self._answered:
            self._answered.notify_all()

    def _answer(self, mid: int, codes: Any) -> None:
        with self._answered:
            self._answers[mid] = codes
            self._answered.notify_all()

    def _wait_answer(self, mid: int) -> Any:
        with self._answered:
            done = self._answered.wait_for(
                lambda: mid in self._answers or self.disconnected.is_set(), timeout=WAIT_S
            )
            assert mid in self._answers, (
                f"connection lost: {self.disconnect_reason}" if done else "no acknowledgement"
            )
            return self._answers.pop(mid)

    def connect(self) -> "MqttClient":
        """Connect. Raises MqttRefused with the CONNACK's code."""
        options: dict[str, Any] = {}
        if self.version == V5:
            options["clean_start"] = self._clean
            options["properties"] = make_properties(PacketTypes.CONNECT, **self._connect_properties)
        self._client.connect("127.0.0.1", self.port, self._keep_alive, **options)
        self._client.loop_start()
        assert self._connected.wait(WAIT_S), "no CONNACK"
        assert self.connack is not None, f"closed instead of a CONNACK: {self.disconnect_reason}"
        if self.connack[1].is_failure:
            raise MqttRefused(self.connack[1])
        return self

    @property
    def session_present(self) -> bool:
        assert self.connack is not None
        return bool(self.connack[0].session_present)

    @property
    def connack_properties(self) -> Any:
        assert self.connack is not None
        return self.connack[2]

    def subscribe(
        self,
        topic: str,
        qos: int = 1,
        *,
        user: UserProperties = (),
        identifier: int | None = None,
        **options: Any,
    ) -> int:
        """The granted QoS, or the reason code (>= 0x80) of the refusal. `options`: noLocal, ..."""
        if self.version == V5:
            values = {} if identifier is None else {"SubscriptionIdentifier": identifier}
            props = make_properties(PacketTypes.SUBSCRIBE, user, **values)
            mid = self._client.subscribe(topic, options=SubscribeOptions(qos, **options), properties=props)[1]
        else:
            mid = self._client.subscribe(topic, qos)[1]
        assert mid is not None
        return int(self._wait_answer(mid)[0].value)

    def unsubscribe(self, topic: str) -> int | None:
        """The reason code; None in 3.1.1, which has none."""
        mid = self._client.unsubscribe(topic)[1]
        assert mid is not None
        codes = self._wait_answer(mid)
        return int(codes[0].value) if codes else None

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        qos: int = 1,
        *,
        retain: bool = False,
        user: UserProperties = (),
        **values: Any,
    ) -> int:
        """The reason code of PUBACK or PUBCOMP, waiting for it; 0 in 3.1.1 and at QoS 0."""
        props = make_properties(PacketTypes.PUBLISH, user, **values) if self.version == V5 else None
        info = self._client.publish(topic, payload, qos, retain, properties=props)
        if qos == 0:
            info.wait_for_publish(WAIT_S)
            return 0
        return int(self._wait_answer(info.mid).value)

    def settle(self, verb: str, message: paho.MQTTMessage, *, user: UserProperties = ()) -> int:
        """Publish `$ack`, `$nack`, `$reject` or `$extend` for a delivery; the reason code of its PUBACK."""
        queue_name = queue_level(user_property(message, "queue") or "")
        claim = [(key, user_property(message, key) or "") for key in ("message-id", "group-id")]
        return self.publish(f"$queue/{queue_name}/${verb}", b"", 1, user=[*claim, *user])

    def puback(self, message: paho.MQTTMessage) -> None:
        """Acknowledge one delivery (with `manual_ack` only)."""
        self._client.ack(message.mid, message.qos)

    def take(self, count: int, timeout_s: float = WAIT_S) -> list[paho.MQTTMessage]:
        """The next `count` messages; fails when they do not come."""
        taken: list[paho.MQTTMessage] = []
        deadline = time.monotonic() + timeout_s
        while len(taken) < count:
            try:
                taken.append(self.messages.get(timeout=max(deadline - time.monotonic(), 0)))
            except queue.Empty:
                got = payloads(taken) if count < 20 else len(taken)
                raise AssertionError(f"{len(taken)} of {count} messages in {timeout_s} s: {got}") from None
        return taken

    def take_one(self, timeout_s: float = WAIT_S) -> paho.MQTTMessage:
        return self.take(1, timeout_s)[0]

    def quiet(self) -> bool:
        """Whether nothing comes while the broker answers a few times; what comes is kept for `take`.

        Between two answers the broker delivers what it can, to everybody.
        """
        for _ in range(QUIET_ROUNDS):
            if not self.messages.empty() or self.disconnected.is_set():
                break
            mid = self._client.unsubscribe("never/subscribed/to")[1]  # has an answer, and changes nothing
            assert mid is not None
            self._wait_answer(mid)
        return self.messages.empty()

    def disconnect(self, **values: Any) -> None:
        """A clean DISCONNECT: no will. `values` are properties."""
        properties = make_properties(PacketTypes.DISCONNECT, **values) if values else None
        self._client.disconnect(properties=properties)
        assert self.disconnected.wait(WAIT_S)
        self._client.loop_stop()

    def drop(self) -> None:
        """Cut the connection with no DISCONNECT."""
        sock = self._client.socket()
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
        assert self.disconnected.wait(WAIT_S)

    def end(self) -> None:
        """Let go of everything, whatever the state."""
        self._client.disconnect()
        self._client.loop_stop()
