"""The pages of the broker itself, its clients and what they publish."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from broker.http.pages.visit import Visit
from broker.http.problems import Problem
from broker.http.v1.listings import list_retained, list_sessions, staging_page
from broker.http.v1.overview import show_overview
from config import limits
from queue_manager.errors import QueueManagerError
from queue_manager.patterns import MATCH_ALL

_TOTALS: Final = (
    ("queues", "Queues"),
    ("ready", "Ready"),
    ("in_flight", "In flight"),
    ("delayed", "Delayed"),
    ("scheduled", "Scheduled"),
    ("failed", "Failed"),
    ("consumers", "Consumers"),
    ("connections", "Connections"),
)
_CHARTS: Final = (
    ("Messages per second", "published_rate delivered_rate settled_rate", "published,delivered,settled"),
    ("Waiting messages", "ready in_flight failed", "ready,in flight,failed"),
    ("Memory in MiB", "memory", "resident"),
    ("Processor in %", "cpu", "of one core"),
)


async def show_broker(visit: Visit) -> Response:
    """Show numbers and charts of the whole broker."""
    site = visit.site
    overview = asdict(await show_overview(site))
    ports = {listener.name: listener.port for listener in site.node.listeners()}
    return visit.page(
        "overview.html",
        overview=overview,
        queues=(await site.queues())[: limits.HTTP_PAGE_ITEMS_DEFAULT],
        totals=_TOTALS,
        charts=_CHARTS,
        ports={"mqtt": 1883, **ports},
        host=visit.request.headers.get("host", "localhost"),
    )


async def show_connections(visit: Visit) -> Response:
    """Show the clients that are connected."""
    return await _connections(visit, "connections.html", "Connections", "Nobody is connected.", "")


async def show_sessions(visit: Visit) -> Response:
    """Show MQTT clients with their subscriptions, and sessions that outlive their connection."""
    kept = await list_sessions(visit.site, after=visit.query.get("session", ""))
    nothing = "No MQTT client is connected."
    return await _connections(visit, "sessions.html", "MQTT clients", nothing, "MQTT", sessions=kept)


async def _connections(
    visit: Visit, template: str, title: str, nothing: str, protocol: str, **values: Any
) -> Response:
    views = await visit.site.node.connections()
    views = [view for view in views if view.description.protocol.startswith(protocol)]
    after = visit.query.get("after", "0")
    behind = [view for view in views if view.id > (int(after) if after.isdecimal() else 0)]
    items = behind[: limits.HTTP_PAGE_ITEMS_DEFAULT]
    following = items[-1].id if len(behind) > len(items) else None
    return visit.page(
        template, title=title, items=items, nothing=nothing, total=len(views), next=following, **values
    )


async def close_connection(visit: Visit) -> Response:
    """Send a client away."""
    number = visit.part("connection")
    node = visit.site.node
    if not number.isdecimal() or not await node.close_connection(int(number), "closed by an operator"):
        raise Problem(404, "not_found", f"no connection {number}")
    return visit.done("/connections", "closed")


async def show_nodes(visit: Visit) -> Response:
    """Show the nodes of the cluster, and its shards."""
    cluster = visit.site.node.cluster
    return visit.page("nodes.html", cluster=None if cluster is None else cluster.view())


async def tell_node(visit: Visit) -> Response:
    """Have a node hand over its shards, or take some again."""
    cluster, what = visit.site.node.cluster, visit.part("what")
    if cluster is None or what not in ("drain", "resume"):
        raise Problem(404, "not_found", f"no {what} of a node")
    cluster.drain(visit.part("name"), is_wanted=what == "drain")
    return visit.done("/nodes", "changed")


async def show_topics(visit: Visit) -> Response:
    """Show topics to be followed live."""
    return visit.page("topics.html", filter=visit.query.get("filter", "#")[:1000])


async def show_retained(visit: Visit) -> Response:
    """Show retained messages by topic."""
    topic_filter = visit.query.get("filter") or MATCH_ALL
    found, problem = None, ""
    try:
        found = await list_retained(visit.site, after=visit.query.get("after", ""), filter=topic_filter)
    except QueueManagerError as error:
        problem = error.reason
    return visit.page("retained.html", filter=topic_filter, retained=found, problem=problem)


async def show_epochs(visit: Visit) -> Response:
    """Show the producers that stage epochs, in all queues."""
    after = (visit.query.get("queue", ""), visit.query.get("producer", ""))
    found = await staging_page(visit.site, after=after, limit=limits.HTTP_PAGE_ITEMS_DEFAULT)
    return visit.page("epochs.html", epochs=found)
