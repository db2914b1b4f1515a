"""Publishers: how the targets of publishes answer a client, or the will of one that is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from broker.access.login import Identity
from broker.clients.late_refusals import note_refused
from broker.clients.when_durable import WhenDurable
from broker.engine.session_traffic import Session
from broker.mqtt.connection.errors import outcome_code
from broker.mqtt.connection.mqtt_client import NOBODY, MqttClient
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import Subscriber
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun
from queue_manager import outcomes
from queue_manager.outcomes import REFUSED_IN_PART, UNROUTED

_log: Final = structlog.get_logger("sluicemq.mqtt")


class Publisher:
    """A publisher, and how it is answered: as it is, the will of a client that is gone, of whose refusals
    only the log is told.

    `core` is the way to the core, `pubsub` has the subscribers; `session` is the publisher's, if that
    outlives the connection. `subscriber`: the client as a subscriber, since "no local" subscriptions of its
    own are not for its publishes. `publishes_directly`: there was a topic with nobody but subscribers to pass
    its publishes on to.
    """

    __slots__ = ("core", "hub", "identity", "publishes_directly", "pubsub", "session")

    client: MqttClient | None = None
    subscriber: Subscriber | None = None

    def __init__(self, hub: Hub, pubsub: PubSub, identity: Identity, session: Session | None) -> None:
        self.hub = hub
        self.core = hub.client
        self.pubsub = pubsub
        self.identity = identity
        self.session = session
        self.publishes_directly = False

    def accept(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        """Answer publishes with success; `note` is for who reads reason strings."""

    def accept_unmatched(self, packet_ids: list[int], qos: int) -> None:
        """Answer publishes with success, and that nobody is subscribed to them."""
        self.accept(packet_ids, qos)

    def accept_stored(self, run: PublishRun, note: str = "") -> None:
        """Accept as `accept`, what was stored, once that is durable; identifiers of QoS 2 are stored with the
        messages, as a client sends them again after a crash.
        """
        packet_ids, qos = run.packet_ids, run.shape.qos
        if packet_ids:
            if qos == 2 and self.session is not None:
                self.session.received.take(packet_ids, self.hub.clock.now_ms())
            self.answer_when_durable(packet_ids, qos, note)

    def answer_when_durable(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        """Answer with success once what was done so far is durable."""

    def note_unretained(self, topic: str, reason: str) -> None:
        """Log that the retain flag had no effect: once for a connection, and for every will."""
        _log.warning("mqtt.retain_refused", topic=topic, reason=reason)

    def refuse(self, run: PublishRun, reason_code: int, reason: str, by: Mapping[str, Any] = NOBODY) -> None:
        """Tell that the run was not taken; `by`: by what, as fields of a log line."""
        _log.warning("mqtt.will_refused", topic=run.shape.topic, reason=reason)

    def refuse_in_part(self, run: PublishRun, reason: str, by: Mapping[str, Any]) -> None:
        """Refuse as `refuse`, where other queues took what those that `by` tells of did not."""
        self.refuse(run, c.QUOTA_EXCEEDED, reason, by)

    def refuse_when_durable(
        self, run: PublishRun, reason_code: int, reason: str, by: Mapping[str, Any] = NOBODY
    ) -> None:
        """Refuse as `refuse`, once what was done so far is durable."""
        self.refuse(run, reason_code, reason, by)

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        """Refuse as `refuse`, where it was logged."""


class ClientPublisher(Publisher):
    """The publishing half of a client that was let in."""

    __slots__ = ("_connection", "_durable_answers", "_is_unretained_noted", "client", "subscriber")

    client: MqttClient

    def __init__(
        self, client: MqttClient, pubsub: PubSub, subscriber: Subscriber, session: Session | None
    ) -> None:
        super().__init__(client.hub, pubsub, client.identity, session)
        self.client = client
        self.subscriber = subscriber
        self._connection = connection = client.connection
        self._is_unretained_noted = False
        self._durable_answers: tuple[_Answers, ...] = (
            _Answers(self, 1, connection.send_puback_run),
            _Answers(self, 2, connection.send_pubrec_run),
        )

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
            connection.answer_publishes(qos, packet_ids, c.SUCCESS, note)
        elif qos == 1:
            connection.send_puback_run(packet_ids)
        elif qos == 2:
            connection.send_pubrec_run(packet_ids)

    def accept_unmatched(self, packet_ids: list[int], qos: int) -> None:
        if qos == 2 and self.session is not None:
            self.session.received.note(packet_ids)
        if qos:
            self.client.connection.send_unmatched_run(qos, packet_ids)

    def answer_when_durable(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        answers = self._durable_answers[qos - 1]
        if note:
            answers = _Answers(self, qos, lambda told: self._answer(told, qos, note))
        self.core.commits.wait_for(answers, packet_ids)

    def dissolve(self) -> None:
        """Let go of what refers back: the client is gone."""
        self._durable_answers = ()

    def refuse_late(self, packet_id: int, qos: int, outcome: int) -> None:
        """Answer a publish that was accepted, and that a queue elsewhere refused."""
        if outcome == UNROUTED:
            self.accept_unmatched([packet_id], qos)
        elif outcome == REFUSED_IN_PART and self._connection.protocol_version != c.MQTT_5:
            self._answer([packet_id], qos, "")  # as `refuse_in_part`
        else:
            if self.session is not None:
                self.session.received.complete([packet_id], WhenDurable(lambda tokens: None))
            self.deny([packet_id], qos, outcome_code(outcome), outcomes.REASONS[outcome])

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

    def refuse(self, run: PublishRun, reason_code: int, reason: str, by: Mapping[str, Any] = NOBODY) -> None:
        """See `Publisher`.

        MQTT 3.1.1 has no way to say so but ending the connection ([MQTT-3.3.5-2]); QoS 0 has none at all.
        """
        self.client.note_refused(run.shape.topic, reason, run.count, by)
        self.deny(run.packet_ids, run.shape.qos, reason_code, reason)

    def refuse_in_part(self, run: PublishRun, reason: str, by: Mapping[str, Any]) -> None:
        """See `Publisher`.

        A client of MQTT 3.1.1 whose connection ended would send it again, to the queues that took it, too: it
        is answered as if all had.
        """
        if self._connection.protocol_version == c.MQTT_5:
            super().refuse_in_part(run, reason, by)
            return
        self.client.note_refused(run.shape.topic, reason, run.count, by)
        self.accept_stored(run)

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        if qos and self._connection.protocol_version == c.MQTT_5:
            self._connection.answer_publishes(qos, packet_ids, reason_code, reason)
        elif qos:
            self.client.end(reason_code, reason)

    def refuse_when_durable(
        self, run: PublishRun, reason_code: int, reason: str, by: Mapping[str, Any] = NOBODY
    ) -> None:
        self.client.when_durable(self.refuse, run, reason_code, reason, by)


class _Answers(WhenDurable):
    """Answers publishes of one QoS in order: `send` tells that they are durable; `_refused` are those that a
    queue elsewhere refused after all, with the outcome.

    Implements `broker.engine.traffic.PublishWaiter`.
    """

    __slots__ = ("_publisher", "_qos", "_refused", "_send")

    def __init__(self, publisher: ClientPublisher, qos: int, send: Callable[[list[int]], None]) -> None:
        super().__init__(send, publisher.client.transport)
        self._publisher = publisher
        self._qos = qos
        self._send = send
        self._refused: dict[int, int] = {}

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        client = self._publisher.client
        if outcome != UNROUTED:
            note_refused(client.hub, client.transport, outcome, len(tokens))
        self._refused |= dict.fromkeys(tokens, outcome)
        self._call = self._answer_each

    def _answer_each(self, packet_ids: list[int]) -> None:
        accepted: list[int] = []
        for packet_id in packet_ids:
            outcome = self._refused.pop(packet_id, None)
            if outcome is None:
                accepted.append(packet_id)
                continue
            self._send_all(accepted)
            accepted = []
            self._publisher.refuse_late(packet_id, self._qos, outcome)
        self._send_all(accepted)
        if not self._refused:
            self._call = self._send

    def _send_all(self, packet_ids: list[int]) -> None:
        if packet_ids and not self._publisher.client.connection.closed:
            self._send(packet_ids)
