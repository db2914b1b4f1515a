"""Lists that RabbitMQ keeps and this broker does not: nothing is listed, nothing is made."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, Calls, answer

_INSTEAD: Final = {
    "parameters": "limits of virtual hosts are set at /api/vhost-limits",
    "global-parameters": "the configuration file has the settings",
}
_ITEMS: Final = (
    "/parameters/{component}/{vhost}/{name}",
    "/global-parameters/{name}",
)

calls: Final = Calls()


@calls.add("GET", *[f"/{kind}" for kind in _INSTEAD])
@calls.add("GET", "/parameters/{component}", "/parameters/{component}/{vhost}")
async def listed(asking: Asking) -> Response:
    """List nothing."""
    if asking.part("vhost"):
        asking.place()
    return answer([])


@calls.add("GET", *_ITEMS)
async def show(asking: Asking) -> Response:
    """Find nothing."""
    raise Problem(404, "not_found", "Not Found")


@calls.add("PUT", *_ITEMS)
@calls.add("DELETE", *_ITEMS)
async def refuse(asking: Asking) -> Response:
    """Tell what there is instead."""
    if asking.part("vhost"):
        asking.place()
    kind = asking.request.scope["path"].split("/")[2]
    reason = f"this broker keeps no {kind.replace('-', ' ')}: {_INSTEAD[kind]}"
    raise Problem(400, "bad_request", reason)
