"""Definitions: what was declared, written out and read back, as RabbitMQ's JSON."""

from __future__ import annotations

from typing import Any, Final

import structlog
from starlette.responses import Response

from broker.amqp.declarations import queue_declaration
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.asking import Asking, answer, flag, nothing, table
from broker.http.rabbitmq.broker import RABBITMQ_VERSION
from broker.http.site import Site
from broker.version import PRODUCT, VERSION
from config import limits
from queue_manager.api import BindingDefinition, ExchangeDeclaration, ExchangeView, QueueView
from queue_manager.errors import QueueManagerError

_log: Final = structlog.get_logger("sluicemq.http")

NOT_TAKEN: Final = (
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
)
"""What RabbitMQ's file has and this broker keeps elsewhere, or not at all."""


class Definitions:
    """Export and import."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def export(self, asking: Asking) -> Response:
        """All that is kept on the store."""
        asking.check_administrator()
        admin = self._site.admin
        queues = [view for view in await self._site.queues() if view.durable]
        exchanges = [view for view in await admin.exchanges() if view.durable]
        names = {view.name for view in queues}
        made = [view for view in exchanges if view.name and not view.name.startswith("amq.")]
        bindings = [
            each
            for each in await admin.bindings()
            if each.destination_type == "exchange" or each.destination in names
        ]
        is_of_vhost = bool(asking.part("vhost"))
        place = {} if is_of_vhost else {"vhost": shapes.VHOST}
        document: dict[str, Any] = {
            "rabbit_version": RABBITMQ_VERSION,
            "rabbitmq_version": RABBITMQ_VERSION,
            "product_name": PRODUCT,
            "product_version": VERSION,
            "parameters": [],
            "policies": [],
            "queues": [_queue_entry(view, place) for view in queues],
            "exchanges": [_exchange_entry(view, place) for view in made],
            "bindings": [_binding_entry(each, place) for each in bindings],
        }
        if not is_of_vhost:
            document |= {
                "users": [],
                "vhosts": [{"name": shapes.VHOST}],
                "permissions": [],
                "topic_permissions": [],
                "global_parameters": [],
            }
        return answer(document)

    async def load(self, asking: Asking) -> Response:
        """Make what a document has and is not there yet. What exists otherwise is an error.

        Users, permissions and policies are not taken: the header `x-not-taken` and a line in the log say so.
        """
        asking.check_administrator()
        try:
            document = await asking.body(bytes_max=limits.RABBITMQ_DEFINITIONS_BYTES_MAX)
        except Problem as problem:
            if problem.error == "not_json":
                raise Problem(400, "bad_request", "failed_to_parse_json") from None
            raise
        made = [_read(kind, entry) for kind in _READERS for entry in _entries(document, kind)]
        for kind, name, wanted in made:
            try:
                await self._make(kind, wanted)
            except QueueManagerError as error:
                raise error.at(f"{kind} {name!r}") from error
        left = {kind: len(_entries(document, kind, is_plain=True)) for kind in NOT_TAKEN}
        told = ", ".join(f"{kind} ({count})" for kind, count in left.items() if count)
        if told:
            _log.warning("definitions.not_taken", kinds=told)
        return nothing(204, {"x-not-taken": told} if told else None)

    async def _make(self, kind: str, wanted: Any) -> None:
        admin = self._site.admin
        if kind == "queues":
            declaration = queue_declaration(
                wanted["name"],
                wanted["arguments"],
                self._site.hub.default_policy,
                durable=wanted["durable"],
                auto_delete=wanted["auto_delete"],
            )
            await admin.declare_queue(declaration)
        elif kind == "exchanges":
            await admin.declare_exchange(wanted)
        else:
            await admin.bind(wanted)


def _entries(document: dict[str, Any], kind: str, *, is_plain: bool = False) -> list[Any]:
    entries = document.get(kind, [])
    if not isinstance(entries, list) or not (is_plain or all(isinstance(each, dict) for each in entries)):
        raise Problem(400, "bad_request", f"{kind} is a list of objects")
    return entries


def _read(kind: str, entry: dict[str, Any]) -> tuple[str, str, Any]:
    """What an entry asks for, before anything is made; raises Problem."""
    if entry.get("vhost", shapes.VHOST) != shapes.VHOST:
        raise Problem(400, "bad_request", f"{kind}: no vhost {entry['vhost']!r}; there is only /")
    name = entry.get("name", entry.get("source"))
    if not isinstance(name, str):
        raise Problem(400, "bad_request", f"{kind}: an entry has no name")
    return kind, name, _READERS[kind](entry, name)


def _queue(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "name": name,
        "durable": flag(entry.get("durable"), "durable", True),
        "auto_delete": flag(entry.get("auto_delete"), "auto_delete", False),
        "arguments": table(entry.get("arguments"), "arguments"),
    }


def _exchange(entry: dict[str, Any], name: str) -> ExchangeDeclaration:
    return ExchangeDeclaration(
        name=name,
        type=str(entry.get("type", "direct")),
        durable=flag(entry.get("durable"), "durable", True),
        auto_delete=flag(entry.get("auto_delete"), "auto_delete", False),
        internal=flag(entry.get("internal"), "internal", False),
        arguments=table(entry.get("arguments"), "arguments"),
    )


def _binding(entry: dict[str, Any], name: str) -> BindingDefinition:
    kind = entry.get("destination_type", "queue")
    if kind not in ("queue", "exchange"):
        raise Problem(400, "bad_request", "destination_type is queue or exchange")
    return BindingDefinition(
        source=name,
        destination=str(entry.get("destination", "")),
        destination_type=kind,
        routing_key=str(entry.get("routing_key", "")),
        arguments=table(entry.get("arguments"), "arguments"),
    )


def _queue_entry(view: QueueView, place: dict[str, str]) -> dict[str, Any]:
    return {
        "name": view.name,
        **place,
        "durable": True,
        "auto_delete": view.auto_delete,
        "arguments": shapes.arguments_of(view),
    }


def _exchange_entry(view: ExchangeView, place: dict[str, str]) -> dict[str, Any]:
    return {
        "name": view.name,
        **place,
        "type": view.type,
        "durable": True,
        "auto_delete": view.auto_delete,
        "internal": view.internal,
        "arguments": dict(view.arguments),
    }


def _binding_entry(binding: BindingDefinition, place: dict[str, str]) -> dict[str, Any]:
    return {
        "source": binding.source,
        **place,
        "destination": binding.destination,
        "destination_type": binding.destination_type,
        "routing_key": binding.routing_key,
        "arguments": dict(binding.arguments),
    }


_READERS: Final = {"queues": _queue, "exchanges": _exchange, "bindings": _binding}
