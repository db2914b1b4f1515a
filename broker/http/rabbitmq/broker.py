"""The broker itself, its clients and its health in RabbitMQ's API."""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterable
from typing import Any, Final

from starlette.responses import Response

from broker.connections.connection_views import NODE, ConnectionView
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.asking import Asking, Calls, OpenCall, answer, nothing
from broker.http.rabbitmq.listing import listing
from broker.http.site import Site
from broker.http.totals import NO_RATES, QueueTotals, Rates, totals_of
from broker.http.v1.overview import check_workers
from broker.version import PRODUCT, RABBITMQ_VERSION, VERSION
from config import limits
from queue_manager.api import EXCHANGE_TYPES, QueueView

_PROTOCOLS: Final = {"mqcore": "http/mqcore", "mqcores": "https/mqcore"}
"""Of listeners that RabbitMQ would call otherwise."""


calls: Final = Calls()


@calls.add("GET", "/overview")
async def overview(asking: Asking) -> Response:
    """Show sums over the virtual hosts that the user may enter."""
    places = asking.places()
    totals, rates, queue_count, exchange_count = await _sums(places)
    names = {place.vhost for place in places}
    connections = [view for view in await asking.site.node.connections() if view.description.vhost in names]
    listeners = _listeners(asking)
    return answer(
        {
            "management_version": RABBITMQ_VERSION,
            "rates_mode": "basic",
            "sample_retention_policies": {"global": [60], "basic": [60], "detailed": [60]},
            "exchange_types": [
                {"name": name, "description": "", "enabled": True} for name in sorted(EXCHANGE_TYPES)
            ],
            "product_version": VERSION,
            "product_name": PRODUCT,
            "rabbitmq_version": RABBITMQ_VERSION,
            "cluster_name": NODE,
            "erlang_version": "none",
            "erlang_full_version": f"Python {platform.python_version()}",
            "disable_stats": False,
            "enable_queue_totals": False,
            "message_stats": shapes.message_stats(totals, rates),
            "churn_rates": {},
            "queue_totals": shapes.message_counts(totals.ready + totals.delayed, totals.in_flight, rates),
            "object_totals": {
                "channels": sum(len(each.description.channels) for each in connections),
                "connections": len(connections),
                "consumers": sum(len(shapes.consumers_of(each)) for each in connections),
                "exchanges": exchange_count,
                "queues": queue_count,
            },
            "statistics_db_event_queue": 0,
            "node": NODE,
            "listeners": listeners,
            "contexts": _contexts(listeners),
        }
    )


def _contexts(listeners: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return where this API is."""
    context = {"node": NODE, "description": "RabbitMQ Management", "path": "/"}
    return [{**context, "port": str(each["port"])} for each in listeners if each["protocol"] == "http"]


def _listeners(asking: Asking) -> list[dict[str, Any]]:
    return [
        {
            "node": NODE,
            "protocol": _PROTOCOLS.get(each.name, each.name),
            "ip_address": each.bind,
            "port": each.port,
            "socket_opts": {},
        }
        for each in asking.site.node.listeners()
    ]


@calls.add("GET", "/nodes")
async def nodes(asking: Asking) -> Response:
    """List the one node there is."""
    asking.check_monitoring()
    return answer([await _node_item(asking)])


@calls.add("GET", "/nodes/{node}")
async def node(asking: Asking) -> Response:
    """Show the one node there is, by its name."""
    asking.check_monitoring()
    if asking.part("node") != NODE:
        raise Problem(404, "not_found", "Not Found")
    return answer(await _node_item(asking))


@calls.add("GET", "/nodes/{node}/memory")
async def memory(asking: Asking) -> Response:
    """Tell that what takes the memory is not known, as RabbitMQ says it."""
    await node(asking)
    return answer({"memory": "not_available"})


@calls.add("GET", "/auth/attempts/{node}")
async def auth_attempts(asking: Asking) -> Response:
    """List nothing: the log and the metrics tell of logins."""
    await node(asking)
    return answer([])


@calls.add("POST", "/rebalance/queues")
async def rebalance(asking: Asking) -> Response:
    """Do nothing: all queues are on the one node there is."""
    asking.check_administrator()
    return nothing()


async def _node_item(asking: Asking) -> dict[str, Any]:
    view = await asking.site.node.whole_view()
    return {
        "name": NODE,
        "type": "disc",
        "running": True,
        "os_pid": str(view.pid),
        "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "proc_total": 0,
        "mem_limit": 0,
        "disk_free_limit": 0,
        "enabled_plugins": [],
        "rabbitmq_version": RABBITMQ_VERSION,
        "uptime": view.uptime_ms,
        "mem_used": view.memory_bytes,
        "mem_alarm": False,
        "disk_free_alarm": False,
        "partitions": [],
        "being_drained": False,
        "run_queue": 0,
        "processors": max(1, len(asking.site.node.workers_up())),
        "rates_mode": "basic",
        "applications": [{"name": PRODUCT, "description": PRODUCT, "version": VERSION}],
    }


# clients


@calls.add("GET", "/connections", "/vhosts/{vhost}/connections")
async def connections(asking: Asking) -> Response:
    """List the clients that are connected; without a tag for more, only the user's own."""
    views = await _connections(asking)
    if not asking.login.is_monitoring:
        views = [view for view in views if view.description.user == asking.login.user]
    return await listing(
        views,
        lambda view: shapes.connection(view),
        asking.query,
        lambda view: view.name,
    )


async def _connections(asking: Asking) -> list[ConnectionView]:
    """Return those of the virtual host that the path names, or all; raises Problem."""
    views = await asking.site.node.connections()
    if not asking.part("vhost"):
        return views
    vhost = asking.place().vhost
    return [view for view in views if view.description.vhost == vhost]


@calls.add("GET", "/connections/{name}")
async def connection(asking: Asking) -> Response:
    """Show one connection, by its name."""
    for view in await asking.site.node.connections():
        mine = asking.login.is_monitoring or view.description.user == asking.login.user
        if mine and view.name == asking.part("name"):
            return answer(shapes.connection(view))
    raise Problem(404, "not_found", "Not Found")


@calls.add("GET", "/connections/username/{user}")
async def user_connections(asking: Asking) -> Response:
    """List the connections of a user."""
    return answer([shapes.connection(view) for view in await _of_user(asking)])


@calls.add("DELETE", "/connections/username/{user}")
async def close_user_connections(asking: Asking) -> Response:
    """Send all clients of a user away."""
    for view in await _of_user(asking):
        await asking.site.node.close_connection(view.id, _reason(asking))
    return nothing()


async def _of_user(asking: Asking) -> list[ConnectionView]:
    user = asking.part("user")
    if user != asking.login.user:
        asking.check_administrator()
    return [view for view in await asking.site.node.connections() if view.description.user == user]


def _reason(asking: Asking) -> str:
    return asking.request.headers.get("x-reason", "Closed via management plugin")[:255]


@calls.add("DELETE", "/connections/{name}")
async def close_connection(asking: Asking) -> Response:
    """Send a client away."""
    for view in await asking.site.node.connections():
        mine = asking.login.is_administrator or view.description.user == asking.login.user
        if mine and view.name == asking.part("name"):
            await asking.site.node.close_connection(view.id, _reason(asking))
            return nothing()
    raise Problem(404, "not_found", "Not Found")


@calls.add("GET", "/channels", "/vhosts/{vhost}/channels")
async def channels(asking: Asking) -> Response:
    """Return all channels."""
    asking.check_monitoring()
    found = [(view, channel) for view in await _connections(asking) for channel in view.description.channels]
    return await listing(found, lambda pair: shapes.channel(*pair), asking.query)


@calls.add("GET", "/consumers", "/consumers/{vhost}")
async def consumers(asking: Asking) -> Response:
    """Return all consumers."""
    asking.check_monitoring()
    found = [
        (view, number, consumer)
        for view in await _connections(asking)
        for number, consumer in shapes.consumers_of(view)
    ]
    return await listing(found, lambda each: shapes.consumer(*each), asking.query)


# small


@calls.add("GET", "/whoami")
async def whoami(asking: Asking) -> Response:
    """Show the user that asks."""
    login = asking.login
    return answer({"name": login.user, "tags": sorted(login.tags)})


@calls.add("GET", "/cluster-name")
async def cluster_name(asking: Asking) -> Response:
    """Show the name of the broker."""
    return answer({"name": NODE})


@calls.add("GET", "/feature-flags", "/deprecated-features", "/deprecated-features/used")
async def empty(asking: Asking) -> Response:
    """List nothing, for what RabbitMQ has and this broker has none of."""
    return answer([])


@calls.add("GET", "/extensions")
async def extensions(asking: Asking) -> Response:
    """Answer what rabbitmqadmin asks first."""
    return answer([{"javascript": "dispatcher.js"}])


@calls.add("GET", "/auth")
async def auth(asking: Asking) -> Response:
    """Return how one logs in."""
    return answer({"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


@calls.add(
    "GET",
    "/aliveness-test/{vhost}",
    "/health/checks/alarms",
    "/health/checks/local-alarms",
    "/health/checks/virtual-hosts",
    "/health/checks/metadata-store/initialized",
    "/health/checks/metadata-store/initialized/with-data",
    "/health/checks/node-is-quorum-critical",
    "/health/checks/quorum-queues-without-elected-leaders/all-vhosts/",
    "/health/checks/quorum-queues-without-elected-leaders/all-vhosts/{pattern}",
    "/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/",
    "/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/{pattern}",
)
async def alive(asking: Asking) -> Response:
    """Return whether messages are taken and made durable."""
    if asking.part("vhost"):
        asking.place()
    return await _alive(asking.site)


async def _alive(site: Site) -> Response:
    site.admin.check()
    check_workers(site)
    await site.client.commits.durable()
    return answer({"status": "ok"})


async def _version(site: Site) -> Response:
    return answer(RABBITMQ_VERSION)


async def _has_room(site: Site) -> Response:
    """Return whether one client more would be let in."""
    count = await site.node.connection_count()
    if count < limits.CONNECTIONS_MAX * max(1, len(site.node.workers_up())):
        return answer({"status": "ok"})
    return answer({"status": "failed", "reason": "node connection limit is reached"}, 503)


@calls.add("GET", "/health/checks/{check}/{what}")
async def listens(asking: Asking) -> Response:
    """Return whether a port, or a protocol, is listened on."""
    wanted = asking.part("what")
    listeners = _listeners(asking)
    if asking.part("check") == "port-listener":
        ports = [each["port"] for each in listeners]
        if not wanted.isdigit():
            raise Problem(400, "bad_request", "a port is a number")
        if int(wanted) in ports:
            return answer({"status": "ok", "port": int(wanted)})
        missing: dict[str, Any] = {"missing": int(wanted), "ports": ports}
    else:
        protocols = sorted({each["protocol"] for each in listeners})
        aliases = ["amqp091", "amqp10"] if "amqp" in protocols else []  # one port for both
        if wanted in (*protocols, *aliases):
            return answer({"status": "ok", "protocol": wanted, "protocols": protocols})
        missing = {"missing": wanted, "protocols": protocols}
    return answer({"status": "failed", "reason": "No active listener", **missing}, 503)


async def _sums(places: Iterable[Site]) -> tuple[QueueTotals, Rates, int, int]:
    """Return sums over the queues of some virtual hosts, and how many queues and exchanges these have."""
    views: list[QueueView] = []
    rates, exchange_count = NO_RATES, 0
    for place in places:
        found = await place.queues()
        await place.meter.look(found)
        rates = rates.plus(await place.meter.total(found))
        views += found
        exchange_count += len(await place.admin.exchanges()) + 1
    return await totals_of(views), rates, len(views), exchange_count


OPEN_CALLS: Final[dict[str, OpenCall]] = {
    "/version": _version,
    "/health/checks/ready-to-serve-clients": _alive,
    "/health/checks/is-in-service": _alive,
    "/health/checks/below-node-connection-limit": _has_room,
}
"""What anybody may ask for, by its path: probes have no password."""
