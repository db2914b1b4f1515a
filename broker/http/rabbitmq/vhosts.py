"""Virtual hosts and their limits in RabbitMQ's API."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.access.accounts_of_file import USERS_FILE
from broker.connections.connection_views import NODE
from broker.http.problems import Problem
from broker.http.rabbitmq.account_entries import RIGHTS, with_permission
from broker.http.rabbitmq.asking import NO_ENTRY, Asking, Calls, answer, nothing
from broker.http.rabbitmq.limit_names import limit_asked, limit_field, limits_of
from broker.vhosts.vhost import VhostView
from broker.vhosts.vhost_directory import ProtectedVhost
from queue_manager.address import DEFAULT_VHOST

VHOST_TRAITS: Final = ("description", "tags", "default_queue_type", "protected_from_deletion")

calls: Final = Calls()


@calls.add("GET", "/vhosts")
async def vhosts(asking: Asking) -> Response:
    """List those the user may enter, or all for a user that may look at everything."""
    views = [view for view in await asking.vhosts.all() if _sees(asking, view.name)]
    return answer([await _item(asking, view) for view in views])


@calls.add("GET", "/vhosts/{name}")
async def vhost(asking: Asking) -> Response:
    """Show one virtual host."""
    name = asking.part("name")
    if not _sees(asking, name):
        raise Problem(401, "not_authorised", NO_ENTRY)
    return answer(await _item(asking, await asking.vhosts.view(name)))


@calls.add("PUT", "/vhosts/{name}")
async def declare_vhost(asking: Asking) -> Response:
    """Make a virtual host, or say something else of it."""
    asking.check_administrator()
    body = await asking.body()
    changes = {name: body[name] for name in VHOST_TRAITS if body.get(name) is not None}
    if isinstance(changes.get("tags"), str):
        changes["tags"] = [tag.strip() for tag in changes["tags"].split(",") if tag.strip()]
    name = asking.part("name")
    if not await asking.vhosts.declare(name, **changes):
        return nothing(204)
    await _have_enter(asking, name)
    return nothing(201)


async def _have_enter(asking: Asking, vhost: str) -> None:
    """Give who makes a virtual host all rights in it, as RabbitMQ does: the tool goes on inside."""
    login = asking.login
    if login.source == USERS_FILE and not login.may_enter(vhost):
        rights = dict.fromkeys(RIGHTS, ".*")
        await asking.site.admin.users.edit(
            login.user, lambda user: with_permission(user, vhost, **rights), login.user
        )


@calls.add("DELETE", "/vhosts/{name}")
async def delete_vhost(asking: Asking) -> Response:
    """Delete a virtual host with all that is in it."""
    asking.check_administrator()
    try:
        await asking.vhosts.delete(asking.part("name"))
    except ProtectedVhost as error:
        raise Problem(412, "precondition_failed", error.reason) from None
    return nothing()


@calls.add("POST", "/vhosts/{name}/deletion/protection")
async def protect(asking: Asking) -> Response:
    """Have a virtual host not be deleted."""
    return await _protect(asking, True)


@calls.add("DELETE", "/vhosts/{name}/deletion/protection")
async def unprotect(asking: Asking) -> Response:
    """Let a virtual host be deleted again."""
    return await _protect(asking, False)


async def _protect(asking: Asking, wanted: bool) -> Response:
    asking.check_administrator()
    name = asking.part("name")
    await asking.vhosts.view(name)  # it has to be there
    await asking.vhosts.declare(name, protected_from_deletion=wanted)
    return nothing()


@calls.add("GET", "/vhost-limits", "/vhost-limits/{name}")
async def vhost_limits(asking: Asking) -> Response:
    """List the limits of all virtual hosts that have some, or of one."""
    asking.check_monitoring()
    name = asking.part("name")
    views = [await asking.vhosts.view(name)] if name else await asking.vhosts.all()
    told = []
    for view in views:
        value = limits_of(view)
        if value:
            told.append({"vhost": view.name, "value": value})
    return answer(told)


@calls.add("PUT", "/vhost-limits/{name}/{limit}")
async def set_limit(asking: Asking) -> Response:
    """Set one of the limits; below 0 is none."""
    asking.check_administrator()
    return await _limit(asking, await limit_asked(asking))


@calls.add("DELETE", "/vhost-limits/{name}/{limit}")
async def clear_limit(asking: Asking) -> Response:
    """Have no such limit."""
    asking.check_administrator()
    return await _limit(asking, 0)


async def _limit(asking: Asking, most: int) -> Response:
    name = asking.part("name")
    field = limit_field(asking.part("limit"))
    await asking.vhosts.view(name)  # it has to be there
    await asking.vhosts.declare(name, **{field: most})
    return nothing()


async def _item(asking: Asking, view: VhostView) -> dict[str, Any]:
    queues = await asking.site.hub.of_vhost(view.name).client.queues.views()
    ready = sum(queue.ready + queue.delayed for queue in queues)
    unacknowledged = sum(queue.in_flight for queue in queues)
    description = view.description or ("Default virtual host" if view.name == DEFAULT_VHOST else "")
    tags, default = list(view.tags), view.default_queue_type
    return {
        "name": view.name,
        "description": description,
        "tags": tags,
        "default_queue_type": default,
        "protected_from_deletion": view.protected_from_deletion,
        "metadata": {"description": description, "tags": tags, "default_queue_type": default},
        "tracing": False,
        "cluster_state": {NODE: "running"},
        "messages": ready + unacknowledged,
        "messages_ready": ready,
        "messages_unacknowledged": unacknowledged,
    }


def _sees(asking: Asking, name: str) -> bool:
    return asking.login.is_monitoring or asking.login.may_enter(name)
