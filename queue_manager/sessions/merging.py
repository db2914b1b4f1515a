"""The messages of many logs as one session gets them: in order of IDs, each once."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.sessions.session_subscription import SessionSubscription
from storage.records.filter_log_entries import QOS, Kept


class Merged:
    """A message with those subscriptions of a session that it matched."""

    __slots__ = ("message", "subscriptions")

    def __init__(self, message: Kept, subscriptions: list[SessionSubscription]) -> None:
        self.message = message
        self.subscriptions = subscriptions

    def for_session(self, session: int) -> Merged | None:
        """Leave out the subscriptions that want nothing the session itself published; None: none is left."""
        if self.message.publisher != session:
            return self
        left = [s for s in self.subscriptions if not s.options.no_local]
        return Merged(self.message, left) if left else None

    @property
    def qos(self) -> int:
        """The highest QoS of the subscriptions, at most that of the publish [MQTT-3.3.4-2]."""
        wanted = max([s.options.qos for s in self.subscriptions])
        return min(wanted, self.message.flags & QOS)

    def retain(self, was_set: bool) -> bool:
        """Return whether RETAIN is set for the client [MQTT-3.3.1-13]."""
        return was_set and any(s.options.retain_as_published for s in self.subscriptions)


def merge(parts: Sequence[tuple[SessionSubscription, list[Kept]]], end_id: int) -> list[Merged]:
    """Return the messages below `end_id` of all parts, in order."""
    if len(parts) == 1:
        subscription, messages = parts[0]
        only = [subscription]
        return [Merged(message, only) for message in messages if message.message_id < end_id]
    by_id: dict[int, Merged] = {}
    for subscription, messages in parts:
        for message in messages:
            if message.message_id >= end_id:
                break
            known = by_id.get(message.message_id)
            if known is None:
                by_id[message.message_id] = Merged(message, [subscription])
            else:
                known.subscriptions.append(subscription)
    return [by_id[message_id] for message_id in sorted(by_id)]
