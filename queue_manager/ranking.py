"""Which of the consumers with credit may have messages, where that is not all of them.

A consumer that let a lease end is late: it stands back while another one could have what it would get, until
it settles something or has waited long enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config import limits

if TYPE_CHECKING:
    from queue_manager.consumer import Consumer
    from queue_manager.group import Group


def entitled(group: Group, takers: list[Consumer]) -> list[Consumer]:
    """Those of `takers` (who have credit) that come first.

    That is the single active one, or those of the highest priority that do not stand back.
    """
    if group.queue.policy.single_active:
        active = group.active_consumer
        if active is None:
            active = group.active_consumer = _next_in_line(group)
        return [active] if active in takers else []
    takers = [consumer for consumer in takers if not stands_back(group, consumer)]
    if not takers:
        return takers
    for consumer in takers:
        consumer.late_held = -1  # nobody else could, or it did what it had to
    highest = max(consumer.priority for consumer in takers)
    return [consumer for consumer in takers if consumer.priority == highest]


def is_ranked(group: Group) -> bool:
    """Whether a group's consumers with credit are not all alike."""
    return group.queue.policy.single_active or any(
        consumer.priority or consumer.is_late() for consumer in group.consumers
    )


def stands_back(group: Group, consumer: Consumer) -> bool:
    """Whether it is late and another consumer that is not, with credit or without, may have its messages."""
    if not consumer.is_late():
        return False
    selection = group.selection
    for other in group.consumers:
        if not other.is_late() and (selection is None or selection.covers(other, consumer)):
            return True
    return False


def lease_ended(group: Group, consumer: Consumer, now_ms: int) -> None:
    """The consumer let leases end, and does not hold these claims any more."""
    if group.queue.policy.single_active or len(group.consumers) < 2 or consumer not in group.consumers:
        return
    consumer.late_held = len(consumer.in_flight)
    group.is_ranked = True
    timers = group.queue.manager.timers
    timers.forget(consumer)  # it may have been late before
    timers.set(consumer, now_ms + min(consumer.lease_ms, limits.LATE_CONSUMER_WAIT_MS_MAX))


def pass_on(group: Group) -> bool:
    """The active consumer let a lease end: it goes to the end of the line, so that another has its turn.

    False if there is no other.
    """
    active = group.active_consumer
    group.active_consumer = None
    if active in group.consumers:
        group.consumers.remove(active)
        group.active_consumer = _next_in_line(group) if group.consumers else active
        group.consumers.append(active)
    return group.active_consumer is not active


def _next_in_line(group: Group) -> Consumer:
    """The consumer of the highest priority; of equals the one waiting longest."""
    return max(group.consumers, key=lambda consumer: consumer.priority)
