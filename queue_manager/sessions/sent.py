"""The messages that a session was sent and has not finished, and those of QoS 2 that its client sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from queue_manager.shard.commit import Commit, Waiter
from queue_manager.shard.context import Context
from storage.records import session_progress, session_received
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


_NOTHING: Final[frozenset[int]] = frozenset()


class Received:
    """The packet identifiers of publishes of QoS 2 that the client has not released."""

    __slots__ = ("_context", "_ids", "_session")

    def __init__(self, context: Context, session: int) -> None:
        """`session` is the number of the session."""
        self._context = context
        self._session = session
        self._ids: set[int] | frozenset[int] = _NOTHING  # most clients never publish so

    def packet_ids(self) -> Collection[int]:
        """Return all of them."""
        return self._ids

    def note(self, packet_ids: Iterable[int]) -> None:
        """Remember publishes that were taken and stored nowhere: as long as the client stays, or, with
        `keep`, for longer.
        """
        if isinstance(self._ids, frozenset):
            self._ids = set(packet_ids)
        else:
            self._ids.update(packet_ids)

    def take(self, packet_ids: Collection[int], now_ms: int) -> None:
        """Remember stored publishes with the open commit, as they are."""
        self.note(packet_ids)
        self._put(packet_ids, now_ms)

    def keep(self, now_ms: int) -> None:
        """Remember all with the open commit: the connection is gone, and the broker may be, too."""
        self._put(self._ids, now_ms)

    def _put(self, packet_ids: Iterable[int], now_ms: int) -> None:
        value = session_received.encode(now_ms)
        for packet_id in packet_ids:
            self._context.commit.put(session_received.key(self._session, packet_id), value)

    def complete(self, packet_ids: list[int], waiter: Waiter) -> bool:
        """Take PUBREL: `waiter` is told when it is durable that these are free; returns whether any was
        known.
        """
        known = self._ids.intersection(packet_ids)
        if not known:
            return False
        self._ids -= known
        commit = self._context.commit
        commit.delete_run([session_received.key(self._session, i) for i in known])
        commit.wait_for(waiter, packet_ids)
        return True

    def delete(self, commit: Commit) -> None:
        """Forget them with this commit: the session is over."""
        commit.delete_run([session_received.key(self._session, i) for i in self._ids])
