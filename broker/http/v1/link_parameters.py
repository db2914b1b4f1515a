"""Parameters over HTTP, and the links and webhooks that run by them."""

from __future__ import annotations

from typing import Any, Final

from broker.access.accounts_of_file import guest
from broker.access.login import Identity
from broker.http.endpoints import Endpoints
from broker.http.site import Site
from broker.links.link_directory import Parameter
from broker.links.supervised_link import LinkView

Value = dict[str, Any] | list[dict[str, Any]]

links: Final = Endpoints("links")


@links.endpoint("GET", "/links")
async def list_links(site: Site) -> list[LinkView]:
    """List shovels, federation links and webhooks: how they are, and how many messages they passed on."""
    return site.links.views(site.vhost)


@links.endpoint("GET", "/parameters/{component}")
async def list_parameters(site: Site, component: str) -> list[Parameter]:
    """List the parameters of a component, without passwords: `shovel`, `federation-upstream`,
    `federation-upstream-set`, `webhook`.
    """
    return site.links.all(site.vhost, component)


@links.endpoint("GET", "/parameters/{component}/{parameter}")
async def show_parameter(site: Site, component: str, parameter: str) -> Parameter:
    """Show one parameter."""
    return site.links.find(component, site.vhost, parameter)


@links.endpoint("PUT", "/parameters/{component}/{parameter}")
async def put_parameter(
    site: Site,
    component: str,
    parameter: str,
    *,
    value: Value,
    caller: Identity | None,
) -> Parameter:
    """Make or replace a parameter; `value` is what RabbitMQ's parameter of that component has. What runs by
    it begins at once.
    """
    login = guest() if caller is None else caller.login
    await site.links.set(component, site.vhost, parameter, value, login)
    return site.links.find(component, site.vhost, parameter)


@links.endpoint("DELETE", "/parameters/{component}/{parameter}")
async def delete_parameter(site: Site, component: str, parameter: str, *, caller: Identity | None) -> None:
    """Delete a parameter, and end what runs by it."""
    await site.links.clear(component, site.vhost, parameter, "" if caller is None else caller.user)


@links.endpoint("POST", "/parameters/{component}/{parameter}/restart")
async def restart_link(site: Site, component: str, parameter: str) -> None:
    """Have a link begin anew, at once."""
    site.links.restart(component, site.vhost, parameter)
