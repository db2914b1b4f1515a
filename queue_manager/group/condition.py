"""What a message must be like for a group with a pattern or a selector of its own."""

from __future__ import annotations

from queue_manager.cursor.backlog import Wanted
from queue_manager.dispatch.views import View
from queue_manager.filters import MessageFilter, parse_selector
from queue_manager.log.queue_log import QueueLog
from queue_manager.patterns import MATCH_ALL, compile_pattern


def condition_of(log: QueueLog, pattern: str, selector: str) -> Wanted | None:
    """The condition of a group of the queue; None: every message."""
    parsed = parse_selector(selector)
    if pattern == MATCH_ALL and parsed is None:
        return None
    matches = compile_pattern(pattern)
    if parsed is None:
        return lambda message: matches(log.routing_key(message.template.topic))
    selects = condition_of_filter(log, parsed)
    return lambda message: matches(log.routing_key(message.template.topic)) and selects(message)


def condition_of_filter(log: QueueLog, wanted: MessageFilter, key: str = "") -> Wanted:
    """The condition of a filter, asked once for messages alike where that is enough."""
    view = View(key, wanted, 0)
    title = log.title
    fields = log.context.fields
    return lambda message: view.wants(title, message, 1, fields)


def both(first: Wanted | None, second: Wanted) -> Wanted:
    """Both conditions; None holds always."""
    if first is None:
        return second
    always = first
    return lambda message: always(message) and second(message)
