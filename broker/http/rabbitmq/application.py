"""RabbitMQ's API at `/api`: its paths, and what answers them."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.http.guard import CHALLENGE
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, refusal
from broker.http.rabbitmq.broker import BrokerCalls
from broker.http.rabbitmq.definitions import Definitions
from broker.http.rabbitmq.messages import Messages
from broker.http.rabbitmq.places import Places
from broker.http.rabbitmq.queues import Topology
from broker.http.rabbitmq.users import Users, none_of
from broker.http.rabbitmq.vhosts import Vhosts
from broker.http.site import Site

PREFIX: Final = "/api"

_FROM_FILES: Final = "queues get theirs by arguments, or from a file of definitions"
_ABSENT: Final = (
    (("/policies", "/policies/{vhost}"), "/policies/{vhost}/{name}", "policies", _FROM_FILES),
    (
        ("/operator-policies", "/operator-policies/{vhost}"),
        "/operator-policies/{vhost}/{name}",
        "operator policies",
        _FROM_FILES,
    ),
    (
        ("/parameters", "/parameters/{component}", "/parameters/{component}/{vhost}"),
        "/parameters/{component}/{vhost}/{name}",
        "parameters",
        "limits of virtual hosts are set at /api/vhost-limits",
    ),
    (
        ("/global-parameters",),
        "/global-parameters/{name}",
        "global parameters",
        "the configuration file has the settings",
    ),
)
"""What RabbitMQ keeps and this broker does not: where it is listed, where one of it is, and what there is
instead.
"""

Call = Callable[[Asking], Awaitable[Response]]
_Row = tuple[str, str, Call]


def rabbitmq_routes(site: Site) -> list[Route]:
    """The routes, to be matched by the path as it was sent."""
    node = f"sluicemq@{socket.gethostname()}"
    places = Places(site)
    calls = [
        *_broker_calls(BrokerCalls(site, places, node)),
        *_vhost_calls(Vhosts(site, node)),
        *_topology_calls(Topology(site, places, node)),
        *_message_calls(Messages(places)),
        *_definition_calls(Definitions(site, places)),
        *_user_calls(Users(site, places)),
        *_absent_calls(places),
    ]
    return [*_joined(calls), Route(f"{PREFIX}/{{rest:path}}", _served(_nowhere))]


def _broker_calls(broker: BrokerCalls) -> list[_Row]:
    return [
        ("GET", "/overview", broker.overview),
        ("GET", "/whoami", broker.whoami),
        ("GET", "/nodes", broker.nodes),
        ("GET", "/nodes/{node}", broker.node),
        ("GET", "/cluster-name", broker.cluster_name),
        ("GET", "/extensions", broker.extensions),
        ("GET", "/auth", broker.auth),
        ("GET", "/connections", broker.connections),
        ("GET", "/connections/{name}", broker.connection),
        ("DELETE", "/connections/{name}", broker.close_connection),
        ("GET", "/vhosts/{vhost}/connections", broker.connections),
        ("GET", "/channels", broker.channels),
        ("GET", "/vhosts/{vhost}/channels", broker.channels),
        ("GET", "/consumers", broker.consumers),
        ("GET", "/consumers/{vhost}", broker.consumers),
        ("GET", "/aliveness-test/{vhost}", broker.alive),
        ("GET", "/health/checks/alarms", broker.alive),
        ("GET", "/health/checks/local-alarms", broker.alive),
        ("GET", "/health/checks/virtual-hosts", broker.alive),
        ("GET", "/health/checks/{check}/{what}", broker.listens),
        ("GET", "/feature-flags", broker.empty),
        ("GET", "/topic-permissions", broker.empty),
    ]


def _vhost_calls(vhosts: Vhosts) -> list[_Row]:
    return [
        ("GET", "/vhosts", vhosts.list),
        ("GET", "/vhosts/{name}", vhosts.show),
        ("PUT", "/vhosts/{name}", vhosts.make),
        ("DELETE", "/vhosts/{name}", vhosts.delete),
        ("GET", "/vhost-limits", vhosts.limits),
        ("GET", "/vhost-limits/{name}", vhosts.limits),
        ("PUT", "/vhost-limits/{name}/{limit}", vhosts.set_limit),
        ("DELETE", "/vhost-limits/{name}/{limit}", vhosts.clear_limit),
    ]


def _topology_calls(topology: Topology) -> list[_Row]:
    return [
        ("GET", "/queues", topology.queues),
        ("GET", "/queues/{vhost}", topology.queues),
        ("GET", "/queues/{vhost}/{queue}", topology.queue),
        ("PUT", "/queues/{vhost}/{queue}", topology.declare_queue),
        ("DELETE", "/queues/{vhost}/{queue}", topology.delete_queue),
        ("DELETE", "/queues/{vhost}/{queue}/contents", topology.purge_queue),
        ("GET", "/queues/{vhost}/{queue}/bindings", topology.bindings),
        ("GET", "/exchanges", topology.exchanges),
        ("GET", "/exchanges/{vhost}", topology.exchanges),
        ("GET", "/exchanges/{vhost}/{exchange}", topology.exchange),
        ("PUT", "/exchanges/{vhost}/{exchange}", topology.declare_exchange),
        ("DELETE", "/exchanges/{vhost}/{exchange}", topology.delete_exchange),
        ("GET", "/exchanges/{vhost}/{exchange}/bindings/{side}", topology.bindings),
        ("GET", "/bindings", topology.bindings),
        ("GET", "/bindings/{vhost}", topology.bindings),
        ("GET", "/bindings/{vhost}/e/{source}/q/{queue}", topology.bindings),
        ("POST", "/bindings/{vhost}/e/{source}/q/{queue}", topology.bind),
        ("GET", "/bindings/{vhost}/e/{source}/q/{queue}/{key}", topology.binding),
        ("DELETE", "/bindings/{vhost}/e/{source}/q/{queue}/{key}", topology.unbind),
        ("GET", "/bindings/{vhost}/e/{source}/e/{destination}", topology.bindings),
        ("POST", "/bindings/{vhost}/e/{source}/e/{destination}", topology.bind),
        ("GET", "/bindings/{vhost}/e/{source}/e/{destination}/{key}", topology.binding),
        ("DELETE", "/bindings/{vhost}/e/{source}/e/{destination}/{key}", topology.unbind),
    ]


def _message_calls(messages: Messages) -> list[_Row]:
    return [
        ("POST", "/queues/{vhost}/{queue}/get", messages.get),
        ("POST", "/exchanges/{vhost}/{exchange}/publish", messages.publish),
    ]


def _definition_calls(definitions: Definitions) -> list[_Row]:
    return [
        ("GET", "/definitions", definitions.export),
        ("GET", "/definitions/{vhost}", definitions.export),
        ("POST", "/definitions", definitions.load),
        ("POST", "/definitions/{vhost}", definitions.load),
    ]


def _user_calls(users: Users) -> list[_Row]:
    changing = ("/users/{user}", "/permissions/{vhost}/{user}", "/topic-permissions/{vhost}/{user}")
    return [
        ("GET", "/users", users.users),
        ("GET", "/users/{user}", users.user),
        ("GET", "/users/{user}/permissions", users.permissions),
        ("GET", "/permissions", users.permissions),
        ("GET", "/permissions/{vhost}/{user}", users.permissions),
        ("GET", "/vhosts/{vhost}/permissions", users.permissions),
        *[(method, path, users.refuse_change) for path in changing for method in ("PUT", "DELETE")],
    ]


def _absent_calls(places: Places) -> list[_Row]:
    calls: list[_Row] = []
    for lists, item, kind, instead in _ABSENT:
        absent = none_of(kind, instead, places)
        calls += [("GET", path, absent["list"]) for path in lists]
        calls += [("GET", item, absent["show"]), ("PUT", item, absent["refuse"])]
        calls.append(("DELETE", item, absent["refuse"]))
    return calls


def _joined(calls: list[_Row]) -> list[Route]:
    """One route for each path: which methods it has is told where another is used."""
    by_path: dict[str, dict[str, Call]] = {}
    for method, path, call in calls:
        by_path.setdefault(path, {})[method] = call
    return [
        Route(PREFIX + path, _served(call), methods=[method])
        for path, methods in by_path.items()
        for method, call in methods.items()
    ]


def _served(call: Call) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            if "authorization" not in request.headers:
                raise Problem(401, "not_authorised", "log in first", headers=CHALLENGE)
            return await call(Asking(request))
        except Exception as error:
            return refusal(error)

    return serve


async def _nowhere(asking: Asking) -> Response:
    raise Problem(404, "not_found", "Not Found")
