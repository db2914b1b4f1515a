"""The condition that a group with a pattern or selector of its own sets for messages."""

from __future__ import annotations

from queue_manager.cursor.backlog import Wanted
from queue_manager.dispatch.filter_views import View
from queue_manager.filters import MessageFilter, parse_selector
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.patterns import MATCH_ALL, compile_pattern


def condition_of(log: QueueLog, pattern: str, selector: str) -> Wanted | None:
    """Return the condition of a group of the queue; None: every message."""
    parsed = parse_selector(selector)
    if pattern == MATCH_ALL and parsed is None:
        return None
    matches = _condition_of_pattern(log, pattern)
    return matches if parsed is None else both(matches, condition_of_filter(log, parsed))


def _condition_of_pattern(log: QueueLog, pattern: str) -> Wanted:
    """Return the condition of a pattern, asked once for messages of one topic in a row."""
    matches = compile_pattern(pattern)
    last_topic: str | None = None
    last_verdict = False

    def wants(message: Message) -> bool:
        nonlocal last_topic, last_verdict
        topic = message.template.topic
        if topic is not last_topic:
            last_topic = topic
            last_verdict = matches(log.routing_key(topic))
        return last_verdict

    return wants


def condition_of_filter(log: QueueLog, wanted: MessageFilter, key: str = "") -> Wanted:
    """Return the condition of a filter, asked once for messages alike where that is enough."""
    view = View(key, wanted, 0)
    title = log.title
    fields = log.context.fields
    return lambda message: view.wants(title, message, 1, fields)


def both(first: Wanted | None, second: Wanted) -> Wanted:
    """Return both conditions as one; None holds always."""
    if first is None:
        return second
    always = first
    return lambda message: always(message) and second(message)
