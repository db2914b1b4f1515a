"""Exchanges and bindings over HTTP."""

from __future__ import annotations

from typing import Any, Final, Literal

from broker.http.endpoints import Body, Endpoints
from broker.http.site import Site
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, ExchangeDeclaration, ExchangeView
from queue_manager.errors import InvalidArgument

exchanges: Final = Endpoints("exchanges")


class Binding(Body):
    """From an exchange to a queue or another exchange."""

    source: str
    destination: str
    destination_type: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = {}

    def definition(self) -> BindingDefinition:
        """Return the same, as the core has it."""
        return BindingDefinition(**dict(self))


@exchanges.endpoint("GET", "/exchanges")
async def list_exchanges(site: Site) -> list[ExchangeView]:
    """List all exchanges but the default one, by name."""
    return await site.admin.exchanges()


@exchanges.endpoint("PUT", "/exchanges/{exchange}")
async def declare_exchange(
    site: Site,
    exchange: str,
    *,
    type: str = "direct",
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: dict[str, Any] = {},  # noqa: B006 (pydantic copies it)
) -> None:
    """Make an exchange; 409 if there is another of its name."""
    if type not in EXCHANGE_TYPES:
        raise InvalidArgument(f"type: one of {', '.join(sorted(EXCHANGE_TYPES))}")
    declaration = ExchangeDeclaration(
        name=exchange,
        type=type,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
    await site.admin.declare_exchange(declaration)


@exchanges.endpoint("DELETE", "/exchanges/{exchange}")
async def delete_exchange(site: Site, exchange: str, *, if_unused: bool = False) -> None:
    """Delete an exchange with its bindings; `if_unused`: only without bindings."""
    await site.admin.delete_exchange(exchange, if_unused=if_unused)


@exchanges.endpoint("GET", "/bindings")
async def list_bindings(
    site: Site, *, source: str | None = None, queue: str | None = None
) -> list[BindingDefinition]:
    """List all bindings, those of one exchange as their `source`, or those to a `queue`."""
    return await site.admin.bindings(source=source, queue=queue)


@exchanges.endpoint("POST", "/bindings")
async def bind(site: Site, body: Binding) -> None:
    """Have an exchange pass messages on."""
    await site.admin.bind(body.definition())


@exchanges.endpoint("POST", "/bindings/remove")
async def unbind(site: Site, body: Binding) -> None:
    """Undo a binding; that there was none is no error."""
    await site.admin.unbind(body.definition())
