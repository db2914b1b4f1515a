"""Parameters and the links made from them in RabbitMQ's API."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response

from broker.connections.connection_views import NODE
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, Calls, answer, nothing
from broker.http.rabbitmq.policies import check_maker
from broker.links.link_directory import FEDERATION, ParameterNotFound
from broker.links.supervised_link import RUNNING, TERMINATED, LinkView
from queue_manager.errors import InvalidArgument

_SHOVEL: Final = "shovel"
_OF_RABBITMQ: Final = (_SHOVEL, "federation-upstream", "federation-upstream-set")
_LIMITS: Final = "vhost-limits"  # of virtual hosts: see `limit_names`

calls: Final = Calls()


@calls.add("GET", "/parameters", "/parameters/{component}", "/parameters/{component}/{vhost}")
async def listed(asking: Asking) -> Response:
    """List parameters, without their passwords."""
    check_maker(asking, is_operator=False)
    component = asking.part("component")
    links = asking.site.links
    try:
        found = [asdict(each) for place in asking.places() for each in links.all(place.vhost, component)]
    except InvalidArgument:
        found = []
    return answer(found)


@calls.add("GET", "/parameters/{component}/{vhost}/{name}")
async def shown(asking: Asking) -> Response:
    """Show one parameter to who may make it, with its passwords, as RabbitMQ does: tools compare them with
    what they would set. What RabbitMQ does not have is shown without.
    """
    check_maker(asking, is_operator=False)
    component = asking.part("component")
    return _shown(asking, component, with_secrets=component in _OF_RABBITMQ)


@calls.add("PUT", "/parameters/{component}/{vhost}/{name}")
async def put(asking: Asking) -> Response:
    """Make or replace a parameter: what runs by it begins at once."""
    check_maker(asking, is_operator=False)
    place = asking.place()
    component = asking.part("component")
    if component == _LIMITS:
        raise Problem(400, "bad_request", "limits of virtual hosts are set at /api/vhost-limits")
    entry = await asking.body("value")
    is_new = await place.links.set(component, place.vhost, asking.part("name"), entry["value"], asking.login)
    return nothing(201 if is_new else 204)


@calls.add("DELETE", "/parameters/{component}/{vhost}/{name}")
async def deleted(asking: Asking) -> Response:
    """Delete a parameter and end what runs by it."""
    check_maker(asking, is_operator=False)
    return await _deleted(asking, asking.part("component"))


def _shown(asking: Asking, component: str, *, with_secrets: bool = False) -> Response:
    place = asking.place()
    try:
        found = place.links.find(component, place.vhost, asking.part("name"), with_secrets=with_secrets)
        return answer(asdict(found))
    except (ParameterNotFound, InvalidArgument):
        raise Problem(404, "not_found", "Not Found") from None


async def _deleted(asking: Asking, component: str) -> Response:
    place = asking.place()
    try:
        await place.links.clear(component, place.vhost, asking.part("name"), asking.login.user)
    except (ParameterNotFound, InvalidArgument):
        raise Problem(404, "not_found", "Not Found") from None
    return nothing()


# federation


@calls.add("GET", "/federation-links", "/federation-links/{vhost}", "/federation-links/{vhost}/state/down")
async def federation_links(asking: Asking) -> Response:
    """List the links of federation, or those alone that do not work."""
    asking.check_monitoring()
    found = [each for place in asking.places() for each in place.links.views(place.vhost, FEDERATION)]
    return answer([_federation_link(each) for each in found if _is_asked(asking, each)])


def _is_asked(asking: Asking, view: LinkView) -> bool:
    return view.state != RUNNING or not asking.request.scope["path"].endswith("/state/down")


def _federation_link(view: LinkView) -> dict[str, Any]:
    entry: dict[str, Any] = {"node": NODE, "vhost": view.vhost, "id": view.name, **view.details}
    entry.pop("fetching", None)
    entry["status"] = "error" if view.state == TERMINATED else view.state
    entry["timestamp"] = _time(view)
    return {**entry, "error": view.reason} if view.state == TERMINATED else entry


def _time(view: LinkView) -> str:
    return datetime.fromtimestamp(view.since_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


# shovels


@calls.add("GET", "/shovels", "/shovels/{vhost}")
async def shovels(asking: Asking) -> Response:
    """List shovels with their states."""
    asking.check_monitoring()
    found = [each for place in asking.places() for each in place.links.views(place.vhost, _SHOVEL)]
    return answer([_shovel(each) for each in found])


def _shovel(view: LinkView) -> dict[str, Any]:
    entry = {"node": NODE, "name": view.name, "vhost": view.vhost, "type": "dynamic", "state": view.state}
    entry["timestamp"] = _time(view)
    if view.state == TERMINATED:
        return {**entry, "reason": view.reason}
    told = {key: value for key, value in view.details.items() if key != "blocked"}
    return {
        **entry,
        **told,
        "src_protocol": "amqp091",
        "dest_protocol": "amqp091",
        "forwarded": view.moved,
        "pending": view.pending,
        "remaining_unacked": told["remaining"],
        "blocked_status": "blocked" if view.details["blocked"] else "running",
    }


@calls.add("GET", "/shovels/vhost/{vhost}/{name}")
async def shovel(asking: Asking) -> Response:
    """Show the parameter of a shovel."""
    asking.check_monitoring()
    return _shown(asking, _SHOVEL)


@calls.add("DELETE", "/shovels/vhost/{vhost}/{name}")
async def delete_shovel(asking: Asking) -> Response:
    """Delete a shovel."""
    check_maker(asking, is_operator=False)
    return await _deleted(asking, _SHOVEL)


@calls.add("DELETE", "/shovels/vhost/{vhost}/{name}/restart")
async def restart_shovel(asking: Asking) -> Response:
    """Have a shovel begin anew."""
    check_maker(asking, is_operator=False)
    place = asking.place()
    try:
        place.links.restart(_SHOVEL, place.vhost, asking.part("name"))
    except ParameterNotFound:
        raise Problem(404, "not_found", "Not Found") from None
    return nothing()
