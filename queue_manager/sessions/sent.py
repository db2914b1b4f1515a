"""The messages that a session was sent and has not finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storage.records import session_progress
from storage.records.special_codecs import RECEIVED_QOS_2, SENT_QOS_1, SENT_QOS_2, Sent, pack_sent


class Unfinished:
    """Messages by ID, in rising order, with their packet identifiers and states (`session_progress`).

    `_encoded` has those that were written and are not finished: all but the last ones.
    """

    __slots__ = ("_by_id", "_by_packet", "_encoded")

    def __init__(self, sent: Iterable[Sent] = ()) -> None:
        self._by_id = {each.message_id: each for each in sent}
        self._by_packet = {each.packet_id: each.message_id for each in self._by_id.values()}
        self._encoded: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Sent]:
        return iter(self._by_id.values())

    def find(self, message_id: int) -> Sent | None:
        """Return the message, if it was sent and is not finished."""
        return self._by_id.get(message_id)

    def packet_ids(self) -> list[int]:
        """Return identifiers in use."""
        return list(self._by_packet)

    def unreceived(self) -> list[int]:
        """Return packet identifiers of messages the client may not have."""
        return [each.packet_id for each in self if each.state != RECEIVED_QOS_2]

    def released(self) -> list[int]:
        """Return packet identifiers the client said PUBREC for, in order."""
        return [each.packet_id for each in self if each.state == RECEIVED_QOS_2]

    def lowest_id(self) -> int | None:
        """Return the lowest ID of a message the client may not have."""
        for each in self._by_id.values():
            if each.state != RECEIVED_QOS_2:
                return each.message_id
        return None

    def has_unreceived(self, first_id: int, last_id: int) -> bool:
        """Return whether the client may not have a message with an ID of that range."""
        return any(first_id <= each.message_id <= last_id and each.state != RECEIVED_QOS_2 for each in self)

    def add(self, message_id: int, packet_id: int, qos: int) -> None:
        """Add a message with an ID above all others, which is sent."""
        state = SENT_QOS_1 if qos == 1 else SENT_QOS_2
        self._by_id[message_id] = Sent(message_id, packet_id, state)
        self._by_packet[packet_id] = message_id

    def receive(self, packet_ids: Iterable[int]) -> list[int]:
        """Take PUBREC for these; gives those of them that were sent with QoS 2."""
        known = []
        for packet_id in packet_ids:
            message_id = self._by_packet.get(packet_id)
            if message_id is not None and self._by_id[message_id].state != SENT_QOS_1:
                sent = self._by_id[message_id] = Sent(message_id, packet_id, RECEIVED_QOS_2)
                if message_id in self._encoded:
                    self._encoded[message_id] = pack_sent(sent)
                known.append(packet_id)
        return known

    def finish(self, packet_ids: Iterable[int]) -> int:
        """Finish those that the client acknowledged for good; gives how many were known."""
        count = 0
        for packet_id in packet_ids:
            message_id = self._by_packet.pop(packet_id, None)
            if message_id is not None:
                del self._by_id[message_id]
                self._encoded.pop(message_id, None)
                count += 1
        return count

    def encode(self, read_to: int) -> bytes:
        """Encode the session's progress, of which `read_to` is the other half, as it is written."""
        encoded = self._encoded
        added = []
        for message_id in reversed(self._by_id):
            if message_id in encoded:
                break
            added.append(message_id)
        for message_id in reversed(added):
            encoded[message_id] = pack_sent(self._by_id[message_id])
        return session_progress.encode(read_to, encoded.values())

    def give_up(self, message_ids: Iterable[int]) -> tuple[list[int], list[int]]:
        """Give up those that cannot be sent again: forgets those of QoS 1, counts those of QoS 2 as received.
        Gives the packet identifiers of both.
        """
        sent = [self._by_id[message_id] for message_id in message_ids]
        forgotten = [each.packet_id for each in sent if each.state == SENT_QOS_1]
        self.finish(forgotten)
        return forgotten, self.receive([each.packet_id for each in sent if each.state != SENT_QOS_1])
