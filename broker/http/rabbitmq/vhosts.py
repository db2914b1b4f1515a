"""Virtual hosts and their limits in RabbitMQ's API."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, answer, nothing
from broker.http.site import Site
from broker.vhost import VhostView
from queue_manager.address import DEFAULT_VHOST

_LIMITS: Final = {"max-connections": "max_connections", "max-queues": "max_queues"}


class Vhosts:
    """What is asked about virtual hosts. They are in the path as `{name}`: none of them is where the asking
    user has to be let in.
    """

    def __init__(self, site: Site, node: str) -> None:
        self._site = site
        self._directory = site.admin.vhosts
        self._node = node

    async def list(self, asking: Asking) -> Response:
        """Those the user may enter, or for who may look at everything all."""
        views = [view for view in await self._directory.all() if _sees(asking, view.name)]
        return answer([await self._item(view) for view in views])

    async def show(self, asking: Asking) -> Response:
        """One virtual host."""
        name = asking.part("name")
        if not _sees(asking, name):
            raise Problem(401, "not_authorised", "User not authorised to access virtual host")
        return answer(await self._item(await self._directory.view(name)))

    async def make(self, asking: Asking) -> Response:
        """Make a virtual host; nothing changes if it is there."""
        asking.check_administrator()
        return nothing(201 if await self._directory.declare(asking.part("name")) else 204)

    async def delete(self, asking: Asking) -> Response:
        """Delete a virtual host with all that is in it."""
        asking.check_administrator()
        await self._directory.delete(asking.part("name"))
        return nothing()

    async def limits(self, asking: Asking) -> Response:
        """The limits of all virtual hosts that have some, or of one."""
        asking.check_monitoring()
        name = asking.part("name")
        views = [await self._directory.view(name)] if name else await self._directory.all()
        told = []
        for view in views:
            value = {limit: most for limit, field in _LIMITS.items() if (most := getattr(view, field))}
            if value:
                told.append({"vhost": view.name, "value": value})
        return answer(told)

    async def set_limit(self, asking: Asking) -> Response:
        """Set one of the limits; below 0 is none."""
        asking.check_administrator()
        value = (await asking.body("value"))["value"]
        if not isinstance(value, int) or isinstance(value, bool):
            raise Problem(400, "bad_request", "value: a whole number")
        if value == 0:
            raise Problem(400, "bad_request", "value: 1 or more, or -1 for no limit")
        return await self._limit(asking, max(0, value))

    async def clear_limit(self, asking: Asking) -> Response:
        """Have no such limit."""
        asking.check_administrator()
        return await self._limit(asking, 0)

    async def _limit(self, asking: Asking, most: int) -> Response:
        name = asking.part("name")
        field = _LIMITS.get(asking.part("limit"))
        if field is None:
            raise Problem(400, "bad_request", f"limits are {', '.join(_LIMITS)}")
        await self._directory.view(name)  # it has to be there
        await self._directory.declare(name, **{field: most})
        return nothing()

    async def _item(self, view: VhostView) -> dict[str, Any]:
        queues = await self._site.hub.of_vhost(view.name).client.queues.views()
        ready = sum(queue.ready + queue.delayed for queue in queues)
        unacknowledged = sum(queue.in_flight for queue in queues)
        description = "Default virtual host" if view.name == DEFAULT_VHOST else ""
        return {
            "name": view.name,
            "description": description,
            "tags": [],
            "default_queue_type": "classic",
            "metadata": {"description": description, "tags": []},
            "tracing": False,
            "cluster_state": {self._node: "running"},
            "messages": ready + unacknowledged,
            "messages_ready": ready,
            "messages_unacknowledged": unacknowledged,
        }


def _sees(asking: Asking, name: str) -> bool:
    return asking.login.is_monitoring or asking.login.may_enter(name)
