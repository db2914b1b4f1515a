"""Metrics for Prometheus: read off the broker when they are asked for, in its text format 0.0.4, which is
written in steps here: libraries write all of many thousand queues at once.

With several workers each series has the label `worker`. `/metrics` has series for a bounded number of queues
and groups, `/metrics/detailed` for all of them, and RabbitMQ's names for those besides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from broker.admin.admin_views import GroupView, QueueView
from broker.admin.cluster import Cluster
from broker.admin.figures import Figure, Figures, single
from broker.http.guard import check_operator, identity_of
from broker.http.problems import answer_of
from broker.http.site import Site
from broker.http.totals import totals_of
from broker.links.supervised_link import RUNNING, LinkView
from broker.stepping import in_steps, one_by_one
from config import limits
from queue_manager.errors import QueueNotFound

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

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
            figures = await _figures_of_all(site)
        except Exception as error:
            return answer_of(error)
        written = _written(site, figures, views, shown, groups, detailed=detailed)
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
    figures: Mapping[str, Sequence[Figure]],
    views: list[QueueView],
    shown: Sequence[QueueView],
    groups: Sequence[GroupView],
    *,
    detailed: bool,
) -> AsyncIterator[str]:
    for text in _figure_lines([figures, await _totals(site, views)]):
        yield text
    yield "".join(_worker_lines(site))
    yield "".join(_link_lines(site))
    worker_of = site.node.worker_of
    families: list[tuple[str, tuple[_QueueMetric, ...], dict[str, str]]] = [("sluicemq_queue_", _QUEUES, {})]
    if detailed:
        families.append(("rabbitmq_queue_", _RABBITMQ, {"vhost": "/"}))
    for prefix, metrics, labels in families:
        for suffix, help_text, value_of in metrics:
            yield head(prefix + suffix, help_text)
            async for part in in_steps(shown):
                lines = [
                    line(prefix + suffix, +value_of(v), **labels, **_at(worker_of(v.name)), queue=v.name)
                    for v in part
                ]
                yield "".join(lines)
    for suffix, help_text, group_value in _GROUPS:
        name = f"sluicemq_group_{suffix}"
        yield head(name, help_text)
        async for some in in_steps(groups):
            yield "".join(
                [
                    line(name, group_value(v), **_at(worker_of(v.queue)), queue=v.queue, group=v.group_id)
                    for v in some
                ]
            )


def _at(worker: str) -> dict[str, str]:
    """Return the label of a worker; "": there is one only, which has none."""
    return {"worker": worker} if worker else {}


async def _figures_of_all(site: Site) -> dict[str, Sequence[Figure]]:
    """Return the figures of all workers, by their names in labels."""
    own = Figures(site.hub, site.node).all()
    others = await site.node.ask_others("figures", "all")
    return {site.node.worker: own, **{str(number): found for number, found in others.items()}}


async def _totals(site: Site, views: Sequence[QueueView]) -> dict[str, Sequence[Figure]]:
    """Return the sums over the queues of each worker."""
    by_worker: dict[str, list[QueueView]] = {site.node.worker: []}
    async for view in one_by_one(views):
        by_worker.setdefault(site.node.worker_of(view.name), []).append(view)
    figures: dict[str, Sequence[Figure]] = {}
    for worker, found in by_worker.items():
        totals = await totals_of(found)
        figures[worker] = [
            single(("queues", "Queues there are.", len(found))),
            single(("messages_ready", "Messages that may be claimed, all queues.", totals.ready)),
            single(("messages_in_flight", "Messages claimed, all queues.", totals.in_flight)),
            single(("messages_failed", "Messages failed and kept, all queues.", totals.failed)),
            single(("messages_published_total", "Messages published, all queues.", totals.published)),
            single(("messages_delivered_total", "Deliveries, all queues.", totals.delivered)),
            single(("messages_settled_total", "Messages done with, all queues.", totals.settled)),
        ]
    shown = min(len(views), limits.METRICS_QUEUES_MAX)
    figures[site.node.worker] = [
        *figures[site.node.worker],
        single(("queues_shown", "Of those, in this answer.", shown)),
    ]
    return figures


def _figure_lines(told: Iterable[Mapping[str, Sequence[Figure]]]) -> Iterator[str]:
    """Write figures of all workers, all samples of a metric together."""
    for figures in told:
        samples: dict[tuple[str, str, str], list[str]] = {}
        for worker, found in figures.items():
            for name, help_text, kind, values in found:
                lines = samples.setdefault((name, help_text, kind), [])
                lines += [
                    line(name + suffix, value, **labels, **_at(worker)) for suffix, labels, value in values
                ]
        yield "".join([head(*metric) + "".join(lines) for metric, lines in samples.items()])


def _worker_lines(site: Site) -> Iterable[str]:
    """Write which workers are there, if there are several."""
    workers = site.node.workers_up()
    if workers:
        yield head("sluicemq_worker_up", "Whether a worker is there; it is started again when it is not.")
        for number, is_up in workers.items():
            yield line("sluicemq_worker_up", +is_up, worker=str(number))
    if site.node.cluster is not None:
        yield from cluster_lines(site.node.cluster)


def cluster_lines(cluster: Cluster) -> Iterator[str]:
    """Write which node has which shards, as this one knows it."""
    view = cluster.view()
    yield head("sluicemq_node_shards", "How many shards a node has, as this one knows it.")
    for each in view.nodes:
        yield line("sluicemq_node_shards", len(each.shards), node=each.name)
    yield head("sluicemq_node_draining", "Whether a node hands over its shards, and takes none.")
    for each in view.nodes:
        yield line("sluicemq_node_draining", +each.is_draining, node=each.name)
    yield head("sluicemq_shard_owned", "Whether a node has the shard.")
    for shard in view.shards:
        yield line("sluicemq_shard_owned", +(shard.node is not None), shard=str(shard.shard))


def _link_lines(site: Site) -> Iterable[str]:
    """Write how links are, and what they passed on."""
    views = [view for vhost in site.hub.vhosts() for view in site.links.views(vhost)]
    for suffix, help_text, value_of in _LINKS if views else ():
        yield head(f"sluicemq_link_{suffix}", help_text)
        for view in views[: limits.METRICS_LINKS_MAX]:
            labels = {"component": view.component, "vhost": view.vhost, "name": view.name}
            labels |= _at(site.node.worker)
            yield line(f"sluicemq_link_{suffix}", +value_of(view), **labels)
