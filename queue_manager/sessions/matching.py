"""Which subscriptions of a session a topic matches: together they bring it one copy of what is published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from config import limits
from queue_manager.patterns import compile_pattern
from queue_manager.sessions.session_subscription import SessionSubscription

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
