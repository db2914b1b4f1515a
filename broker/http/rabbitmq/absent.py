"""Lists that RabbitMQ keeps and this broker does not: nothing is listed, nothing is made."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, Calls, answer

calls: Final = Calls()
_ITEM: Final = "/global-parameters/{name}"


@calls.add("GET", "/global-parameters")
async def listed(asking: Asking) -> Response:
    """List nothing."""
    return answer([])


@calls.add("GET", _ITEM)
async def show(asking: Asking) -> Response:
    """Find nothing."""
    raise Problem(404, "not_found", "Not Found")


@calls.add("PUT", _ITEM)
@calls.add("DELETE", _ITEM)
async def refuse(asking: Asking) -> Response:
    """Tell what there is instead."""
    reason = "this broker keeps no global parameters: the configuration file has the settings"
    raise Problem(400, "bad_request", reason)
