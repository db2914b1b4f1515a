"""Queues, exchanges and bindings in RabbitMQ's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.amqp.connection import permissions
from broker.amqp.topology.declarations import queue_declaration
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.asking import Asking, Calls, answer, flag, no_exchange, no_queue, nothing, table
from broker.http.rabbitmq.listing import columns_of, listing, with_columns
from broker.http.site import Site
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, ExchangeDeclaration, ExchangeView, QueueView
from queue_manager.errors import ExchangeNotFound, QueueNotFound

DEFAULT_EXCHANGE = "amq.default"


# queues


calls: Final = Calls()


@calls.add("GET", "/queues", "/queues/detailed", "/queues/{vhost}")
async def queues(asking: Asking) -> Response:
    """Return all queues the user may see."""
    found: list[tuple[Site, QueueView]] = []
    for place in asking.places():
        views = await place.queues()
        await place.meter.look(views)
        sees = asking.seeing(place)
        found += [(place, view) for view in views if sees(view.name)]
    return await listing(found, _queue_item, asking.query, lambda each: each[1].name)


def _queue_item(found: tuple[Site, QueueView]) -> dict[str, Any]:
    place, view = found
    return shapes.queue(view, place.vhost, place.meter.of(view))


@calls.add("GET", "/queues/{vhost}/{queue}")
async def queue(asking: Asking) -> Response:
    """Show one queue, with its consumers."""
    place = asking.place()
    view = await place.admin.queue(asking.part("queue"))
    if not asking.seeing(place)(view.name):
        raise Problem(404, "not_found", "Not Found")
    await place.meter.look(await place.queues())
    item = _queue_item((place, view))
    details = []
    for connection in await asking.site.node.connections():
        if connection.description.vhost != place.vhost:
            continue
        for number, consumer in shapes.consumers_of(connection):
            if consumer.queue == view.name:
                details.append(shapes.consumer(connection, number, consumer))
    item |= {"consumer_details": details, "incoming": [], "deliveries": []}
    return answer(with_columns(item, columns_of(asking.query)))


@calls.add("PUT", "/queues/{vhost}/{queue}")
async def declare_queue(asking: Asking) -> Response:
    """Make a queue."""
    place, identity = asking.entered()
    name = asking.part("queue")
    body = await asking.body()
    arguments = table(body.get("arguments"), "arguments")
    permissions.check_queue(identity, name, arguments)
    hub = place.hub
    declaration = queue_declaration(
        name,
        arguments,
        hub.default_policy,
        vhost=place.vhost,
        durable=flag(body.get("durable"), "durable", True),
        auto_delete=flag(body.get("auto_delete"), "auto_delete", False),
        default_type=hub.vhost.settings.default_queue_type,
    )
    return nothing(201 if await place.admin.declare_queue(declaration) else 204)


@calls.add("DELETE", "/queues/{vhost}/{queue}")
async def delete_queue(asking: Asking) -> Response:
    """Delete a queue."""
    place, identity = asking.entered()
    name = asking.part("queue")
    identity.check(Action.CONFIGURE, Kind.QUEUE, name)
    await place.admin.delete(
        name,
        if_unused=asking.query.get("if-unused") == "true",
        if_empty=asking.query.get("if-empty") == "true",
    )
    return nothing()


@calls.add("DELETE", "/queues/{vhost}/{queue}/contents")
async def purge_queue(asking: Asking) -> Response:
    """Drop what waits in a queue."""
    place, identity = asking.entered()
    name = asking.part("queue")
    identity.check(Action.READ, Kind.QUEUE, name)
    await place.admin.purge(name)
    return nothing()


# exchanges


@calls.add("GET", "/exchanges", "/exchanges/{vhost}")
async def exchanges(asking: Asking) -> Response:
    """Return all exchanges, the default one first."""
    found: list[tuple[str, ExchangeView]] = []
    for place in asking.places():
        found += [(place.vhost, view) for view in (DEFAULT_VIEW, *await place.admin.exchanges())]
    return await listing(found, _exchange_item, asking.query, lambda each: each[1].name)


@calls.add("GET", "/exchanges/{vhost}/{exchange}")
async def exchange(asking: Asking) -> Response:
    """Show one exchange."""
    place = asking.place()
    name = exchange_name(asking)
    view = DEFAULT_VIEW if not name else await place.client.exchanges.look(name)
    item = {**shapes.exchange(view, place.vhost), "incoming": [], "outgoing": []}
    return answer(with_columns(item, columns_of(asking.query)))


@calls.add("PUT", "/exchanges/{vhost}/{exchange}")
async def declare_exchange(asking: Asking) -> Response:
    """Make an exchange."""
    place, identity = asking.entered()
    name = asking.part("exchange")
    body = await asking.body()
    arguments = table(body.get("arguments"), "arguments")
    permissions.check_exchange(identity, name, arguments)
    kind = body.get("type", "direct")
    if kind not in EXCHANGE_TYPES:
        raise Problem(400, "bad_request", f"invalid exchange type '{kind}'")
    declared = await place.admin.declare_exchange(exchange_declaration(name, body))
    return nothing(201 if declared else 204)


def exchange_declaration(name: str, entry: Mapping[str, Any]) -> ExchangeDeclaration:
    """Return what a JSON object says of an exchange; raises Problem."""
    return ExchangeDeclaration(
        name=name,
        type=str(entry.get("type", "direct")),
        durable=flag(entry.get("durable"), "durable", True),
        auto_delete=flag(entry.get("auto_delete"), "auto_delete", False),
        internal=flag(entry.get("internal"), "internal", False),
        arguments=table(entry.get("arguments"), "arguments"),
    )


@calls.add("DELETE", "/exchanges/{vhost}/{exchange}")
async def delete_exchange(asking: Asking) -> Response:
    """Delete an exchange."""
    place, identity = asking.entered()
    name = asking.part("exchange")
    identity.check(Action.CONFIGURE, Kind.EXCHANGE, name)
    await place.admin.delete_exchange(name, if_unused=asking.query.get("if-unused") == "true")
    return nothing()


# bindings


@calls.add(
    "GET",
    "/queues/{vhost}/{queue}/bindings",
    "/exchanges/{vhost}/{exchange}/bindings/{side}",
    "/bindings",
    "/bindings/{vhost}",
    "/bindings/{vhost}/e/{source}/q/{queue}",
    "/bindings/{vhost}/e/{source}/e/{destination}",
)
async def bindings(asking: Asking) -> Response:
    """Return all bindings, or those of what the path names; queues are bound to the default exchange, too."""
    found: list[tuple[str, BindingDefinition]] = []
    for place in asking.places():
        found += [(place.vhost, each) for each in await _bindings_of(asking, place)]
    return await listing(found, _binding_item, asking.query)


@calls.add("POST", "/bindings/{vhost}/e/{source}/q/{queue}", "/bindings/{vhost}/e/{source}/e/{destination}")
async def bind(asking: Asking) -> Response:
    """Bind a queue or an exchange to an exchange."""
    place, identity = asking.entered()
    body = await asking.body()
    key = body.get("routing_key", "")
    if not isinstance(key, str):
        raise Problem(400, "bad_request", "routing_key is text")
    wanted = _between(asking, key, table(body.get("arguments"), "arguments"))
    _check_binding(identity, wanted)
    try:
        await place.admin.bind(wanted)
    except QueueNotFound as error:
        raise no_queue(error, place.vhost) from None
    except ExchangeNotFound as error:
        raise no_exchange(error, place.vhost) from None
    location = f"{wanted.destination}/{shapes.properties_key(wanted)}"
    return nothing(201, {"location": location.encode("ascii", "replace").decode()})


@calls.add(
    "DELETE",
    "/bindings/{vhost}/e/{source}/q/{queue}/{key}",
    "/bindings/{vhost}/e/{source}/e/{destination}/{key}",
)
async def unbind(asking: Asking) -> Response:
    """Undo a binding, named by its properties key."""
    place, identity = asking.entered()
    found = await _binding(asking, place)
    _check_binding(identity, found)
    await place.admin.unbind(found)
    return nothing()


@calls.add(
    "GET",
    "/bindings/{vhost}/e/{source}/q/{queue}/{key}",
    "/bindings/{vhost}/e/{source}/e/{destination}/{key}",
)
async def binding(asking: Asking) -> Response:
    """Show one binding."""
    place = asking.place()
    found = await _binding(asking, place)
    if found.destination_type == "queue" and not asking.seeing(place)(found.destination):
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
    """Return the exchange a path names, "" for the default one."""
    name = asking.part("exchange")
    return "" if name == DEFAULT_EXCHANGE else name


def _exchange_item(found: tuple[str, ExchangeView]) -> dict[str, Any]:
    vhost, view = found
    return shapes.exchange(view, vhost)


def _binding_item(found: tuple[str, BindingDefinition]) -> dict[str, Any]:
    vhost, definition = found
    return shapes.binding(definition, vhost)


async def _bindings_of(asking: Asking, place: Site) -> list[BindingDefinition]:
    """Return the bindings of a virtual host that the path asks for, but for those of queues that the user may
    not see.
    """
    part, admin = asking.part, place.admin
    source = part("source") or (part("exchange") if part("side") == "source" else "")
    queue = part("queue")
    destination = part("destination") or (part("exchange") if part("side") == "destination" else "")
    sees = asking.seeing(place)
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
        names = [queue] if queue else [view.name for view in await place.queues()]
        found = [*map(_default_binding, names), *found]
    return [each for each in found if each.destination_type != "queue" or sees(each.destination)]


async def _binding(asking: Asking, place: Site) -> BindingDefinition:
    """Return the binding that the path names by its properties key; raises Problem."""
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
