"""Definitions: what was declared, written out and read back, as RabbitMQ's JSON."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, TypeVar

import structlog
from starlette.responses import Response

from broker.amqp.topology.declarations import queue_declaration
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.asking import Asking, Calls, answer, flag, nothing, table
from broker.http.rabbitmq.limit_names import limit_field, limits_of
from broker.http.rabbitmq.policies import policy_entry, policy_of, without_unknown
from broker.http.rabbitmq.queues import exchange_declaration
from broker.http.rabbitmq.vhosts import VHOST_TRAITS
from broker.http.site import Site
from broker.stepping import in_steps
from broker.version import PRODUCT, RABBITMQ_VERSION, VERSION
from broker.vhosts.vhost import VhostView
from config import limits
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import BindingDefinition, Policy, QueueView
from queue_manager.errors import InvalidArgument, QueueManagerError

T = TypeVar("T")

_log: Final = structlog.get_logger("sluicemq.http")

NOT_TAKEN: Final = (
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
)
"""The parts of RabbitMQ's file that this broker keeps elsewhere, takes in part, or not at all."""

_LIMITS_COMPONENT: Final = "vhost-limits"  # of parameters: these are taken
_OPERATOR_COMPONENT: Final = "operator_policy"  # and these


calls: Final = Calls()


@calls.add("GET", "/definitions", "/definitions/{vhost}")
async def export(asking: Asking) -> Response:
    """Return all that is kept on the store, of one virtual host or of all."""
    asking.check_administrator()
    where = _where(asking)
    is_of_vhost = where is not None
    names = asking.site.hub.vhosts() if where is None else [where]
    document: dict[str, Any] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": PRODUCT,
        "product_version": VERSION,
        "parameters": [],
        "policies": [],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }
    for vhost in names:
        for kind, entries in (await _kept(asking.site, vhost, is_told=not is_of_vhost)).items():
            document[kind] += entries
    if not is_of_vhost:
        document |= {
            "users": [],
            "vhosts": [_vhost_entry(await asking.vhosts.view(name)) for name in names],
            "permissions": [],
            "topic_permissions": [],
            "global_parameters": [],
        }
    return answer(document)


def _where(asking: Asking) -> str | None:
    """Return the virtual host that the path names; raises Problem where there is none."""
    name = asking.part("vhost")
    if not name:
        return None
    if name not in asking.site.hub.vhosts():
        raise Problem(400, "bad_request", "vhost_not_found")
    return asking.place().vhost


async def _kept(site: Site, vhost: str, *, is_told: bool) -> dict[str, list[dict[str, Any]]]:
    """Yield the entries of a virtual host, which they name if that `is_told`."""
    client = site.hub.of_vhost(vhost).client
    queues = [view for view in await client.queues.views() if view.durable]
    exchanges = [view for view in await client.exchanges.views() if view.durable]
    names = {view.name for view in queues}
    made = [view for view in exchanges if view.name and not view.name.startswith("amq.")]
    bindings = [
        each
        for each in await client.exchanges.bindings()
        if each.destination_type == "exchange" or each.destination in names
    ]
    hidden = () if is_told else ("vhost",)
    kept = {flag: client.policies.all(is_operator=flag) for flag in (False, True)}
    return {
        "policies": [_without(policy_entry(policy), *hidden) for policy in kept[False]],
        "parameters": [
            *[_without(entry, *hidden) for entry in await _limit_entries(site, vhost)],
            *[_without(_operator_entry(policy), *hidden) for policy in kept[True]],
        ],
        "queues": [_without(_queue_entry(view, vhost), *hidden) for view in queues],
        "exchanges": [
            _without(shapes.exchange(view, vhost), "user_who_performed_action", *hidden) for view in made
        ],
        "bindings": [_without(shapes.binding(each, vhost), "properties_key", *hidden) for each in bindings],
    }


@calls.add("POST", "/definitions", "/definitions/{vhost}")
async def load(asking: Asking) -> Response:
    """Make what a document has and is not there yet. What exists otherwise is an error.

    What is not taken is told by the header `x-not-taken` and a line in the log; with `?verbose=true` the
    answer says it one by one.
    """
    asking.check_administrator()
    try:
        document = await asking.body(bytes_max=limits.RABBITMQ_DEFINITIONS_BYTES_MAX)
    except Problem as problem:
        if problem.error == "not_json":
            raise Problem(400, "bad_request", "failed_to_parse_json") from None
        raise
    where = _where(asking)
    if where is not None:
        document = _within(document, where)
    vhosts = _vhosts(document)
    known = {*asking.site.hub.vhosts(), *vhosts}
    policies, untaken = _policies(document, known)
    made: list[tuple[str, str, str, Any]] = []
    for kind in _READERS:
        async for step in in_steps(_entries(document, kind), limits.RABBITMQ_DEFINITIONS_PER_STEP):
            made += [_read(kind, entry, known) for entry in step]
    for name, bounds in vhosts.items():
        await _make_vhost(asking.site, name, bounds)
    for policy in policies:
        asking.site.hub.of_vhost(policy.vhost).client.policies.set(policy)
    async for step in in_steps(made, limits.RABBITMQ_DEFINITIONS_PER_STEP):
        for kind, vhost, name, wanted in step:
            try:
                await _make(asking.site, kind, vhost, wanted)
            except QueueManagerError as error:
                raise error.at(f"{kind} {name!r}") from error
        asking.site.hub.settle_turn()  # so that it is many commits, too
    await asking.site.client.commits.durable()
    counts, lines = _not_taken(document, untaken)
    told = ", ".join(f"{kind} ({count})" for kind, count in counts.items() if count)
    if told:
        _log.warning("definitions.not_taken", kinds=told)
    if asking.query.get("verbose") == "true":
        kinds = {kind: sum(each[0] == kind for each in made) for kind in _READERS}
        return answer(
            {"made": {"vhosts": len(vhosts), "policies": len(policies), **kinds}, "not_taken": lines}
        )
    return nothing(204, {"x-not-taken": told} if told else None)


async def _make_vhost(site: Site, name: str, changes: dict[str, Any]) -> None:
    if changes or name not in site.hub.vhosts():
        await site.admin.vhosts.declare(name, **changes)


def _vhost_entry(view: VhostView) -> dict[str, Any]:
    metadata = {trait: getattr(view, trait) for trait in VHOST_TRAITS}
    return {"name": view.name, "metadata": {**metadata, "tags": list(view.tags)}}


async def _limit_entries(site: Site, vhost: str) -> list[dict[str, Any]]:
    """Return the quotas of a virtual host as RabbitMQ has them among the parameters."""
    value = limits_of(await site.admin.vhosts.view(vhost))
    entry = {"component": _LIMITS_COMPONENT, "vhost": vhost, "name": "limits", "value": value}
    return [entry] if value else []


async def _make(site: Site, kind: str, vhost: str, wanted: Any) -> None:
    hub = site.hub.of_vhost(vhost)
    client = hub.client
    if kind == "queues":
        declaration = queue_declaration(
            wanted["name"],
            wanted["arguments"],
            hub.default_policy,
            vhost=vhost,
            durable=wanted["durable"],
            auto_delete=wanted["auto_delete"],
            default_type=hub.vhost.settings.default_queue_type,
        )
        await client.queues.declare(declaration)
    elif kind == "exchanges":
        await client.exchanges.declare(wanted)
    else:
        await client.exchanges.bind(wanted)


def _within(document: dict[str, Any], vhost: str) -> dict[str, Any]:
    """Return what a document has for one virtual host, wherever its entries came from."""
    kinds = ("queues", "exchanges", "bindings", "policies", "parameters")
    moved: dict[str, Any] = {kind: _entries(document, kind, is_plain=True) for kind in kinds}
    return {
        kind: [{**entry, "vhost": vhost} if isinstance(entry, dict) else entry for entry in entries]
        for kind, entries in moved.items()
    }


def _vhosts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the virtual hosts that a document asks for, each with its limits and what else is said of it."""
    found: dict[str, dict[str, Any]] = {}
    for entry in _entries(document, "vhosts"):
        if not isinstance(entry.get("name"), str):
            raise Problem(400, "bad_request", "vhosts: an entry has no name")
        metadata = entry.get("metadata")
        said = {**(metadata if isinstance(metadata, dict) else {}), **entry}
        found[entry["name"]] = {trait: said[trait] for trait in VHOST_TRAITS if said.get(trait)}
    for entry in _entries(document, "parameters", is_plain=True):
        if _is_limits(entry):
            bounds = {limit_field(key): max(0, int(value)) for key, value in entry["value"].items()}
            found.setdefault(str(entry.get("vhost", DEFAULT_VHOST)), {}).update(bounds)
    return found


def _is_limits(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("component") != _LIMITS_COMPONENT:
        return False
    value = entry.get("value")
    return isinstance(value, dict) and all(isinstance(each, int) for each in value.values())


def _policies(document: dict[str, Any], vhosts: Container[str]) -> tuple[list[Policy], list[str]]:
    """Return the policies that a document asks for, those of operators too, and a line for each of which
    something is left out.
    """
    asked = [(entry, False) for entry in _entries(document, "policies", is_plain=True)]
    parameters = _entries(document, "parameters", is_plain=True)
    asked += [(_of_operator(entry), True) for entry in parameters if _is_operator_policy(entry)]
    taken: list[Policy] = []
    untaken: list[str] = []
    for entry, is_operator in asked:
        name = str(entry.get("name", "?")) if isinstance(entry, dict) else "?"
        try:
            if not isinstance(entry, dict) or entry.get("vhost", DEFAULT_VHOST) not in vhosts:
                raise InvalidArgument("there is no such virtual host")
            vhost = str(entry.get("vhost", DEFAULT_VHOST))
            entry, left = without_unknown(entry)
            if left:
                untaken.append(f"policy {name}: {', '.join(left)}")
            if left and not entry["definition"]:
                continue  # nothing of it means anything here
            taken.append(policy_of(entry, vhost, name, is_operator=is_operator))
        except InvalidArgument as error:
            untaken.append(f"policy {name}: {error.reason}")
    return taken, untaken


def _of_operator(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry["value"], "name": entry.get("name"), "vhost": entry.get("vhost", DEFAULT_VHOST)}


def _is_operator_policy(entry: Any) -> bool:
    is_one = isinstance(entry, dict) and entry.get("component") == _OPERATOR_COMPONENT
    return is_one and isinstance(entry.get("value"), dict)


def _operator_entry(policy: Policy) -> dict[str, Any]:
    """Return an operator's policy as RabbitMQ has it among the parameters."""
    told = policy_entry(policy)
    value = {key: told[key] for key in ("pattern", "apply-to", "priority", "definition")}
    return {"component": _OPERATOR_COMPONENT, "vhost": policy.vhost, "name": policy.name, "value": value}


def _not_taken(document: dict[str, Any], untaken: list[str]) -> tuple[dict[str, int], list[str]]:
    """Tell what of a document was not taken: how many of each kind, and a line for each."""
    lines = untaken[:]
    counts = {"policies": len(untaken)}
    for kind in NOT_TAKEN:
        entries = _entries(document, kind, is_plain=True)
        left = [entry for entry in entries if not (_is_limits(entry) or _is_operator_policy(entry))]
        counts[kind] = len(left)
        lines += [f"{kind}: {_title(entry)}" for entry in left]
    return counts, lines


def _title(entry: Any) -> str:
    """Return what an entry is about, without what might be a secret."""
    if not isinstance(entry, dict):
        return "?"
    return " ".join(
        str(entry[key]) for key in ("component", "name", "user", "vhost", "exchange") if key in entry
    )


def _entries(document: dict[str, Any], kind: str, *, is_plain: bool = False) -> list[Any]:
    entries = document.get(kind, [])
    if not isinstance(entries, list) or not (is_plain or all(isinstance(each, dict) for each in entries)):
        raise Problem(400, "bad_request", f"{kind} is a list of objects")
    return entries


def _read(kind: str, entry: dict[str, Any], vhosts: Container[str]) -> tuple[str, str, str, Any]:
    """Read what an entry asks for, and where, before anything is made; raises Problem."""
    vhost = entry.get("vhost", DEFAULT_VHOST)
    if vhost not in vhosts:
        raise Problem(400, "bad_request", f"{kind}: there is no vhost {vhost!r}")
    name = entry.get("name", entry.get("source"))
    if not isinstance(name, str):
        raise Problem(400, "bad_request", f"{kind}: an entry has no name")
    return kind, vhost, name, _READERS[kind](entry, name)


def _queue(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "name": name,
        "durable": flag(entry.get("durable"), "durable", True),
        "auto_delete": flag(entry.get("auto_delete"), "auto_delete", False),
        "arguments": table(entry.get("arguments"), "arguments"),
    }


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


def _without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in names}


def _queue_entry(view: QueueView, vhost: str) -> dict[str, Any]:
    return {
        "name": view.name,
        "vhost": vhost,
        "durable": True,
        "auto_delete": view.auto_delete,
        "arguments": shapes.arguments_of(view),
    }


_READERS: Final = {
    "queues": _queue,
    "exchanges": lambda entry, name: exchange_declaration(name, entry),
    "bindings": _binding,
}
