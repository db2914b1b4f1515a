"""Policies over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from broker.admin.policy_changes import PolicyNotFound, clear_policy, set_policy
from broker.amqp.topology.policy_keys import make_policy
from broker.http.endpoints import Endpoints
from broker.http.site import Site
from queue_manager.api import Policy

policies: Final = Endpoints("policies")

ApplyTo = Literal["all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges", "mqtt_sessions"]


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A policy; `operator`: it bounds what another one and declarations ask for."""

    name: str
    operator: bool
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, Any]


def _view(policy: Policy) -> PolicyView:
    return PolicyView(
        policy.name,
        policy.is_operator,
        policy.pattern,
        policy.apply_to,
        policy.priority,
        policy.definition,
    )


@policies.endpoint("GET", "/policies")
async def list_policies(site: Site) -> list[PolicyView]:
    """List policies by name, those of operators last."""
    client = site.client.policies
    return [_view(each) for flag in (False, True) for each in client.all(is_operator=flag)]


@policies.endpoint("GET", "/policies/{policy}")
async def show_policy(site: Site, policy: str, *, operator: bool = False) -> PolicyView:
    """Show one policy."""
    found = site.client.policies.find(policy, is_operator=operator)
    if found is None:
        raise PolicyNotFound(policy)
    return _view(found)


@policies.endpoint("PUT", "/policies/{policy}")
async def put_policy(
    site: Site,
    policy: str,
    *,
    pattern: str,
    definition: dict[str, Any],
    apply_to: ApplyTo = "all",
    priority: int = 0,
    operator: bool = False,
) -> PolicyView:
    """Make a policy, or put it in the place of one of that name; it holds at once. `definition` has arguments
    of queues and exchanges without their `x-`, or bounds of MQTT sessions.
    """
    wanted = make_policy(
        site.vhost,
        policy,
        pattern=pattern,
        definition=definition,
        apply_to=apply_to,
        priority=priority,
        is_operator=operator,
    )
    await set_policy(site.client, wanted)
    return _view(wanted)


@policies.endpoint("DELETE", "/policies/{policy}")
async def delete_policy(site: Site, policy: str, *, operator: bool = False) -> None:
    """Delete a policy; what it was for goes on as it was declared."""
    await clear_policy(site.client, policy, is_operator=operator)
