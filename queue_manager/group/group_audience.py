"""Which messages any consumer group of a queue wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from config import limits
from queue_manager.cursor.backlog import Wanted
from queue_manager.filters import parse_selector
from queue_manager.group.group import Group
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.patterns import compile_pattern
from queue_manager.shard.message_fields import differs_by_message
from storage.envelope import EnvelopeTemplate

Takers = tuple[Wanted, ...] | None
"""The conditions of groups whose patterns match a topic; None: a group takes whatever has that topic."""


class Audience:
    """The groups of a queue by what they want: `groups` are all of them, whenever somebody asks.

    What filters of single consumers say does not count: what no consumer of a group accepts waits in it.
    """

    __slots__ = ("_differs", "_groups", "_is_stale", "_log", "_takers", "_wants_all", "_wishes")

    def __init__(self, log: QueueLog, groups: Iterable[Group]) -> None:
        self._log = log
        self._groups = groups
        self._differs = False  # whether a selector asks for what each message has for itself
        self._is_stale = True
        self._wants_all = True
        self._wishes: list[tuple[Callable[[str], bool], Wanted | None]] = []
        self._takers: dict[str, Takers] = {}

    def changed(self) -> None:
        """Note that a group was made, deleted or replaced."""
        self._is_stale = True

    def wants_all(self) -> bool:
        """Return whether a group takes every message, or there is no group, which keeps all for groups to
        come.
        """
        if self._is_stale:
            self._is_stale = False
            self._takers.clear()
            groups = list(self._groups)
            self._wants_all = not groups or any(group.wants is None for group in groups)
            selectors = [parsed for group in groups if (parsed := parse_selector(group.selector)) is not None]
            self._differs = any(map(differs_by_message, selectors))
            self._wishes = [
                (compile_pattern(group.pattern), group.wants if group.selector else None) for group in groups
            ]
        return self._wants_all

    def wants(self, message: Message) -> bool:
        """Return whether there is a group that takes the message."""
        if self.wants_all():
            return True
        topic = message.template.topic
        try:
            takers = self._takers[topic]
        except KeyError:
            takers = self._find_takers(topic)
        return takers is None or any(wants(message) for wants in takers)

    def may_want(self, template: EnvelopeTemplate) -> bool:
        """Return whether there may be a group that takes messages of the template, of which none is there
        yet.
        """
        if self.wants_all() or self._differs:
            return True
        return self.wants(Message(0, 0, None, template, 0))

    def _find_takers(self, topic: str) -> Takers:
        if len(self._takers) >= limits.FILTER_VERDICTS_KEPT_MAX:
            self._takers.clear()
        routing_key = self._log.routing_key(topic)
        found: list[Wanted] = []
        takers: Takers = None
        for matches, selects in self._wishes:
            if matches(routing_key):
                if selects is None:
                    break
                found.append(selects)
        else:
            takers = tuple(found)
        self._takers[topic] = takers
        return takers
