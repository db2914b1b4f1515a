"""Which of the consumers with credit may have messages, where that is not all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue_manager.consumer import Consumer
    from queue_manager.group import Group


def entitled(group: Group, takers: list[Consumer]) -> list[Consumer]:
    """Those of `takers` (who have credit) that come first: the single active one, or the highest priority."""
    if group.queue.policy.single_active:
        active = group.active_consumer
        if active is None:
            active = group.active_consumer = _next_in_line(group)
        return [active] if active in takers else []
    if not takers:
        return takers
    highest = max(consumer.priority for consumer in takers)
    return [consumer for consumer in takers if consumer.priority == highest]


def pass_on(group: Group) -> None:
    """The active consumer let a lease end: it goes to the end of the line, so that another has its turn."""
    active = group.active_consumer
    group.active_consumer = None
    if active in group.consumers:
        group.consumers.remove(active)
        group.active_consumer = _next_in_line(group) if group.consumers else active
        group.consumers.append(active)


def _next_in_line(group: Group) -> Consumer:
    """The consumer of the highest priority; of equals the one waiting longest."""
    return max(group.consumers, key=lambda consumer: consumer.priority)
