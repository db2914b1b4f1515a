"""Exchanges and bindings over HTTP."""

from __future__ import annotations

from typing import Any, Final, Literal

from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery, Query
from broker.http.site import Site
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, ExchangeDeclaration, ExchangeView
from queue_manager.errors import InvalidArgument

exchanges: Final = Endpoints("exchanges")


class Exchange(Body):
    """What an exchange is to be like."""

    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class Binding(Body):
    """From an exchange to a queue or another exchange."""

    source: str
    destination: str
    destination_type: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = {}

    def definition(self) -> BindingDefinition:
        """The same, as the core has it."""
        return BindingDefinition(
            source=self.source,
            destination=self.destination,
            destination_type=self.destination_type,
            routing_key=self.routing_key,
            arguments=self.arguments,
        )


class Unused(Query):
    """Refuse the deletion of an exchange that has bindings."""

    if_unused: bool = False


class Between(Query):
    """Bindings of one exchange as their source, or those to a queue."""

    source: str | None = None
    queue: str | None = None


@exchanges.get("/exchanges", list[ExchangeView])
async def list_exchanges(site: Site, ask: Ask[NoQuery, NoBody]) -> list[ExchangeView]:
    """All exchanges but the default one, by name."""
    return await site.admin.exchanges()


@exchanges.put("/exchanges/{exchange}", None, Exchange)
async def declare_exchange(site: Site, ask: Ask[NoQuery, Exchange]) -> None:
    """Make an exchange; 409 if there is another of its name."""
    body = ask.body
    if body.type not in EXCHANGE_TYPES:
        raise InvalidArgument(f"type: one of {', '.join(sorted(EXCHANGE_TYPES))}")
    declaration = ExchangeDeclaration(
        name=ask.path["exchange"],
        type=body.type,
        durable=body.durable,
        auto_delete=body.auto_delete,
        internal=body.internal,
        arguments=body.arguments,
    )
    await site.admin.declare_exchange(declaration)


@exchanges.delete("/exchanges/{exchange}", None, Unused)
async def delete_exchange(site: Site, ask: Ask[Unused, NoBody]) -> None:
    """Delete an exchange with its bindings."""
    await site.admin.delete_exchange(ask.path["exchange"], if_unused=ask.query.if_unused)


@exchanges.get("/bindings", list[BindingDefinition], Between)
async def list_bindings(site: Site, ask: Ask[Between, NoBody]) -> list[BindingDefinition]:
    """All bindings, or some of them."""
    return await site.admin.bindings(source=ask.query.source, queue=ask.query.queue)


@exchanges.post("/bindings", None, Binding)
async def bind(site: Site, ask: Ask[NoQuery, Binding]) -> None:
    """Have an exchange pass messages on."""
    await site.admin.bind(ask.body.definition())


@exchanges.post("/bindings/remove", None, Binding)
async def unbind(site: Site, ask: Ask[NoQuery, Binding]) -> None:
    """Undo a binding; that there was none is no error."""
    await site.admin.unbind(ask.body.definition())
