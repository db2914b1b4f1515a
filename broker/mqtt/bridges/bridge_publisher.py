"""Who publishes what another broker sends: the session of the bridge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from broker.access.login import Identity
from broker.engine.session_traffic import Session
from broker.engine.traffic import Source
from broker.mqtt.settling.publish_answers import DurableAnswer
from broker.mqtt.topics.pubsub import PubSub
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt import hot
from protocols.mqtt.events import PublishRun

_log: Final = structlog.get_logger("sluicemq.bridge")


class BridgePublisher:
    """A `Publisher` that answers another broker."""

    __slots__ = ("_name", "_write", "hub", "identity", "pubsub", "session")

    client = None
    subscriber = None
    protocol_version = 0
    durable_answers: Sequence[DurableAnswer] = ()

    def __init__(
        self,
        hub: Hub,
        pubsub: PubSub,
        identity: Identity,
        session: Session,
        name: str,
        write: Callable[[bytes], None],
    ) -> None:
        self.hub = hub
        self.pubsub = pubsub
        self.identity = identity
        self.session = session
        self._name = name
        self._write = write

    def accept(self, packet_ids: list[int], qos: int, note: str = "") -> None:
        if qos == 2:
            self.session.received.note(packet_ids)
        self.answer(qos, packet_ids)

    def accept_unmatched(self, packet_ids: list[int], qos: int) -> None:
        self.accept(packet_ids, qos)

    def accept_stored(self, run: PublishRun, note: str = "") -> None:
        qos = run.shape.qos
        if not run.packet_ids:
            return
        if qos == 2:
            self.session.received.take(run.packet_ids, self.hub.clock.now_ms())
        self.hub.client.commits.wait_for(Answer(partial(self.answer, qos)), run.packet_ids)

    def answer(self, qos: int, packet_ids: list[int]) -> None:
        """PUBACK, or PUBREC."""
        if packet_ids:
            self._write(hot.encode_ack_run(c.PUBACK if qos == 1 else c.PUBREC, packet_ids))

    def note_unretained(self, topic: str, reason: str) -> None:
        _log.warning("bridge.retain_refused", bridge=self._name, topic=topic, reason=reason)

    def refuse(self, run: PublishRun, reason_code: int, reason: str, full: Sequence[Source] = ()) -> None:
        """See `Publisher`: the other broker is told that it is done, as it could do nothing else either."""
        self._log_refused(run, reason)
        self.accept(run.packet_ids, run.shape.qos)

    def refuse_in_part(self, run: PublishRun, reason: str, full: Sequence[Source]) -> None:
        self._log_refused(run, reason)
        self.accept_stored(run)

    def _log_refused(self, run: PublishRun, reason: str) -> None:
        _log.warning("bridge.publish_refused", bridge=self._name, topic=run.shape.topic, reason=reason)

    def deny(self, packet_ids: list[int], qos: int, reason_code: int, reason: str) -> None:
        self.accept(packet_ids, qos)

    def refuse_when_durable(
        self, run: PublishRun, reason_code: int, reason: str, full: Sequence[Source] = ()
    ) -> None:
        self.refuse(run, reason_code, reason)


class Answer:
    """Tells the other broker what is durable; tokens are packet identifiers.

    Implements `queue_manager.shard.commit.Waiter`.
    """

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[list[int]], None]) -> None:
        self._send = send

    def committed(self, tokens: list[int]) -> None:
        self._send(tokens)
