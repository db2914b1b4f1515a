"""Changes of policies by administrators: durable, and told in the log."""

from __future__ import annotations

from typing import Any, Final

import structlog

from broker.engine.client import ShardClient
from queue_manager.api import Policy
from queue_manager.errors import QueueManagerError

_log: Final = structlog.get_logger("sluicemq")


class PolicyNotFound(QueueManagerError):
    """There is no policy of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"policy {name} not found")


async def set_policy(client: ShardClient, policy: Policy) -> bool:
    """Have a policy; whether it is new. Raises LimitReached."""
    is_new = client.policies.set(policy)
    await client.commits.durable()
    _log.info(
        "policy.set",
        vhost=policy.vhost,
        name=policy.name,
        operator=policy.is_operator,
        pattern=policy.pattern,
        definition=dict(policy.definition),
    )
    if client.events.is_wanted:
        headers: dict[str, Any] = {
            "name": policy.name,
            "vhost": policy.vhost,
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }
        client.events.note("policy.set", {**headers, "operator": policy.is_operator})
    return is_new


async def clear_policy(client: ShardClient, name: str, *, is_operator: bool) -> None:
    """Have a policy no more; raises PolicyNotFound."""
    policy = client.policies.find(name, is_operator=is_operator)
    if policy is None:
        raise PolicyNotFound(name)
    client.policies.clear(name, is_operator=is_operator)
    await client.commits.durable()
    _log.info("policy.cleared", vhost=policy.vhost, name=name, operator=is_operator)
    if client.events.is_wanted:
        key = "operator.policy.cleared" if is_operator else "policy.cleared"
        client.events.note(key, {"name": name, "vhost": policy.vhost})
