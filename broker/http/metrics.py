"""Metrics for Prometheus: read off the broker when they are asked for, in its text format 0.0.4, which is
written in steps here: libraries write all of many thousand queues at once.

Nothing is counted for them on the way of a message. `/metrics` has series for a bounded number of queues and
groups, `/metrics/detailed` for all of them, and RabbitMQ's names for those besides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from broker.admin.admin_views import GroupView, QueueView
from broker.engine.commit_stats import BOUNDS_S
from broker.http.guard import check_operator, identity_of
from broker.http.problems import answer_of
from broker.http.site import Site
from broker.http.totals import QueueTotals, totals_of
from broker.links.supervised_link import RUNNING, LinkView
from broker.stepping import in_steps, one_by_one
from config import limits
from queue_manager.errors import QueueNotFound

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_Single = tuple[str, str, float]
_QueueMetric = tuple[str, str, Callable[[QueueView], float]]
_QUEUES: Final[tuple[_QueueMetric, ...]] = (
    ("ready", "Messages that may be claimed; of a stream, all there are.", lambda v: v.ready),
    ("in_flight", "Messages claimed and not settled.", lambda v: v.in_flight),
    ("delayed", "Messages that came back and wait for their next attempt.", lambda v: v.delayed),
    ("scheduled", "Messages published for later.", lambda v: v.scheduled),
    ("failed", "Messages that failed and are kept.", lambda v: v.failed),
    ("unmatched", "Ready messages that no consumer's filter wants.", lambda v: v.unmatched),
    ("unwanted", "Messages no group wanted, kept for groups to come.", lambda v: v.unwanted),
    (
        "unwanted_dropped_total",
        "Messages dropped or dead-lettered because no group wanted them.",
        lambda v: v.unwanted_dropped,
    ),
    ("consumers", "Consumers.", lambda v: v.consumers),
    ("publish_paused", "Whether publishes are refused, by an operator.", lambda v: v.pause.publish),
    ("deliver_paused", "Whether consumers are given nothing.", lambda v: v.pause.deliver),
    ("memory_bytes", "Memory that messages take.", lambda v: v.memory_bytes),
    ("retained_bytes", "Payload that a stream keeps.", lambda v: v.retained_bytes),
    ("published_total", "Messages published since the queue was made.", lambda v: v.published),
    ("delivered_total", "Deliveries, over all groups.", lambda v: v.delivered),
    ("settled_total", "Messages done with, over all groups.", lambda v: v.settled),
    ("redelivered_total", "Deliveries but the first of a message.", lambda v: v.redelivered),
)

_LINKS: Final[tuple[tuple[str, str, Callable[[LinkView], float]], ...]] = (
    ("up", "Whether a link to another broker, or a webhook, works.", lambda v: v.state == RUNNING),
    ("messages_total", "Messages it passed on.", lambda v: v.moved),
    ("pending", "Messages it has under way.", lambda v: v.pending),
    ("restarts_total", "Times it began anew.", lambda v: v.restarts),
)

_COUNTED: Final = ("control_refused", "late_settles", "events_published", "events_dropped")

_RABBITMQ: Final[tuple[_QueueMetric, ...]] = (
    ("messages_ready", "Messages ready.", lambda v: v.ready + v.delayed),
    ("messages_unacked", "Messages delivered and not acknowledged.", lambda v: v.in_flight),
    ("messages", "Both.", lambda v: v.ready + v.delayed + v.in_flight),
    ("consumers", "Consumers.", lambda v: v.consumers),
    ("messages_published_total", "Messages published.", lambda v: v.published),
)

_GroupMetric = tuple[str, str, Callable[[GroupView], float]]
_GROUPS: Final[tuple[_GroupMetric, ...]] = (
    ("lag", "Messages the group has not done.", lambda v: v.lag),
    ("oldest_age_seconds", "Age of the oldest of those.", lambda v: v.oldest_age_ms / 1000),
    ("in_flight", "Messages claimed and not settled.", lambda v: v.in_flight),
    ("failed", "Messages that failed and are kept.", lambda v: v.failed),
    ("consumers", "Consumers.", lambda v: v.consumers),
    ("idle_seconds", "How long the group has not been in use.", lambda v: v.idle_ms / 1000),
    ("lost_total", "Messages that retention took before they were read.", lambda v: v.lost),
    ("redelivered_total", "Deliveries but the first of a message.", lambda v: v.redelivered),
)

_QUOTAS: Final = {
    "most": "What a virtual host or user may have; 0: as much as there is room for.",
    "used": "What it has of that; 0 of what flows.",
    "refused_total": "How often something was refused for that, or had to wait.",
}

_DROPPED: Final = {
    "dropped_session_expired": "session_expired",
    "dropped_session_full": "session_full",
    "dropped_slow_consumer": "slow_consumer",
    "dropped_too_large": "too_large",
    "publishes_refused": "refused",
    "publishes_unrouted": "unrouted",
}


def line(name: str, value: float, /, **labels: str) -> str:
    """Write one sample."""
    text = ",".join(f'{label}="{of.translate(_ESCAPES)}"' for label, of in labels.items())
    return f"{name}{{{text}}} {value}\n" if text else f"{name} {value}\n"


def head(name: str, help_text: str, kind: str = "") -> str:
    """Write what stands before the samples of a metric: a gauge, or a counter, called `..._total`."""
    kind = kind or ("counter" if name.endswith("_total") else "gauge")
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


def metrics_endpoint(site: Site, *, detailed: bool) -> Callable[[Request], Awaitable[Response]]:
    """Serve `GET /metrics` and `GET /metrics/detailed`."""

    async def metrics(request: Request) -> Response:
        try:
            check_operator(identity_of(request.scope), is_looking=True)
            site.admin.check()
            views = await site.queues()
            shown = views if detailed else views[: limits.METRICS_QUEUES_MAX]
            grouped = views if detailed else views[: limits.METRICS_GROUPS_QUEUES_MAX]
            groups = await _groups_of(site, grouped)
        except Exception as error:
            return answer_of(error)
        written = _written(site, views, shown, groups, detailed=detailed)
        return StreamingResponse(written, media_type=CONTENT_TYPE)

    return metrics


async def _groups_of(site: Site, views: Sequence[QueueView]) -> list[GroupView]:
    groups: list[GroupView] = []
    async for view in one_by_one(views):
        if view.groups:
            try:
                groups += await site.admin.groups(view.name)
            except QueueNotFound:
                pass  # it went meanwhile
    return groups


async def _written(
    site: Site,
    views: list[QueueView],
    shown: Sequence[QueueView],
    groups: Sequence[GroupView],
    *,
    detailed: bool,
) -> AsyncIterator[str]:
    yield "".join(_node_lines(site, len(views), await totals_of(views)))
    yield "".join(_commit_lines(site))
    yield "".join(_storage_lines(site))
    yield "".join(_quota_lines(site))
    yield "".join(_link_lines(site))
    families: list[tuple[str, tuple[_QueueMetric, ...], dict[str, str]]] = [("sluicemq_queue_", _QUEUES, {})]
    if detailed:
        families.append(("rabbitmq_queue_", _RABBITMQ, {"vhost": "/"}))
    for prefix, metrics, labels in families:
        for suffix, help_text, value_of in metrics:
            yield head(prefix + suffix, help_text)
            async for part in in_steps(shown):
                lines = [line(prefix + suffix, +value_of(v), **labels, queue=v.name) for v in part]
                yield "".join(lines)
    for suffix, help_text, group_value in _GROUPS:
        name = f"sluicemq_group_{suffix}"
        yield head(name, help_text)
        async for some in in_steps(groups):
            yield "".join([line(name, group_value(v), queue=v.queue, group=v.group_id) for v in some])


def _node_lines(site: Site, queue_count: int, totals: QueueTotals) -> Iterable[str]:
    node = site.node.view()
    lag = site.node.lag()
    yield head("sluicemq_info", "What runs here.")
    yield line("sluicemq_info", 1, version=node.version, storage=node.storage, python=node.python)
    uncommitted = site.client.turns.uncommitted_bytes()
    access = site.hub.access
    plain: list[_Single] = [
        ("uptime_seconds", "How long the broker runs.", node.uptime_ms / 1000),
        ("memory_resident_bytes", "Memory of the process in RAM.", node.memory_bytes),
        ("cpu_seconds_total", "Processor time the process took.", node.cpu_seconds),
        ("connections", "Clients connected by MQTT and AMQP.", site.node.connection_count()),
        ("queues", "Queues there are.", queue_count),
        ("queues_shown", "Of those, in this answer.", min(queue_count, limits.METRICS_QUEUES_MAX)),
        ("messages_ready", "Messages that may be claimed, all queues.", totals.ready),
        ("messages_in_flight", "Messages claimed, all queues.", totals.in_flight),
        ("messages_failed", "Messages failed and kept, all queues.", totals.failed),
        ("messages_published_total", "Messages published, all queues.", totals.published),
        ("messages_delivered_total", "Deliveries, all queues.", totals.delivered),
        ("messages_settled_total", "Messages done with, all queues.", totals.settled),
        ("uncommitted_bytes", "Memory of what is not durable yet.", uncommitted),
        ("bans", "Clients, users and addresses that are kept out.", len(access.bans.all())),
        ("banned_logins_total", "Logins refused for a ban.", access.bans.refused_count),
        (
            "flapping_bans_total",
            "Clients banned since they connected too often.",
            access.flapping.banned_count,
        ),
        ("loop_stalls_total", "Steps that held up everybody else.", lag.stall_count),
        ("loop_stalled_seconds_total", "All of them together.", lag.stalled_ms / 1000),
        ("loop_stall_seconds_max", "The longest of them.", lag.longest_ms / 1000),
    ]
    counters = asdict(site.node.counters())
    plain += [(f"{name}_total", "See docs/http.md.", counters[name]) for name in _COUNTED]
    yield from map(_single, plain)
    yield head("sluicemq_messages_dropped_total", "Messages that went nowhere, by reason.")
    for name, reason in _DROPPED.items():
        yield line("sluicemq_messages_dropped_total", counters[name], reason=reason)


def _quota_lines(site: Site) -> Iterable[str]:
    """Write the quotas that are set, and those that were in somebody's way."""
    views = site.client.quotas.views()
    found = [(view, quota) for view in views for quota in view.quotas if quota.most or quota.refused]
    for suffix, help_text in _QUOTAS.items():
        yield head(f"sluicemq_quota_{suffix}", help_text)
        for view, quota in found[: limits.METRICS_QUOTAS_MAX]:
            value = getattr(quota, suffix.removesuffix("_total"))
            yield line(f"sluicemq_quota_{suffix}", value, scope=view.scope, name=view.name, quota=quota.quota)


def _link_lines(site: Site) -> Iterable[str]:
    """Write how links are, and what they passed on."""
    views = [view for vhost in site.hub.vhosts() for view in site.links.views(vhost)]
    for suffix, help_text, value_of in _LINKS if views else ():
        yield head(f"sluicemq_link_{suffix}", help_text)
        for view in views[: limits.METRICS_LINKS_MAX]:
            labels = {"component": view.component, "vhost": view.vhost, "name": view.name}
            yield line(f"sluicemq_link_{suffix}", +value_of(view), **labels)


def _single(metric: _Single) -> str:
    """Write a metric of the broker, without labels."""
    suffix, help_text, value = metric
    return head(f"sluicemq_{suffix}", help_text) + line(f"sluicemq_{suffix}", value)


def _commit_lines(site: Site) -> Iterable[str]:
    stats = site.client.commits.stats()
    name = "sluicemq_commit_seconds"
    yield head(name, "From closing a commit until it is durable.", "histogram")
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for bound, count in zip(bounds, accumulate(stats.by_duration), strict=True):
        yield line(f"{name}_bucket", count, le=bound)
    yield line(f"{name}_sum", stats.seconds)
    yield line(f"{name}_count", stats.count)
    retries = "Times the store failed and was asked once more."
    yield _single(("commit_records_total", "Records written by commits.", stats.records))
    yield _single(("store_retries_total", retries, stats.retries))


def _storage_lines(site: Site) -> Iterable[str]:
    """Write what the last start took, and the journal, where the store has one."""
    start, journal = site.node.start(), site.node.journal()
    metrics: list[_Single] = [
        ("start_seconds", "How long the start took until clients were let in.", start.seconds),
        (
            "start_replay_seconds",
            "How long the journal took after a crash to hand over what it held, at once or behind the start.",
            start.replay_seconds,
        ),
        ("start_replayed_commits", "Commits that it handed over then.", start.replayed_commits),
    ]
    if journal is not None:
        metrics += [
            ("journal_size_bytes", "Size of the journal's segments.", journal.size_bytes),
            ("journal_segments", "Segments of the journal.", journal.segment_count),
            ("journal_segments_max", "As many may be there.", limits.JOURNAL_SEGMENTS_MAX),
            ("journal_segments_in_use", "Those that cannot be written anew yet.", journal.segments_in_use),
            ("journal_waiting_bytes", "What the database has not on disk yet.", journal.waiting_bytes),
        ]
    yield from map(_single, metrics)
