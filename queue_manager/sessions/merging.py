"""The messages of many logs as one session gets them: in order of IDs, one of what several filters match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from config import limits
from queue_manager.patterns import compile_pattern
from queue_manager.sessions.session_subscription import SessionSubscription
from storage.records.filter_log_entries import QOS, Kept

_WILDCARDS: Final = ("+", "#")


class Matched:
    """`logged` are those that keep messages, `beside` those that do not."""

    __slots__ = ("beside", "logged")

    def __init__(self, subscriptions: Iterable[SessionSubscription]) -> None:
        found = list(subscriptions)
        self.logged = tuple([each for each in found if each.is_logged])
        self.beside = tuple([each for each in found if not each.is_logged])


class Matching:
    """As the subscriptions are; to be made anew when one changes. What was found is kept for a while."""

    __slots__ = ("_exact", "_found", "_wild")

    def __init__(self, subscriptions: Mapping[str, SessionSubscription]) -> None:
        self._found: dict[tuple[tuple[str, ...], bool], Matched] = {}
        self._exact: dict[str, SessionSubscription] = {}
        self._wild: list[tuple[Callable[[str], bool], SessionSubscription]] = []
        for topic_filter, each in subscriptions.items():
            if each.is_own:
                continue
            if any(wildcard in topic_filter for wildcard in _WILDCARDS):
                self._wild.append((compile_pattern(topic_filter), each))
            else:
                self._exact[topic_filter] = each

    def of(self, topics: tuple[str, ...], *, is_own: bool) -> Matched:
        """Return those that one of the topics matches; `is_own`: which want what the session itself publishes
        there.
        """
        key = topics, is_own
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= limits.SESSION_TOPICS_MATCHED_MAX:
                self._found.clear()
            found = self._found[key] = Matched(
                [each for each in self._find_all(topics) if not (is_own and each.options.no_local)]
            )
        return found

    def _find_all(self, topics: tuple[str, ...]) -> Iterable[SessionSubscription]:
        if len(topics) == 1:
            return self._find(topics[0])
        return dict.fromkeys([each for topic in topics for each in self._find(topic)])

    def _find(self, topic: str) -> list[SessionSubscription]:
        exact = self._exact.get(topic)
        found = [] if exact is None else [exact]
        is_system = topic.startswith("$")  # a leading wildcard is not for those [MQTT-4.7.2-1]
        for matches, each in self._wild:
            if matches(topic) and not (is_system and each.filter.startswith(_WILDCARDS)):
                found.append(each)
        return found


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
