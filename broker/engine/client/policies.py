"""Virtual hosts and their policies in a shard of this process."""

from __future__ import annotations

from collections.abc import Mapping

from broker.engine.shard import Shard
from config import limits
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import Policy, StoredVhost
from queue_manager.errors import LimitReached


class PolicyClient:
    """The policies of one virtual host; they hold at once, and are durable with the open commit."""

    def __init__(self, shard: Shard, vhost: str = DEFAULT_VHOST) -> None:
        self._shard = shard
        self._queues = shard.manager.queues
        self._vhost = vhost

    def within(self, vhost: str) -> PolicyClient:
        """Return the same for another virtual host."""
        return PolicyClient(self._shard, vhost)

    def all(self, *, is_operator: bool) -> list[Policy]:
        """Return the policies, or those of operators, by name."""
        found = self._queues.policies.of_vhost(self._vhost)
        return [policy for policy in found if policy.is_operator is is_operator]

    def everywhere(self) -> list[Policy]:
        """Return the policies of all virtual hosts, those of operators too."""
        return self._queues.policies.everywhere()

    def find(self, name: str, *, is_operator: bool) -> Policy | None:
        """Return the policy of that name."""
        return self._queues.policies.find(self._vhost, name, is_operator=is_operator)

    def set(self, policy: Policy) -> bool:
        """Have a policy, in the place of one of that name; whether it is new. Raises LimitReached."""
        is_new = self.find(policy.name, is_operator=policy.is_operator) is None
        if is_new and len(self._queues.policies.of_vhost(self._vhost)) >= limits.POLICIES_PER_VHOST_MAX:
            raise LimitReached(f"{limits.POLICIES_PER_VHOST_MAX} policies exist already")
        self._queues.set_policy(policy)
        self._shard.manager.sessions.follow_policies()
        self._shard.wake()
        return is_new

    def clear(self, name: str, *, is_operator: bool) -> bool:
        """Have a policy no more; whether it was there."""
        policy = self.find(name, is_operator=is_operator)
        if policy is None:
            return False
        self._queues.clear_policy(policy)
        self._shard.manager.sessions.follow_policies()
        self._shard.wake()
        return True


class VhostRecords:
    """The records of the virtual hosts that administration made; durable with the open commit."""

    def __init__(self, shard: Shard) -> None:
        self._vhosts = shard.manager.vhosts
        self._shard = shard

    def kept(self) -> Mapping[str, StoredVhost]:
        """Return all of them, by name."""
        return dict(self._vhosts.by_name)

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """Have one kept so."""
        self._vhosts.keep(name, vhost)
        self._shard.wake()

    async def emptied(self, name: str) -> None:
        """Return once nothing is left of one that is being deleted in shards other than this."""

    def forget(self, name: str) -> None:
        """Keep one no more; nothing of it may be left."""
        self._vhosts.forget(name)
        self._shard.manager.sessions.drop(name)
        self._shard.wake()
