"""Queues, exchanges and bindings in RabbitMQ's API."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.amqp import permissions
from broker.amqp.declarations import queue_declaration
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.asking import Asking, answer, flag, nothing, table
from broker.http.rabbitmq.listing import columns_of, listing, with_columns
from broker.http.rabbitmq.places import Place, Places, seeing, seen_by
from broker.http.site import Site
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, ExchangeDeclaration, ExchangeView, QueueView
from queue_manager.errors import ExchangeNotFound, QueueNotFound

DEFAULT_EXCHANGE = "amq.default"


class Topology:
    """What stays when clients go."""

    def __init__(self, site: Site, places: Places, node: str) -> None:
        self._broker = site.node
        self._places = places
        self._node = node

    # queues

    async def queues(self, asking: Asking) -> Response:
        """All queues the user may see."""
        found: list[tuple[Place, QueueView]] = []
        for place in self._places.seen(asking):
            views = await place.site.queues()
            await place.meter.look(views)
            found += [(place, view) for view in seen_by(asking, place, views)]
        return await listing(found, self._queue_item, asking.query, lambda each: each[1].name)

    def _queue_item(self, found: tuple[Place, QueueView]) -> dict[str, Any]:
        place, view = found
        return shapes.queue(view, place.vhost, place.meter.of(view), self._node)

    async def queue(self, asking: Asking) -> Response:
        """One queue, with its consumers."""
        place = self._places.of(asking)
        view = await place.admin.queue(asking.part("queue"))
        if not seen_by(asking, place, [view]):
            raise Problem(404, "not_found", "Not Found")
        await place.meter.look(await place.site.queues())
        item = self._queue_item((place, view))
        details = []
        for connection in await self._broker.connections():
            if connection.description.vhost != place.vhost:
                continue
            for number, consumer in shapes.consumers_of(connection):
                if consumer.queue == view.name:
                    details.append(shapes.consumer(connection, number, consumer, self._node))
        item |= {"consumer_details": details, "incoming": [], "deliveries": []}
        return answer(with_columns(item, columns_of(asking.query)))

    async def declare_queue(self, asking: Asking) -> Response:
        """Make a queue."""
        place, identity = self._places.entered(asking)
        name = asking.part("queue")
        body = await asking.body()
        arguments = table(body.get("arguments"), "arguments")
        permissions.check_queue(identity, name, arguments)
        declaration = queue_declaration(
            name,
            arguments,
            place.site.hub.default_policy,
            vhost=place.vhost,
            durable=flag(body.get("durable"), "durable", True),
            auto_delete=flag(body.get("auto_delete"), "auto_delete", False),
        )
        return nothing(201 if await place.admin.declare_queue(declaration) else 204)

    async def delete_queue(self, asking: Asking) -> Response:
        """Delete a queue."""
        place, identity = self._places.entered(asking)
        name = asking.part("queue")
        identity.check(Action.CONFIGURE, Kind.QUEUE, name)
        await place.admin.delete(
            name,
            if_unused=asking.query.get("if-unused") == "true",
            if_empty=asking.query.get("if-empty") == "true",
        )
        return nothing()

    async def purge_queue(self, asking: Asking) -> Response:
        """Drop what waits in a queue."""
        place, identity = self._places.entered(asking)
        name = asking.part("queue")
        identity.check(Action.READ, Kind.QUEUE, name)
        await place.admin.purge(name)
        return nothing()

    # exchanges

    async def exchanges(self, asking: Asking) -> Response:
        """All exchanges, the default one first."""
        found: list[tuple[str, ExchangeView]] = []
        for place in self._places.seen(asking):
            found += [(place.vhost, view) for view in (DEFAULT_VIEW, *await place.admin.exchanges())]
        return await listing(found, _exchange_item, asking.query, lambda each: each[1].name)

    async def exchange(self, asking: Asking) -> Response:
        """One exchange."""
        place = self._places.of(asking)
        name = exchange_name(asking)
        view = DEFAULT_VIEW if not name else await place.site.hub.client.exchanges.look(name)
        item = {**shapes.exchange(view, place.vhost), "incoming": [], "outgoing": []}
        return answer(with_columns(item, columns_of(asking.query)))

    async def declare_exchange(self, asking: Asking) -> Response:
        """Make an exchange."""
        place, identity = self._places.entered(asking)
        name = asking.part("exchange")
        body = await asking.body()
        arguments = table(body.get("arguments"), "arguments")
        permissions.check_exchange(identity, name, arguments)
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
        return nothing(201 if await place.admin.declare_exchange(declaration) else 204)

    async def delete_exchange(self, asking: Asking) -> Response:
        """Delete an exchange."""
        place, identity = self._places.entered(asking)
        name = asking.part("exchange")
        identity.check(Action.CONFIGURE, Kind.EXCHANGE, name)
        await place.admin.delete_exchange(name, if_unused=asking.query.get("if-unused") == "true")
        return nothing()

    # bindings

    async def bindings(self, asking: Asking) -> Response:
        """All bindings, or those of what the path names; queues are bound to the default exchange, too."""
        found: list[tuple[str, BindingDefinition]] = []
        for place in self._places.seen(asking):
            found += [(place.vhost, each) for each in await _bindings_of(asking, place)]
        return await listing(found, _binding_item, asking.query)

    async def bind(self, asking: Asking) -> Response:
        """Bind a queue or an exchange to an exchange."""
        place, identity = self._places.entered(asking)
        body = await asking.body()
        key = body.get("routing_key", "")
        if not isinstance(key, str):
            raise Problem(400, "bad_request", "routing_key is text")
        wanted = _between(asking, key, table(body.get("arguments"), "arguments"))
        _check_binding(identity, wanted)
        try:
            await place.admin.bind(wanted)
        except QueueNotFound as error:
            raise place.no_queue(error) from None
        except ExchangeNotFound as error:
            raise place.no_exchange(error) from None
        location = f"{wanted.destination}/{shapes.properties_key(wanted)}"
        return nothing(201, {"location": location.encode("ascii", "replace").decode()})

    async def unbind(self, asking: Asking) -> Response:
        """Undo a binding, named by its properties key."""
        place, identity = self._places.entered(asking)
        found = await _binding(asking, place)
        _check_binding(identity, found)
        await place.admin.unbind(found)
        return nothing()

    async def binding(self, asking: Asking) -> Response:
        """One binding."""
        place = self._places.of(asking)
        found = await _binding(asking, place)
        if found.destination_type == "queue" and not seeing(asking, place)(found.destination):
            raise Problem(404, "not_found", "Not Found")
        return answer(_binding_item((place.vhost, found)))


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


def _exchange_item(found: tuple[str, ExchangeView]) -> dict[str, Any]:
    vhost, view = found
    return shapes.exchange(view, vhost)


def _binding_item(found: tuple[str, BindingDefinition]) -> dict[str, Any]:
    vhost, definition = found
    return shapes.binding(definition, vhost)


async def _bindings_of(asking: Asking, place: Place) -> list[BindingDefinition]:
    """The bindings of a virtual host that the path asks for, but for those of queues that the user may not
    see.
    """
    part, admin = asking.part, place.admin
    source = part("source") or (part("exchange") if part("side") == "source" else "")
    queue = part("queue")
    destination = part("destination") or (part("exchange") if part("side") == "destination" else "")
    sees = seeing(asking, place)
    if queue:
        await admin.queue(queue)
        if not sees(queue):
            raise Problem(404, "not_found", "Not Found")
    if source and source != DEFAULT_EXCHANGE:
        found = await admin.bindings(source=source)
    elif source:
        found = []
    elif queue:
        found = await admin.bindings(queue=queue)
    elif destination:
        found = await admin.bindings(exchange=destination)
    else:
        found = await admin.bindings()
    if source and queue:
        found = [each for each in found if (each.destination_type, each.destination) == ("queue", queue)]
    if source and destination:
        wanted = ("exchange", destination)
        found = [each for each in found if (each.destination_type, each.destination) == wanted]
    if not destination and source in ("", DEFAULT_EXCHANGE):
        names = [queue] if queue else [view.name for view in await place.site.queues()]
        found = [*map(_default_binding, names), *found]
    return [each for each in found if each.destination_type != "queue" or sees(each.destination)]


async def _binding(asking: Asking, place: Place) -> BindingDefinition:
    """The binding that the path names by its properties key; raises Problem."""
    wanted = _between(asking, "", {})
    for found in await place.admin.bindings(source=wanted.source):
        same = (found.destination_type, found.destination) == (wanted.destination_type, wanted.destination)
        if same and shapes.properties_key(found) == asking.part("key"):
            return found
    raise Problem(404, "not_found", "Not Found")


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


def _check_binding(identity: Identity, binding: BindingDefinition) -> None:
    kind = Kind.QUEUE if binding.destination_type == "queue" else Kind.EXCHANGE
    identity.check(Action.WRITE, kind, binding.destination)
    identity.check(Action.READ, Kind.EXCHANGE, binding.source)
    identity.check_keys(Action.READ, binding.source, binding.routing_key)
