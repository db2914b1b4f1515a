"""Messages and consumers for tests of filters: a routing key is `<region>/<qty>`."""

from __future__ import annotations

from queue_manager.claims.claim import UNLIMITED, Consumer
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.filters.field_access import Fields
from queue_manager.manager import QueueManager
from queue_manager.queue.queue import Queue
from storage.envelope import EnvelopeTemplate
from tests.unit.queue_manager.managers import NOW_MS, Sink


def fields_of(template: EnvelopeTemplate) -> Fields:
    """As publishers would have set them."""
    region, _, number = template.topic.removeprefix("$queue/jobs/").partition("/")
    return {
        "region": region,
        "qty": int(number or 0),
        "JMSPriority": 4,
        "application-properties.region": region,
    }


def send(manager: QueueManager, *keys: str, now_ms: int = NOW_MS) -> None:
    """Publish one message for each routing key."""
    for key in keys:
        topic = f"$queue/jobs/{key}"
        plan = manager.plan(topic, 0, b"", True)
        plan.aim(manager.publisher.route(topic, now_ms))
        manager.publish(plan, [key.encode()], now_ms)


def select(
    manager: QueueManager,
    queue: Queue,
    selector: str = "",
    group: str = "",
    *,
    pattern: str = "#",
    credit_max: int = UNLIMITED,
    no_ack: bool = False,
    priority: int = 0,
    group_selector: str | None = None,
) -> tuple[Consumer, Sink]:
    """A consumer with a selector, and its sink."""
    sink = Sink()
    consumer = manager.consumption.subscribe(
        queue,
        group,
        pattern,
        sink,
        consumer_id="c",
        credit_max=credit_max,
        no_ack=no_ack,
        exclusive=False,
        lease_ms=30_000,
        priority=priority,
        wanted=consumer_filter(selector, {}),
        group_selector=group_selector,
    )
    return consumer, sink
