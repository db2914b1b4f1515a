"""What all workers have alike: virtual hosts, policies, bans, users. It is changed by way of the home worker.

Each worker keeps records of it, so that it knows its policies when it reads its queues at a start. What the
home worker has is right: another one is given all of it before it takes clients, and then each change in
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.client.bans import BanRecords
from broker.engine.client.policies import PolicyClient, VhostRecords
from broker.workers.worker_directory import all_answered
from queue_manager.api import BanKey, Policy, StoredBan, StoredVhost
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError

HOME: Final = 0  # the worker by which it is changed


class Told(Protocol):
    """A link over which changes are told."""

    number: int

    def call(self, part: str, method: str, *arguments: object) -> Answer[Any]:
        """Call a part of the other worker."""


class VhostFollower(Protocol):
    """Has the virtual hosts of this worker."""

    def follow(self, name: str, kept: StoredVhost) -> Awaitable[None] | None:
        """Have a virtual host as it is kept at the home worker; one that is being deleted is emptied by the
        time what this returns is done.
        """


class BanFollower(Protocol):
    """Has the bans that hold at this worker."""

    def follow(self, key: BanKey, kept: StoredBan | None) -> None:
        """Have a ban hold, or (None) no more."""


class SharedState:
    """The part of this worker in what all have alike.

    `vhosts`, `bans` and `read_users` (called with who changed them) act on what is heard from others.
    """

    def __init__(self, local: ShardClient, number: int, home: Callable[[], Told]) -> None:
        self._local = local
        self._is_home = number == HOME
        self._home = home
        self._links: list[Told] = []
        self._tasks: set[asyncio.Future[None]] = set()
        self.vhosts: VhostFollower
        self.bans: BanFollower
        self.read_users: Callable[[str], Awaitable[object]]

    def client_parts(self) -> dict[str, Any]:
        """Return the parts of a client that tell the others what is changed by them."""
        return {
            "policies": SharedPolicies(self._local.policies, self),
            "vhosts": SharedVhosts(self._local.vhosts, self),
            "bans": SharedBans(self._local.bans, self),
        }

    # what is told

    def begin(self, link: Told) -> Answer[None]:
        """Give another worker everything, and from now on each change: to be called at the home worker."""
        self._links.append(link)
        return link.call("shared", "take_all", *self._all())

    def end(self, link: Told) -> None:
        """Tell a worker nothing more: it is gone."""
        if link in self._links:
            self._links.remove(link)

    def tell(self, method: str, *arguments: object) -> list[Answer[Any]]:
        """Have the others do something, at the home worker; elsewhere nothing: who changes it is there."""
        return [link.call("shared", method, *arguments) for link in self._links]

    async def users_changed(self, by: str) -> None:
        """Have the others read the users anew; return when they did."""
        for answer in self.tell("take_users", by):
            try:
                await answer
            except (QueueManagerError, StorageError):
                pass  # it is gone, and reads them when it starts

    def tell_ban(self, key: BanKey, ban: StoredBan | None) -> None:
        """Have a ban hold everywhere, or no more: also at the home worker, where this is another one."""
        if self._is_home:
            self.tell("take_ban", key, ban)
        else:
            self._home().call("shared", "take_ban", key, ban)

    def _all(self) -> tuple[Mapping[str, StoredVhost], list[Policy], list[tuple[BanKey, StoredBan]]]:
        return (
            self._local.vhosts.kept(),
            self._local.policies.everywhere(),
            list(self._local.bans.kept()),
        )

    # what is heard

    def take_all(
        self,
        vhosts: Mapping[str, StoredVhost],
        policies: Iterable[Policy],
        bans: Iterable[tuple[BanKey, StoredBan]],
    ) -> Awaitable[None]:
        """Have all as the home worker has it; by the time what this returns is done, users too."""
        local = self._local
        for name, kept in local.vhosts.kept().items():
            if name not in vhosts:
                self._begin(self.take_vhost(name, kept._replace(is_being_deleted=True)))
        for name, kept in vhosts.items():
            if local.vhosts.kept().get(name) != kept:
                self._begin(self.take_vhost(name, kept))
        wanted = {(one.vhost, one.is_operator, one.name): one for one in policies}
        known = {(one.vhost, one.is_operator, one.name): one for one in local.policies.everywhere()}
        for vhost, is_operator, name in known.keys() - wanted.keys():
            self.clear_policy(vhost, name, is_operator)
        for key, policy in wanted.items():
            if known.get(key) != policy:
                self._local.policies.within(policy.vhost).set(policy)
        banned = dict(bans)
        for banned_key in [one for one, _ in local.bans.kept() if one not in banned]:
            self.take_ban(banned_key, None)
        for banned_key, ban in banned.items():
            self.take_ban(banned_key, ban)
        return self.take_users("")  # they may have changed since they were read at the start

    def take_vhost(self, name: str, kept: StoredVhost) -> Awaitable[None] | None:
        """Have a virtual host so; one that is being deleted is empty when what this returns is done."""
        self._local.vhosts.keep(name, kept)
        return self.vhosts.follow(name, kept)

    def set_policy(self, policy: Policy) -> None:
        """Have a policy."""
        self._local.policies.within(policy.vhost).set(policy)

    def clear_policy(self, vhost: str, name: str, is_operator: bool) -> None:
        """Have a policy no more."""
        self._local.policies.within(vhost).clear(name, is_operator=is_operator)

    def take_ban(self, key: BanKey, ban: StoredBan | None) -> None:
        """Have a ban hold, or no more; the home worker tells the others."""
        if ban is None:
            self._local.bans.forget(key)
        else:
            self._local.bans.keep(key, ban)
        self.bans.follow(key, ban)
        self.tell("take_ban", key, ban)

    async def take_users(self, by: str) -> None:
        """Read the users anew."""
        await self.read_users(by)

    def _begin(self, work: Awaitable[None] | None) -> None:
        if work is not None:
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class SharedPolicies(PolicyClient):
    """As `PolicyClient`, of all workers."""

    def __init__(self, local: PolicyClient, shared: SharedState) -> None:
        vars(self).update(vars(local))
        self._local = local
        self._shared = shared

    def within(self, vhost: str) -> SharedPolicies:
        """See `PolicyClient`."""
        return SharedPolicies(self._local.within(vhost), self._shared)

    def set(self, policy: Policy) -> bool:
        """See `PolicyClient`."""
        is_new = self._local.set(policy)
        self._shared.tell("set_policy", policy)
        return is_new

    def clear(self, name: str, *, is_operator: bool) -> bool:
        """See `PolicyClient`."""
        was_there = self._local.clear(name, is_operator=is_operator)
        self._shared.tell("clear_policy", self._vhost, name, is_operator)
        return was_there


class SharedVhosts(VhostRecords):
    """As `VhostRecords`, of all workers."""

    def __init__(self, local: VhostRecords, shared: SharedState) -> None:
        vars(self).update(vars(local))
        self._local = local
        self._shared = shared
        self._emptying: dict[str, Answer[None]] = {}

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """See `VhostRecords`."""
        self._local.keep(name, vhost)
        answers = self._shared.tell("take_vhost", name, vhost)
        if vhost.is_being_deleted:
            self._emptying[name] = all_answered(answers)

    async def emptied(self, name: str) -> None:
        """See `VhostRecords`."""
        answer = self._emptying.pop(name, None)
        if answer is not None:
            await answer


class SharedBans(BanRecords):
    """As `BanRecords`, of all workers."""

    def __init__(self, local: BanRecords, shared: SharedState) -> None:
        vars(self).update(vars(local))
        self._local = local
        self._shared = shared

    def keep(self, key: BanKey, ban: StoredBan) -> None:
        """See `BanRecords`."""
        self._local.keep(key, ban)
        self._shared.tell_ban(key, ban)

    def forget(self, key: BanKey) -> None:
        """See `BanRecords`."""
        self._local.forget(key)
        self._shared.tell_ban(key, None)
