"""Definitions: what was declared, written out and read back, as RabbitMQ's JSON."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, TypeVar

import structlog
from starlette.responses import Response

from broker.access.ban_table import Ban, BanKind
from broker.amqp.topology.declarations import queue_declaration
from broker.http.problems import Problem
from broker.http.rabbitmq import shapes
from broker.http.rabbitmq.account_entries import permission_in, topic_permissions_in, user_entry, users_of
from broker.http.rabbitmq.asking import Asking, Calls, answer, flag, nothing, table
from broker.http.rabbitmq.limit_names import bounds_of, limits_of
from broker.http.rabbitmq.policies import policy_entry, policy_of, without_unknown
from broker.http.rabbitmq.queues import exchange_declaration
from broker.http.rabbitmq.vhosts import VHOST_TRAITS
from broker.http.site import Site
from broker.links.components import COMPONENTS
from broker.stepping import in_steps
from broker.version import PRODUCT, RABBITMQ_VERSION, VERSION
from broker.vhosts.vhost import VhostView
from config import limits
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import BindingDefinition, ExchangeView, Policy, QueueView
from queue_manager.errors import InvalidArgument, QueueManagerError

T = TypeVar("T")

_log: Final = structlog.get_logger("sluicemq.http")

NOT_TAKEN: Final = ("parameters", "global_parameters")
"""The parts of RabbitMQ's file that this broker takes in part, or not at all."""

_ACCOUNTS: Final = ("users", "permissions", "topic_permissions")
"""The parts that are kept in the users file."""

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
            **_accounts(asking.site, names),
            "vhosts": [_vhost_entry(await asking.vhosts.view(name)) for name in names],
            "global_parameters": [],
            "bans": list(map(_ban_entry, asking.site.access.bans.all())),
        }
    return answer(document)


def _accounts(site: Site, vhosts: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the users of the users file with their hashes, and what they may do in each virtual host."""
    users = site.admin.users.kept()
    each = [(user.name, vhost, user.permissions) for user in users for vhost in vhosts]
    return {
        "users": [user_entry(user) for user in users],
        "permissions": [entry for one in each if (entry := permission_in(*one)) is not None],
        "topic_permissions": [entry for one in each for entry in topic_permissions_in(*one)],
    }


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
            *[_without(asdict(each), *hidden) for each in site.links.all(vhost, with_secrets=True)],
        ],
        "queues": [_without(_queue_entry(view, vhost), *hidden) for view in queues],
        "exchanges": [_without(_exchange_entry(view, vhost), *hidden) for view in made],
        "bindings": [_without(shapes.binding(each, vhost), "properties_key", *hidden) for each in bindings],
    }


@calls.add("POST", "/definitions", "/definitions/{vhost}")
async def load(asking: Asking) -> Response:
    """Make what a document has and is not there yet, as far as it can be; then tell of what cannot.

    Of what means nothing here the header `x-not-taken` and a line in the log tell; what is refused, such as
    something that is there in another way, is an error. With `?verbose=true` the answer says it one by one.
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
    untaken = _Untaken()
    made: Counter[str] = Counter(dict.fromkeys(("vhosts", "policies", *_READERS, "users"), 0))
    for name, bounds in _vhosts(document, untaken).items():
        with untaken.of("vhosts", name):
            await _make_vhost(asking.site, name, bounds)
            made["vhosts"] += 1
    known = asking.site.hub.vhosts()
    made["users"] = await _add_users(asking, document, known, untaken)
    for policy in _policies(document, known, untaken):
        with untaken.of("policies", policy.name):
            asking.site.hub.of_vhost(policy.vhost).client.policies.set(policy)
            made["policies"] += 1
    for kind in _READERS:
        entries = [each for each in _entries(document, kind) if not _is_predeclared(kind, each)]
        async for step in in_steps(entries, limits.RABBITMQ_DEFINITIONS_PER_STEP):
            for entry in step:
                with untaken.of(kind, _title(entry)):
                    await _make(asking.site, kind, *_read(kind, entry, known))
                    made[kind] += 1
            asking.site.hub.settle_turn()  # so that it is many commits, too
    made["bans"] = await _add_bans(asking, document, untaken)
    made["parameters"] = await _set_parameters(asking, document, known, untaken)
    await asking.site.client.commits.durable()
    _pass_over(document, untaken)
    told = ", ".join(f"{kind} ({count})" for kind, count in untaken.counts.items())
    if told:
        _log.warning("definitions.not_taken", kinds=told)
    if asking.query.get("verbose") == "true":
        return answer({"made": made, "not_taken": untaken.lines})
    if untaken.refused:
        raise Problem(400, "bad_request", f"not taken: {'; '.join(untaken.refused)}")
    return nothing(204, {"x-not-taken": told} if told else None)


class _Untaken:
    """What of a document is not taken, and why."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self.refused: list[str] = []
        """The first of the lines that tell of something that could not be made."""

    def add(self, kind: str, line: str) -> None:
        """Note one thing."""
        self.counts[kind] += 1
        self.lines.append(f"{kind}: {line}")

    @contextmanager
    def of(self, kind: str, title: str) -> Iterator[None]:
        """Make one entry; where it is refused, note that and go on."""
        try:
            yield
        except (QueueManagerError, Problem) as error:
            self.add(kind, f"{title}: {' '.join(error.reason.split())}")
            if len(self.refused) < limits.RABBITMQ_DEFINITIONS_REFUSED_TOLD_MAX:
                self.refused.append(self.lines[-1])


async def _add_users(
    asking: Asking, document: dict[str, Any], vhosts: Collection[str], untaken: _Untaken
) -> int:
    """Add the users of a document to the users file, and return how many of them are there then."""
    users, lines = users_of({kind: _entries(document, kind) for kind in _ACCOUNTS}, vhosts)
    if users:
        names = [user.name for user in users]
        try:
            others = await asking.site.admin.users.add_all(users, asking.login.user)
        except InvalidArgument as error:
            others = names
            lines.append(f"users: {', '.join(names)}: {error.reason}")
        else:
            lines += [f"users: {name}: is there in another way" for name in others]
        users = [user for user in users if user.name not in others]
    for line in lines:
        kind, _, what = line.partition(": ")
        untaken.add(kind, what)
    return len(users)


def _ban_entry(ban: Ban) -> dict[str, Any]:
    entry = {"kind": ban.kind.value, "value": ban.value, "reason": ban.reason, "by": ban.by}
    return entry if ban.until_ms is None else {**entry, "until_ms": ban.until_ms}


async def _add_bans(asking: Asking, document: dict[str, Any], untaken: _Untaken) -> int:
    """Ban whom a document bans, and return how many that are; what was for a time goes on until then."""
    count = 0
    async for step in in_steps(_entries(document, "bans"), limits.RABBITMQ_DEFINITIONS_PER_STEP):
        answers = await asyncio.gather(*[_ban(asking, each) for each in step], return_exceptions=True)
        for entry, answer_of in zip(step, answers, strict=True):
            with untaken.of("bans", f"{entry.get('kind')} {entry.get('value')}"):
                if isinstance(answer_of, BaseException):
                    raise answer_of
                count += answer_of
    return count


async def _ban(asking: Asking, entry: dict[str, Any]) -> bool:
    """Ban whom an entry names; whether that is still to be. Raises InvalidArgument, LimitReached,
    PreconditionFailed.
    """
    kind, value, until_ms = entry.get("kind"), entry.get("value"), entry.get("until_ms")
    reason = entry.get("reason", "")
    if kind not in [each.value for each in BanKind] or not isinstance(value, str):
        raise InvalidArgument("a ban has a kind (client_id, user or address) and a value")
    if not isinstance(reason, str) or not (until_ms is None or isinstance(until_ms, int)):
        raise InvalidArgument("reason is a text, until_ms a number")
    hub = asking.site.hub
    for_ms = None if until_ms is None else until_ms - hub.clock.now_ms()
    if for_ms is not None and for_ms <= 0:
        return False
    client = asking.request.client
    await hub.banning.add(
        BanKind(kind),
        value,
        reason=reason,
        for_ms=for_ms,
        by=asking.login.user,
        by_host=client.host if client else "",
    )
    return True


async def _make_vhost(site: Site, name: str, changes: dict[str, Any]) -> None:
    if changes or name not in site.hub.vhosts():
        await site.admin.vhosts.declare(name, **changes)


def _vhost_entry(view: VhostView) -> dict[str, Any]:
    metadata = {"description": view.description, "tags": list(view.tags)}
    metadata["default_queue_type"] = view.default_queue_type
    protected = {"protected_from_deletion": True} if view.protected_from_deletion else {}
    return {"name": view.name, "limits": limits_of(view), "metadata": {**metadata, **protected}}


async def _limit_entries(site: Site, vhost: str) -> list[dict[str, Any]]:
    """Return the quotas of a virtual host as RabbitMQ has them among the parameters."""
    value = limits_of(await site.admin.vhosts.view(vhost))
    entry = {"component": _LIMITS_COMPONENT, "vhost": vhost, "name": "limits", "value": value}
    return [entry] if value else []


async def _make(site: Site, kind: str, vhost: str, wanted: Any) -> None:
    """Make what an entry asks for, if it is not there; raises QueueManagerError."""
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
    return {kind: [{**entry, "vhost": vhost} for entry in _entries(document, kind)] for kind in kinds}


def _vhosts(document: dict[str, Any], untaken: _Untaken) -> dict[str, dict[str, Any]]:
    """Return the virtual hosts that a document asks for, each with its limits and what else is said of it."""
    found: dict[str, dict[str, Any]] = {}
    for entry in _entries(document, "vhosts"):
        metadata = entry.get("metadata")
        said = {**(metadata if isinstance(metadata, dict) else {}), **entry}
        with untaken.of("vhosts", _title(entry)):
            found[_name(entry)] = {trait: said[trait] for trait in VHOST_TRAITS if said.get(trait)}
            found[_name(entry)] |= bounds_of(entry.get("limits"))
    for entry in _entries(document, "parameters"):
        if _is_limits(entry):
            with untaken.of("parameters", _title(entry)):
                vhost = str(entry.get("vhost", DEFAULT_VHOST))
                found.setdefault(vhost, {}).update(bounds_of(entry["value"]))
    return found


def _is_limits(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("value"), dict) and entry.get("component") == _LIMITS_COMPONENT


def _policies(document: dict[str, Any], vhosts: Container[str], untaken: _Untaken) -> Iterator[Policy]:
    """Yield the policies that a document asks for, those of operators too, and note what is left out of
    them.
    """
    asked = [(entry, False) for entry in _entries(document, "policies")]
    parameters = _entries(document, "parameters")
    asked += [(_of_operator(entry), True) for entry in parameters if _is_operator_policy(entry)]
    for entry, is_operator in asked:
        name, vhost = str(entry.get("name", "?")), str(entry.get("vhost", DEFAULT_VHOST))
        try:
            if vhost not in vhosts:
                raise InvalidArgument("there is no such virtual host")
            entry, left = without_unknown(entry)
            if left:
                untaken.add("policies", f"{name}: {', '.join(left)}")
            if not left or entry["definition"]:  # something of it means anything here
                yield policy_of(entry, vhost, name, is_operator=is_operator)
        except InvalidArgument as error:
            untaken.add("policies", f"{name}: {error.reason}")


def _is_link(kind: str, entry: dict[str, Any]) -> bool:
    return kind == "parameters" and entry.get("component") in COMPONENTS


async def _set_parameters(
    asking: Asking, document: dict[str, Any], vhosts: Container[str], untaken: _Untaken
) -> int:
    """Make the parameters of links that a document asks for; how many."""
    count = 0
    for entry in _entries(document, "parameters"):
        if not _is_link("parameters", entry):
            continue
        vhost = str(entry.get("vhost", DEFAULT_VHOST))
        with untaken.of("parameters", _title(entry)):
            if vhost not in vhosts:
                raise InvalidArgument("there is no such virtual host")
            component, name = str(entry["component"]), str(entry.get("name", ""))
            await asking.site.links.set(component, vhost, name, entry.get("value"), asking.login)
            count += 1
    return count


def _of_operator(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry["value"], "name": entry.get("name"), "vhost": entry.get("vhost", DEFAULT_VHOST)}


def _is_operator_policy(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("value"), dict) and entry.get("component") == _OPERATOR_COMPONENT


def _operator_entry(policy: Policy) -> dict[str, Any]:
    """Return an operator's policy as RabbitMQ has it among the parameters."""
    told = policy_entry(policy)
    value = {key: told[key] for key in ("pattern", "apply-to", "priority", "definition")}
    return {"component": _OPERATOR_COMPONENT, "vhost": policy.vhost, "name": policy.name, "value": value}


def _pass_over(document: dict[str, Any], untaken: _Untaken) -> None:
    """Note what a document has that means nothing here."""
    for kind in NOT_TAKEN:
        for entry in _entries(document, kind):
            if not (_is_limits(entry) or _is_operator_policy(entry) or _is_link(kind, entry)):
                untaken.add(kind, _title(entry))


def _title(entry: dict[str, Any]) -> str:
    """Return what an entry is about, without what might be a secret."""
    keys = ("component", "name", "source", "destination", "vhost")
    return " ".join(str(entry[key]) for key in keys if key in entry)


def _entries(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    entries = document.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise Problem(400, "bad_request", f"{kind} is a list of objects")
    return entries


def _name(entry: dict[str, Any]) -> str:
    name = entry.get("name", entry.get("source"))
    if not isinstance(name, str):
        raise Problem(400, "bad_request", "an entry has no name")
    return name


def _is_predeclared(kind: str, entry: dict[str, Any]) -> bool:
    """Return whether an entry is an exchange that is there anyway, or RabbitMQ's own, as of its log."""
    return kind == "exchanges" and str(entry.get("name")).startswith("amq.")


def _read(kind: str, entry: dict[str, Any], vhosts: Container[str]) -> tuple[str, Any]:
    """Read where an entry belongs, and what it asks for; raises Problem."""
    vhost = entry.get("vhost", DEFAULT_VHOST)
    if vhost not in vhosts:
        raise Problem(400, "bad_request", f"there is no vhost {vhost!r}")
    return vhost, _READERS[kind](entry, _name(entry))


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


def _exchange_entry(view: ExchangeView, vhost: str) -> dict[str, Any]:
    entry = _without(shapes.exchange(view, vhost), "policy", "user_who_performed_action")
    return entry if view.internal else _without(entry, "internal")


def _queue_entry(view: QueueView, vhost: str) -> dict[str, Any]:
    return {
        "name": view.name,
        "vhost": vhost,
        "type": shapes.queue_type(view),
        "durable": True,
        "auto_delete": view.auto_delete,
        "arguments": shapes.arguments_of(view),
    }


_READERS: Final = {
    "queues": _queue,
    "exchanges": lambda entry, name: exchange_declaration(name, entry),
    "bindings": _binding,
}
