"""Policies and operators' policies in RabbitMQ's API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from broker.admin.policy_changes import PolicyNotFound, clear_policy, set_policy
from broker.amqp.topology.policy_keys import ANY_KEYS, make_policy
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, Call, Calls, answer, nothing
from queue_manager.api import Policy

_MAKERS: Final = frozenset(("policymaker", "administrator"))

calls: Final = Calls()


def policy_entry(policy: Policy) -> dict[str, Any]:
    """Return the form of a policy."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def policy_of(entry: Mapping[str, Any], vhost: str, name: str, *, is_operator: bool) -> Policy:
    """Return the policy that such an entry asks for; raises InvalidArgument."""
    return make_policy(
        vhost,
        name,
        pattern=entry.get("pattern"),
        definition=entry.get("definition"),
        apply_to=entry.get("apply-to", "all"),
        priority=entry.get("priority", 0),
        is_operator=is_operator,
    )


def without_unknown(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an entry without the keys that mean nothing here, and those: old brokers had others."""
    definition = entry.get("definition")
    if not isinstance(definition, dict):
        return dict(entry), []
    left = sorted(definition.keys() - ANY_KEYS)
    return {**entry, "definition": {key: value for key, value in definition.items() if key in ANY_KEYS}}, left


def check_maker(asking: Asking, *, is_operator: bool) -> None:
    """Check that the user may make such policies; raises Problem."""
    if is_operator:
        asking.check_administrator()
    elif not asking.login.tags & _MAKERS:
        raise Problem(401, "not_authorised", "Not policymaker user")


def _listed(is_operator: bool) -> Call:
    async def listed(asking: Asking) -> Response:
        check_maker(asking, is_operator=is_operator)
        found: list[Policy] = []
        for place in asking.places():
            found += place.client.policies.all(is_operator=is_operator)
        return answer(list(map(policy_entry, found)))

    return listed


def _shown(is_operator: bool) -> Call:
    async def shown(asking: Asking) -> Response:
        check_maker(asking, is_operator=is_operator)
        place = asking.place()
        found = place.client.policies.find(asking.part("name"), is_operator=is_operator)
        if found is None:
            raise Problem(404, "not_found", "Not Found")
        return answer(policy_entry(found))

    return shown


def _put(is_operator: bool) -> Call:
    async def put(asking: Asking) -> Response:
        check_maker(asking, is_operator=is_operator)
        place = asking.place()
        entry = await asking.body("pattern", "definition")
        policy = policy_of(entry, place.vhost, asking.part("name"), is_operator=is_operator)
        return nothing(201 if await set_policy(place.client, policy) else 204)

    return put


def _deleted(is_operator: bool) -> Call:
    async def deleted(asking: Asking) -> Response:
        check_maker(asking, is_operator=is_operator)
        place = asking.place()
        try:
            await clear_policy(place.client, asking.part("name"), is_operator=is_operator)
        except PolicyNotFound:
            raise Problem(404, "not_found", "Not Found") from None
        return nothing()

    return deleted


_ITEM_CALLS: Final[Mapping[str, Callable[[bool], Call]]] = {"GET": _shown, "PUT": _put, "DELETE": _deleted}

for _kind, _is_operator in (("policies", False), ("operator-policies", True)):
    calls.add("GET", f"/{_kind}", f"/{_kind}/{{vhost}}")(_listed(_is_operator))
    for _method, _make in _ITEM_CALLS.items():
        calls.add(_method, f"/{_kind}/{{vhost}}/{{name}}")(_make(_is_operator))
