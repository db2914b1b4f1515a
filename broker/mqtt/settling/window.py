"""Packet identifiers of deliveries to one MQTT client, within its Receive Maximum."""

from __future__ import annotations

from collections.abc import Iterable


class OutboundWindow:
    """Identifiers 1 to 65,535 in use for QoS 1 and 2 deliveries; at most `maximum` at a time: as many as the
    client allows, none while the window is closed. Implements `broker.engine.traffic.Window`.
    """

    __slots__ = ("_next", "_unsent", "in_use", "maximum", "receive_maximum")

    def __init__(self, receive_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self.maximum = receive_maximum
        self.in_use: set[int] = set()
        self._next = 1
        self._unsent: set[int] = set()  # in use, but not sent over this connection yet

    def limit(self, receive_maximum: int) -> None:
        """Set the client's Receive Maximum."""
        self.maximum = self.receive_maximum = receive_maximum

    def close(self) -> None:
        self.maximum = 0

    def open(self) -> None:
        self.maximum = self.receive_maximum

    def free(self) -> int:
        """Return how many more deliveries the client allows now."""
        return self.maximum - len(self.in_use)

    def occupy(self, packet_ids: Iterable[int], unsent: Iterable[int]) -> None:
        """Occupy what an earlier connection of the session used and did not finish; `unsent` of them are to
        be sent again.
        """
        self.in_use.update(packet_ids)
        self._unsent.update(unsent)

    @property
    def unsent_count(self) -> int:
        """How many are still to be sent again: see `occupy`."""
        return len(self._unsent)

    def sent_again(self, packet_ids: Iterable[int]) -> None:
        """See `occupy`: these were."""
        self._unsent.difference_update(packet_ids)

    def room(self) -> int:
        """Return how many more deliveries the client allows now, those that are sent again first."""
        return self.maximum - len(self.in_use) + len(self._unsent)

    def take_one(self) -> int:
        """Take one identifier not in use; there must be one."""
        packet_id = self._next
        if packet_id in self.in_use:
            return self.take(1)[0]
        self.in_use.add(packet_id)
        self._next = packet_id + 1 if packet_id < 65_535 else 1
        return packet_id

    def take_free(self) -> int:
        """Take one identifier not in use; 0 if the client allows no more deliveries now."""
        in_use = self.in_use
        packet_id = self._next
        if packet_id in in_use or len(in_use) >= self.maximum:
            return self.take(1)[0] if self.free() > 0 else 0
        in_use.add(packet_id)
        self._next = packet_id + 1 if packet_id < 65_535 else 1
        return packet_id

    def take(self, count: int) -> list[int]:
        """Take `count` identifiers not in use; there must be so many."""
        first = self._next
        end = first + count
        if end <= 65_536:
            ids = list(range(first, end))
            if self.in_use.isdisjoint(ids):
                self.in_use.update(ids)
                self._next = end if end < 65_536 else 1
                return ids
        ids = []
        candidate = first
        while len(ids) < count:
            if candidate > 65_535:
                candidate = 1
            if candidate not in self.in_use:
                self.in_use.add(candidate)
                ids.append(candidate)
            candidate += 1
        self._next = candidate if candidate <= 65_535 else 1
        return ids

    def release(self, packet_ids: list[int]) -> None:
        """Release deliveries that are finished; identifiers not in use are passed over."""
        self.in_use.difference_update(packet_ids)
        if self._unsent:
            self._unsent.difference_update(packet_ids)
