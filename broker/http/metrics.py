"""Metrics for Prometheus: read off the broker when they are asked for, in its text format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from broker.admin.views import QueueView
from broker.http.guard import check_operator, identity_of
from broker.http.problems import answer_of
from broker.http.site import Site
from config import limits

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_QUEUE_GAUGES: Final[tuple[tuple[str, str, Callable[[QueueView], int]], ...]] = (
    ("ready", "Messages that may be claimed; of a stream, all there are.", lambda view: view.ready),
    ("in_flight", "Messages claimed and not settled.", lambda view: view.in_flight),
    ("delayed", "Messages that came back and wait for their next attempt.", lambda view: view.delayed),
    ("scheduled", "Messages published for later.", lambda view: view.scheduled),
    ("failed", "Messages that failed and are kept.", lambda view: view.failed),
    ("unmatched", "Ready messages that no consumer's filter wants.", lambda view: view.unmatched),
    ("consumers", "Consumers of the queue.", lambda view: view.consumers),
    ("memory_bytes", "Memory that messages of the queue take.", lambda view: view.memory_bytes),
)


def line(name: str, value: float, **labels: str) -> str:
    """One sample."""
    text = ",".join(f'{label}="{of.translate(_ESCAPES)}"' for label, of in labels.items())
    return f"{name}{{{text}}} {value}\n" if text else f"{name} {value}\n"


def head(name: str, kind: str, help_text: str) -> str:
    """What stands before the samples of a metric."""
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


def metrics_endpoint(site: Site) -> Callable[[Request], object]:
    """`GET /metrics`."""

    async def metrics(request: Request) -> Response:
        try:
            check_operator(identity_of(request.scope), is_looking=True)
            site.admin.check()
            views = await site.queues()
        except Exception as error:
            return answer_of(error)
        return StreamingResponse(_written(site, views), media_type=CONTENT_TYPE_LATEST)

    return metrics


async def _written(site: Site, views: list[QueueView]) -> AsyncIterator[str]:
    yield "".join(_node_lines(site, views))
    shown = views[: limits.METRICS_QUEUES_MAX]
    for suffix, help_text, value_of in _QUEUE_GAUGES:
        name = f"sluicemq_queue_{suffix}"
        yield head(name, "gauge", help_text)
        for begin in range(0, len(shown), limits.LISTED_QUEUES_PER_STEP):
            part = shown[begin : begin + limits.LISTED_QUEUES_PER_STEP]
            yield "".join([line(name, value_of(view), queue=view.name) for view in part])
            await asyncio.sleep(0)


def _node_lines(site: Site, views: list[QueueView]) -> Iterable[str]:
    node = site.node.view()
    yield head("sluicemq_info", "gauge", "What runs here.")
    yield line("sluicemq_info", 1, version=node.version, storage=node.storage)
    gauges = {
        "uptime_seconds": ("How long the broker runs.", node.uptime_ms / 1000),
        "memory_resident_bytes": ("Memory of the process that lies in RAM.", node.memory_bytes),
        "connections": ("Clients connected by MQTT and AMQP.", site.node.connection_count()),
        "queues": ("Queues there are.", len(views)),
        "messages_ready": ("Messages that may be claimed, all queues.", sum(v.ready for v in views)),
        "messages_in_flight": ("Messages claimed, all queues.", sum(v.in_flight for v in views)),
    }
    for suffix, (help_text, value) in gauges.items():
        yield head(f"sluicemq_{suffix}", "gauge", help_text)
        yield line(f"sluicemq_{suffix}", value)
    yield head("sluicemq_cpu_seconds_total", "counter", "Processor time the process took.")
    yield line("sluicemq_cpu_seconds_total", node.cpu_seconds)
