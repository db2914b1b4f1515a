"""Who publishes: how the targets of publishes answer a client, or the will of one that is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import structlog

from broker.access.login import Identity
from broker.engine.session_traffic import Session
from broker.engine.traffic import Source
from broker.mqtt.connection.durable_call import DurableCall
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.topics.pubsub import PubSub
from broker.mqtt.topics.subscription import Subscriber
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun
from protocols.mqtt.properties import Properties

_log: Final = structlog.get_logger("sluicemq.mqtt")


class DurableAnswer:
    """Sends PUBACK, or PUBREC, for publishes that became durable."""

    __slots__ = ("_send", "_transport")

    def __init__(self, send: Callable[[list[int]], None], transport: Transport) -> None:
        self._send = send
        self._transport = transport

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`; tokens are packet identifiers."""
        self._transport.guard(self._send, tokens)
        self._transport.want_answer()


class Publisher(Protocol):
    """Who publishes: a client, or the will of one that is gone."""

    @property
    def hub(self) -> Hub:
        """The broker's."""

    @property
    def identity(self) -> Identity:
        """Whose publishes it are."""

    @property
    def pubsub(self) -> PubSub:
        """Who gets plain publishes."""

    @property
    def client(self) -> MqttClient | None:
        """The client, which a will has no more."""

    @property
    def subscriber(self) -> Subscriber | None:
        """The client as a subscriber: "no local" subscriptions of his are not for his publishes."""

    @property
    def session(self) -> Session | None:
        """His session, if it outlives the connection."""

    @property
    def protocol_version(self) -> int:
        """Of his publishes as they came by wire; 0 if they did not."""

    @property
    def durable_answers(self) -> Sequence[DurableAnswer]:
        """What answers publishes of QoS 1, of QoS 2, once they are durable; a will has no packet identifiers
        and gets no answers.
        """

    def accept(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        """Answer publishes with success; `note` is for who reads reason strings."""

    def accept_unmatched(self, packet_ids: list[int], qos: int) -> None:
        """Answer publishes with success, and that nobody is subscribed to them."""

    def accept_stored(self, run: PublishRun, note: str = "") -> None:
        """As `accept`, for what was stored, once that is durable."""

    def note_unretained(self, topic: str, reason: str) -> None:
        """Log that the retain flag had no effect: once for a connection, and for every will."""

    def refuse(self, run: PublishRun, reason_code: int, reason: str, full: Sequence[Source] = ()) -> None:
        """Tell that the run was not taken; `full`: the queues that had no room, if it was for that."""

    def refuse_in_part(self, run: PublishRun, reason: str, full: Sequence[Source]) -> None:
        """As `refuse`, where other queues took what those that are `full` did not."""

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        """As `refuse`, where it was logged."""

    def refuse_when_durable(
        self, run: PublishRun, reason_code: int, reason: str, full: Sequence[Source] = ()
    ) -> None:
        """As `refuse`, once what was done so far is durable."""


class ClientPublisher:
    """The publishing half of a client. Implements `Publisher`."""

    __slots__ = (
        "_connection",
        "_is_unretained_noted",
        "client",
        "durable_answers",
        "hub",
        "pubsub",
        "session",
        "subscriber",
    )

    def __init__(self, client: MqttClient, pubsub: PubSub, subscriber: Subscriber) -> None:
        self.client = client
        self._connection = client.connection
        self.hub = client.hub
        self.pubsub = pubsub
        self.subscriber = subscriber
        self.session: Session | None = None
        self._is_unretained_noted = False
        self.durable_answers = (
            DurableAnswer(client.connection.send_puback_run, client.transport),
            DurableAnswer(client.connection.send_pubrec_run, client.transport),
        )

    @property
    def identity(self) -> Identity:
        return self.client.identity

    @property
    def protocol_version(self) -> int:
        return self.client.connection.protocol_version

    def belong_to(self, session: Session) -> None:
        """The client has a session that outlives the connection."""
        self.session = session

    def accept(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        if qos == 1 and not note:
            self._connection.send_puback_run(packet_ids)
            return
        if qos == 2 and self.session is not None:
            self.session.received.note(packet_ids)
        self._answer(packet_ids, qos, note)

    def _answer(self, packet_ids: list[int], qos: int, note: str) -> None:
        connection = self._connection
        if note and qos:
            send = connection.send_puback if qos == 1 else connection.send_pubrec
            for packet_id in packet_ids:
                send(packet_id, c.SUCCESS, Properties(reason_string=note))
        elif qos == 1:
            connection.send_puback_run(packet_ids)
        elif qos == 2:
            connection.send_pubrec_run(packet_ids)

    def accept_unmatched(self, packet_ids: list[int], qos: int) -> None:
        if qos == 2 and self.session is not None:
            self.session.received.note(packet_ids)
        if qos:
            self.client.connection.send_unmatched_run(qos, packet_ids)

    def accept_stored(self, run: PublishRun, note: str = "") -> None:
        """See `Publisher`; identifiers of QoS 2 are stored with the messages, as a client sends them again
        after a crash.
        """
        packet_ids = run.packet_ids
        qos = run.shape.qos
        if not packet_ids:
            return
        if qos == 2 and self.session is not None:
            self.session.received.take(packet_ids, self.hub.clock.now_ms())
        if note:
            call = partial(self._answer, packet_ids, qos, note)
            self.hub.client.commits.wait(DurableCall(self.client.transport, call), 0)
        else:
            self.hub.client.commits.wait_for(self.durable_answers[qos - 1], packet_ids)

    def note_unretained(self, topic: str, reason: str) -> None:
        if not self._is_unretained_noted:
            self._is_unretained_noted = True
            client = self.client
            _log.warning(
                "mqtt.retain_refused",
                peer=client.transport.peer,
                client_id=client.client_id,
                topic=topic,
                reason=reason,
            )

    def refuse(self, run: PublishRun, reason_code: int, reason: str, full: Sequence[Source] = ()) -> None:
        """See `Publisher`.

        MQTT 3.1.1 has no way to say so but ending the connection ([MQTT-3.3.5-2]); QoS 0 has none at all.
        """
        self.client.note_refused(run.shape.topic, reason, run.count, full)
        self.deny(run.packet_ids, run.shape.qos, reason_code, reason)

    def refuse_in_part(self, run: PublishRun, reason: str, full: Sequence[Source]) -> None:
        """See `Publisher`.

        A client of MQTT 3.1.1 whose connection ended would send it again, to the queues that took it, too: it
        is answered as if all had.
        """
        if self.protocol_version == c.MQTT_5:
            self.refuse(run, c.QUOTA_EXCEEDED, reason, full)
            return
        self.client.note_refused(run.shape.topic, reason, run.count, full)
        self.accept_stored(run)

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        client = self.client
        if qos == 0:
            return
        connection = client.connection
        if connection.protocol_version != c.MQTT_5:
            client.end(reason_code, reason)
            return
        for packet_id in packet_ids:
            properties = Properties(reason_string=reason)
            if qos == 1:
                connection.send_puback(packet_id, reason_code, properties)
            else:
                connection.send_pubrec(packet_id, reason_code, properties)

    def refuse_when_durable(
        self, run: PublishRun, reason_code: int, reason: str, full: Sequence[Source] = ()
    ) -> None:
        call = partial(self.refuse, run, reason_code, reason, full)
        self.hub.client.commits.wait(DurableCall(self.client.transport, call), 0)
