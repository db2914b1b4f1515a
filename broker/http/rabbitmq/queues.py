"""Queues, exchanges and bindings in RabbitMQ's API."""

from __future__ import annotations

from starlette.responses import Response

from broker.access.rights import Action, Kind
from broker.amqp import permissions
from broker.amqp.declarations import queue_declaration
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.asking import Asking, answer, flag, nothing, table
from broker.http.rabbitmq.listing import listing, with_columns
from broker.http.rates import RateMeter
from broker.http.site import Site
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, ExchangeDeclaration, ExchangeView

DEFAULT_EXCHANGE = "amq.default"


class Topology:
    """What stays when clients go."""

    def __init__(self, site: Site, meter: RateMeter, node: str) -> None:
        self._site = site
        self._admin = site.admin
        self._meter = meter
        self._node = node

    # queues

    async def queues(self, asking: Asking) -> Response:
        """All queues the user may see."""
        views = await self._site.queues()
        await self._meter.look(views)
        if not asking.identity.is_monitoring:
            views = [view for view in views if _may_see(asking, view.name)]
        return await listing(
            views,
            lambda view: shapes.queue(view, self._meter.of(view), self._node),
            asking.query,
            lambda view: view.name,
        )

    async def queue(self, asking: Asking) -> Response:
        """One queue, with its consumers."""
        view = await self._admin.queue(asking.part("queue"))
        if not _may_see(asking, view.name):
            raise Problem(404, "not_found", "Not Found")
        await self._meter.look(await self._site.queues())
        item = shapes.queue(view, self._meter.of(view), self._node)
        details = []
        for connection in await self._site.node.connections():
            for number, consumer in shapes.consumers_of(connection):
                if consumer.queue == view.name:
                    details.append(shapes.consumer(connection, number, consumer, self._node))
        item |= {"consumer_details": details, "incoming": [], "deliveries": []}
        return answer(with_columns(item, asking.query))

    async def declare_queue(self, asking: Asking) -> Response:
        """Make a queue."""
        name = asking.part("queue")
        body = await asking.body()
        arguments = table(body.get("arguments"), "arguments")
        permissions.check_queue(asking.identity, name, arguments)
        declaration = queue_declaration(
            name,
            arguments,
            self._site.hub.default_policy,
            durable=flag(body.get("durable"), "durable", True),
            auto_delete=flag(body.get("auto_delete"), "auto_delete", False),
        )
        return nothing(201 if await self._admin.declare_queue(declaration) else 204)

    async def delete_queue(self, asking: Asking) -> Response:
        """Delete a queue."""
        name = asking.part("queue")
        asking.identity.check(Action.CONFIGURE, Kind.QUEUE, name)
        await self._admin.delete(
            name,
            if_unused=asking.query.get("if-unused") == "true",
            if_empty=asking.query.get("if-empty") == "true",
        )
        return nothing()

    async def purge_queue(self, asking: Asking) -> Response:
        """Drop what waits in a queue."""
        name = asking.part("queue")
        asking.identity.check(Action.READ, Kind.QUEUE, name)
        await self._admin.purge(name)
        return nothing()

    # exchanges

    async def exchanges(self, asking: Asking) -> Response:
        """All exchanges, the default one first."""
        views = [DEFAULT_VIEW, *await self._admin.exchanges()]
        return await listing(views, shapes.exchange, asking.query, lambda view: view.name)

    async def exchange(self, asking: Asking) -> Response:
        """One exchange."""
        name = exchange_name(asking)
        view = DEFAULT_VIEW if not name else await self._site.hub.client.exchanges.look(name)
        item = {**shapes.exchange(view), "incoming": [], "outgoing": []}
        return answer(with_columns(item, asking.query))

    async def declare_exchange(self, asking: Asking) -> Response:
        """Make an exchange."""
        name = asking.part("exchange")
        body = await asking.body()
        arguments = table(body.get("arguments"), "arguments")
        permissions.check_exchange(asking.identity, name, arguments)
        kind = body.get("type", "direct")
        if kind not in EXCHANGE_TYPES:
            raise Problem(400, "bad_request", f"invalid exchange type '{kind}'")
        declaration = ExchangeDeclaration(
            name=name,
            type=kind,
            durable=flag(body.get("durable"), "durable", True),
            auto_delete=flag(body.get("auto_delete"), "auto_delete", False),
            internal=flag(body.get("internal"), "internal", False),
            arguments=arguments,
        )
        return nothing(201 if await self._admin.declare_exchange(declaration) else 204)

    async def delete_exchange(self, asking: Asking) -> Response:
        """Delete an exchange."""
        name = asking.part("exchange")
        asking.identity.check(Action.CONFIGURE, Kind.EXCHANGE, name)
        await self._admin.delete_exchange(name, if_unused=asking.query.get("if-unused") == "true")
        return nothing()

    # bindings

    async def bindings(self, asking: Asking) -> Response:
        """All bindings, or those of what the path names; queues are bound to the default exchange, too."""
        part = asking.part
        source = part("source") or (part("exchange") if part("side") == "source" else "")
        queue = part("queue")
        destination = part("destination") or (part("exchange") if part("side") == "destination" else "")
        if queue:
            await self._admin.queue(queue)
        if source and source != DEFAULT_EXCHANGE:
            found = await self._admin.bindings(source=source)
        elif source:
            found = []
        elif queue:
            found = await self._admin.bindings(queue=queue)
        elif destination:
            found = await self._admin.bindings(exchange=destination)
        else:
            found = await self._admin.bindings()
        if source and queue:
            found = [each for each in found if (each.destination_type, each.destination) == ("queue", queue)]
        if source and destination:
            wanted = ("exchange", destination)
            found = [each for each in found if (each.destination_type, each.destination) == wanted]
        if not destination and source in ("", DEFAULT_EXCHANGE):
            names = [queue] if queue else [view.name for view in await self._site.queues()]
            found = [*map(_default_binding, names), *found]
        return await listing(found, shapes.binding, asking.query)

    async def bind(self, asking: Asking) -> Response:
        """Bind a queue or an exchange to an exchange."""
        body = await asking.body()
        key = body.get("routing_key", "")
        if not isinstance(key, str):
            raise Problem(400, "bad_request", "routing_key is text")
        wanted = _between(asking, key, table(body.get("arguments"), "arguments"))
        _check_binding(asking, wanted)
        await self._admin.bind(wanted)
        place = f"{wanted.destination}/{shapes.properties_key(wanted)}"
        return nothing(201, {"location": place.encode("ascii", "replace").decode()})

    async def unbind(self, asking: Asking) -> Response:
        """Undo a binding, named by its properties key."""
        found = await self._binding(asking)
        _check_binding(asking, found)
        await self._admin.unbind(found)
        return nothing()

    async def binding(self, asking: Asking) -> Response:
        """One binding."""
        return answer(shapes.binding(await self._binding(asking)))

    async def _binding(self, asking: Asking) -> BindingDefinition:
        wanted = _between(asking, "", {})
        for found in await self._admin.bindings(source=wanted.source):
            same = (found.destination_type, found.destination) == (
                wanted.destination_type,
                wanted.destination,
            )
            if same and shapes.properties_key(found) == asking.part("key"):
                return found
        raise Problem(404, "not_found", "Not Found")


DEFAULT_VIEW = ExchangeView(
    name="",
    type="direct",
    durable=True,
    auto_delete=False,
    internal=False,
    arguments={},
    binding_count=0,
)


def exchange_name(asking: Asking) -> str:
    """The exchange a path names, "" for the default one."""
    name = asking.part("exchange")
    return "" if name == DEFAULT_EXCHANGE else name


def _may_see(asking: Asking, queue: str) -> bool:
    identity = asking.identity
    return identity.is_monitoring or any(identity.may(action, Kind.QUEUE, queue) for action in Action)


def _default_binding(queue: str) -> BindingDefinition:
    return BindingDefinition(source="", destination=queue, routing_key=queue)


def _between(asking: Asking, key: str, arguments: dict[str, object]) -> BindingDefinition:
    queue = asking.part("queue")
    return BindingDefinition(
        source=asking.part("source"),
        destination=queue or asking.part("destination"),
        destination_type="queue" if queue else "exchange",
        routing_key=key,
        arguments=arguments,
    )


def _check_binding(asking: Asking, binding: BindingDefinition) -> None:
    kind = Kind.QUEUE if binding.destination_type == "queue" else Kind.EXCHANGE
    asking.identity.check(Action.WRITE, kind, binding.destination)
    asking.identity.check(Action.READ, Kind.EXCHANGE, binding.source)
    asking.identity.check_keys(Action.READ, binding.source, binding.routing_key)
