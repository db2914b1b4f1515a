"""Publishes of a client that are not answered to the end: QoS 2 identifiers and the Receive Maximum."""

import sys
from collections.abc import Iterable, Sequence

from protocols.mqtt.events import PublishRun


class InboundQos2:
    """Packet identifiers of QoS 2 publishes taken and not yet released: session state, section 4.1.

    `pending` wait for our PUBREC, `received` for the client's PUBREL. A front-end that will never answer a
    pending one must discard it, or its re-sent publish is taken for a duplicate.
    """

    __slots__ = ("pending", "received")

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.received: set[int] = set()

    def take(self, packet_ids: Iterable[int]) -> None:
        """Note that their PUBREC is on its way."""
        self.pending.difference_update(packet_ids)
        self.received.update(packet_ids)


class InboundWindow:
    """The publishes of one connection that are still to be answered, sections 3.1.2.11.3 and 4.9.

    `maximum` 0 enforces nothing (3.1.1 cannot be told one).
    """

    __slots__ = ("_maximum", "_open", "qos2")

    def __init__(self, maximum: int, qos2: InboundQos2 | None = None) -> None:
        self.qos2 = qos2 if qos2 is not None else InboundQos2()
        self._maximum = maximum
        self._open = 0

    def admit(self, run: PublishRun) -> PublishRun | None:
        """Return the part of a QoS 1 or 2 run that fits the Receive Maximum, None for nothing; counts it."""
        count = run.count
        if self._maximum and self._open + count > self._maximum:
            count = self._maximum - self._open
            if count == 0:
                return None
            run = run.cut(count)
        self._open += count
        if run.shape.qos == 2:
            self.qos2.pending.update(run.packet_ids)
        return run

    def admit_one(self) -> bool:
        """Count one more publish of QoS 1 if it fits the Receive Maximum; whether it does."""
        if not self.has_room():
            return False
        self._open += 1
        return True

    def has_room(self) -> bool:
        """Return whether one more publish of QoS 1 or 2 fits the Receive Maximum."""
        return not self._maximum or self._open < self._maximum

    def room(self) -> int:
        """Return how many more publishes of QoS 1 or 2 fit the Receive Maximum."""
        return self._maximum - self._open if self._maximum else sys.maxsize

    def count(self, count: int) -> None:
        """Count more publishes of QoS 1, for which there is `room`."""
        self._open += count

    def split_duplicates(self, run: PublishRun) -> tuple[PublishRun | None, list[int]]:
        """Return a QoS 2 run without identifiers in use, and those among them to PUBREC again
        [MQTT-4.3.3-10].

        A duplicate of a pending publish needs no answer of its own.
        """
        qos2 = self.qos2
        ids = run.packet_ids
        fresh = set(ids)
        if len(fresh) == len(ids) and fresh.isdisjoint(qos2.pending) and fresh.isdisjoint(qos2.received):
            return run, []
        kept_ids: list[int] = []
        kept: list[bytes] = []
        again: list[int] = []
        seen = set(qos2.pending)
        for packet_id, payload in zip(ids, run.payloads, strict=True):
            if packet_id in qos2.received:
                again.append(packet_id)
            elif packet_id not in seen:
                seen.add(packet_id)
                kept_ids.append(packet_id)
                kept.append(payload)
        if not kept:
            return None, again
        return PublishRun(run.shape, len(kept), kept_ids, kept), again

    def release(self, count: int) -> None:
        """Note that `count` publishes were answered for good."""
        self._open = max(0, self._open - count)

    def drop(self, packet_id: int) -> None:
        """Forget a QoS 2 publish that was refused with PUBREC 0x80 or above."""
        self.qos2.pending.discard(packet_id)
        self.release(1)

    def complete(self, packet_ids: Sequence[int]) -> set[int]:
        """Note that PUBCOMP is on its way for them; gives those that were not received at all."""
        received = self.qos2.received
        before = len(received)
        unknown = set() if received.issuperset(packet_ids) else set(packet_ids) - received
        received.difference_update(packet_ids)
        self.release(before - len(received))
        return unknown
