"""The pages of exchanges, bindings and policies, and what their forms do."""

from __future__ import annotations

import json
from typing import Any, Final, get_args

from starlette.responses import Response

from broker.http.drawing import drawing_of
from broker.http.pages.visit import Form, Visit, at
from broker.http.problems import Problem
from broker.http.v1.exchanges import Binding, declare_exchange
from broker.http.v1.policies import ApplyTo, delete_policy, list_policies, put_policy
from config import limits
from queue_manager.api import EXCHANGE_TYPES
from queue_manager.errors import ExchangeNotFound

_KINDS: Final[tuple[ApplyTo, ...]] = get_args(ApplyTo)


async def show_exchanges(visit: Visit) -> Response:
    """Show exchanges and what they are bound to, as a drawing and as tables."""
    bindings = await visit.site.admin.bindings()
    return visit.page(
        "exchanges.html",
        exchanges=await visit.site.admin.exchanges(),
        bindings=bindings[: limits.HTTP_PAGE_ITEMS_MAX],
        drawing=drawing_of(bindings),
        types=sorted(EXCHANGE_TYPES),
    )


async def show_exchange(visit: Visit) -> Response:
    """Show one exchange with its bindings, from it and to it."""
    admin, name = visit.site.admin, visit.part("exchange")
    exchange = next((each for each in await admin.exchanges() if each.name == name), None)
    if exchange is None:
        raise ExchangeNotFound(name)
    bindings = await admin.bindings()
    to_it = [each for each in bindings if (each.destination_type, each.destination) == ("exchange", name)]
    return visit.page(
        "exchange.html",
        exchange=exchange,
        bindings=[each for each in bindings if each.source == name][: limits.HTTP_PAGE_ITEMS_MAX],
        bindings_to_it=to_it[: limits.HTTP_PAGE_ITEMS_MAX],
    )


async def make_exchange(visit: Visit) -> Response:
    """Make an exchange."""
    form = await visit.form()
    name = form["exchange"]
    arguments = object_of(form, "arguments")
    await declare_exchange(
        visit.site,
        name,
        type=form.get("type", "direct"),
        durable=form.get("durable", "yes") == "yes",
        arguments=arguments,
    )
    return visit.done(at("exchanges", name), "made")


async def change_exchange(visit: Visit) -> Response:
    """Do what a form on the page of an exchange asks for."""
    name, what = visit.part("exchange"), visit.part("what")
    form = await visit.form()
    admin, place = visit.site.admin, at("exchanges", name)
    if what == "delete":
        await admin.delete_exchange(name)
        return visit.done("/exchanges", "deleted")
    if what == "publish":
        result = await admin.publish_to_exchange(name, form.get("routing_key"), form.get("body").encode())
        return visit.done(place, "published" if result.is_routed else "unrouted")
    if what in ("bind", "unbind"):
        binding = Binding.model_validate(
            {
                "source": name,
                "destination": form["destination"],
                "destination_type": form.get("destination_type", "queue"),
                "routing_key": form.get("routing_key"),
                "arguments": object_of(form, "arguments"),
            }
        ).definition()
        await (admin.bind if what == "bind" else admin.unbind)(binding)
        return visit.done(place, "made" if what == "bind" else "deleted")
    raise Problem(404, "not_found", "no such form")


async def show_policies(visit: Visit) -> Response:
    """Show policies, those of operators last."""
    return visit.page("policies.html", policies=await list_policies(visit.site), kinds=_KINDS)


async def make_policy(visit: Visit) -> Response:
    """Make a policy, or put it in the place of one of that name."""
    form = await visit.form()
    priority = form.get("priority", "0")
    kind: ApplyTo = next((each for each in _KINDS if each == form.get("apply_to")), "all")
    await put_policy(
        visit.site,
        form["policy"],
        pattern=form["pattern"],
        definition=object_of(form, "definition"),
        apply_to=kind,
        priority=int(priority) if priority.isdecimal() else 0,
        operator=form.get("operator") == "yes",
    )
    return visit.done("/policies", "made")


async def remove_policy(visit: Visit) -> Response:
    """Delete a policy."""
    form = await visit.form()
    await delete_policy(visit.site, visit.part("policy"), operator=form.get("operator") == "yes")
    return visit.done("/policies", "deleted")


def json_of(form: Form, name: str) -> Any:
    """Return what a form has as JSON; None where it is none."""
    try:
        return json.loads(form.get(name) or "{}")
    except (ValueError, RecursionError):
        return None


def object_of(form: Form, name: str) -> dict[str, Any]:
    """Return a JSON object of a form; raises Problem where it is none."""
    found = json_of(form, name)
    if not isinstance(found, dict):
        raise Problem(400, "invalid_argument", f'{name}: a JSON object is wanted, as {{"key": "value"}}')
    return found
