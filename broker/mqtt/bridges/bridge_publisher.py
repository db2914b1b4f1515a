"""The publisher of messages from another broker: the session of the bridge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from broker.access.login import Identity
from broker.clients.when_durable import WhenDurable
from broker.engine.session_traffic import Session
from broker.mqtt.connection.mqtt_client import NOBODY
from broker.mqtt.settling.publish_answers import Publisher
from broker.mqtt.topology.pubsub import PubSub
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt import hot
from protocols.mqtt.events import PublishRun
from queue_manager import outcomes

_log: Final = structlog.get_logger("sluicemq.bridge")


class BridgePublisher(Publisher):
    """Answers another broker."""

    __slots__ = ("_name", "_write")

    session: Session

    def __init__(
        self,
        hub: Hub,
        pubsub: PubSub,
        identity: Identity,
        session: Session,
        name: str,
        write: Callable[[bytes], None],
    ) -> None:
        super().__init__(hub, pubsub, identity, session)
        self._name = name
        self._write = write

    def accept(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        if qos == 2:
            self.session.received.note(packet_ids)
        self.answer(qos, packet_ids)

    def answer_when_durable(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        self.core.commits.wait_for(_Answers(partial(self.answer, qos), self._name), packet_ids)

    def answer(self, qos: int, packet_ids: list[int]) -> None:
        """Answer with PUBACK, or PUBREC."""
        if packet_ids:
            self._write(hot.encode_ack_run(c.PUBACK if qos == 1 else c.PUBREC, packet_ids))

    def note_unretained(self, topic: str, reason: str) -> None:
        _log.warning("bridge.retain_refused", bridge=self._name, topic=topic, reason=reason)

    def refuse(self, run: PublishRun, reason_code: int, reason: str, by: Mapping[str, Any] = NOBODY) -> None:
        """See `Publisher`: the other broker is told that it is done, as it could do nothing else either."""
        self._log_refused(run, reason)
        self.accept(run.packet_ids, run.shape.qos)

    def refuse_in_part(self, run: PublishRun, reason: str, by: Mapping[str, Any]) -> None:
        self._log_refused(run, reason)
        self.accept_stored(run)

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        self.accept(packet_ids, qos)

    def _log_refused(self, run: PublishRun, reason: str) -> None:
        _log.warning("bridge.publish_refused", bridge=self._name, topic=run.shape.topic, reason=reason)


class _Answers(WhenDurable):
    """Answers publishes once they are durable, or a queue elsewhere has refused them: see
    `BridgePublisher.refuse`.
    """

    __slots__ = ("_name",)

    def __init__(self, call: Callable[[list[int]], None], name: str) -> None:
        super().__init__(call)
        self._name = name

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `broker.engine.traffic.PublishWaiter`."""
        reason = outcomes.REASONS[outcome]
        _log.warning("bridge.publish_refused", bridge=self._name, reason=reason)
