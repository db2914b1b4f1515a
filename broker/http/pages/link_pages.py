"""The page of links and webhooks, and what its forms do."""

from __future__ import annotations

from starlette.responses import Response

from broker.http.guard import identity_of
from broker.http.pages.topology_pages import json_of
from broker.http.pages.visit import Visit
from broker.links.components import COMPONENTS


async def show_links(visit: Visit) -> Response:
    """Show the parameters of links and webhooks, and how these are."""
    links, vhost = visit.site.links, visit.site.vhost
    states = {(each.component, each.name): each for each in links.views(vhost)}
    return visit.page(
        "links.html",
        parameters=links.all(vhost),
        states=states,
        views=list(states.values()),
        components=list(COMPONENTS),
    )


async def make_parameter(visit: Visit) -> Response:
    """Make or replace a parameter."""
    form = await visit.form()
    login = identity_of(visit.request.scope).login
    value = json_of(form, "value")
    await visit.site.links.set(form["component"], visit.site.vhost, form["name"], value, login)
    return visit.done("/links", "made")


async def remove_parameter(visit: Visit) -> Response:
    """Delete a parameter."""
    component, name = visit.part("component"), visit.part("name")
    await visit.site.links.clear(component, visit.site.vhost, name, visit.user)
    return visit.done("/links", "deleted")
