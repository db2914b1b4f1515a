"""The virtual hosts of a broker: `/`, those of the configuration, and those that administration made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

import structlog
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from broker.connections.registry import Goodbye
from broker.engine.client import ShardClient
from broker.engine.client.sessions import SessionClient
from broker.events.user_events import limits_told
from broker.stepping import in_steps, one_by_one
from broker.vhosts.hub import Hub
from broker.vhosts.vhost import VhostView
from config import limits
from config.quota_settings import quota_field
from config.settings import QueueType, VhostSettings
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import Policy, StoredVhost
from queue_manager.errors import (
    AccessRefused,
    ExchangeNotFound,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueNotFound,
)
from queue_manager.quota_accounts import CONNECTIONS, QUEUES
from storage.envelope import EnvelopeTemplate

T = TypeVar("T")

_log: Final = structlog.get_logger("sluicemq")


class ProtectedVhost(PreconditionFailed):
    """The virtual host is protected from deletion."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Refusing to delete virtual host '{name}' because it is protected from deletion")


class VhostDirectory:
    """Makes, changes and deletes virtual hosts. What stands in the configuration is changed there. Changes
    are durable when a call returns.
    """

    def __init__(self, hub: Hub, first_policies: Callable[[str], list[Policy]]) -> None:
        """`hub` is that of `/`; `first_policies` gives what a new virtual host begins with."""
        self._hub = hub
        self._first_policies = first_policies
        self._records = hub.client.vhosts
        self._commits = hub.client.commits
        self._configured: dict[str, VhostSettings] = {}
        self._changing = asyncio.Lock()
        self._is_begun = False

    async def begin(self, configured: Sequence[VhostSettings]) -> None:
        """Have all virtual hosts and the quotas of users at a start, and delete what was being deleted."""
        self._bound_users()
        self._hub.access.on_reload(self._bound_users)
        self.configure(configured)
        for name, kept in self._records.kept().items():
            if kept.is_being_deleted:
                await self._delete_rest(name)
            elif name not in self._configured:
                self._hub.configure_vhost(_settings(name, kept))
        self._is_begun = True

    def configure(self, configured: Sequence[VhostSettings]) -> None:
        """Have those of the configuration, as they stand there."""
        self._configured = {settings.name: settings for settings in configured}
        for settings in configured:
            self._hub.configure_vhost(settings)

    def _bound_users(self) -> None:
        hub = self._hub
        hub.client.quotas.bound_users(*hub.access.quotas)

    async def all(self) -> list[VhostView]:
        """Return all virtual hosts, by name."""
        return [await self.view(name) for name in self._hub.vhosts()]

    async def view(self, name: str) -> VhostView:
        """Return one virtual host; raises VhostNotFound."""
        hub = self._hub.of_vhost(name)
        settings = self._configured.get(name)
        if settings is None:
            kept = self._records.kept().get(name)
            settings = _settings(name, kept) if kept is not None else VhostSettings(name=name)
        return VhostView(
            **settings.model_dump(exclude={"queues"}),
            configured=name == DEFAULT_VHOST or name in self._configured,
            connections=await hub.client.quotas.whole_count(CONNECTIONS, name),
            queues=len(await hub.client.queues.names()),
        )

    async def declare(self, name: str, **changes: Any) -> bool:
        """Have a virtual host with these settings of `config.settings.VhostTraits`, the others as they are;
        whether it is new.

        Raises InvalidArgument, LimitReached; PreconditionFailed where the configuration says otherwise.
        """
        async with self._changing:
            kept = self._records.kept().get(name)
            is_new = name not in self._hub.vhosts()
            before = VhostSettings(name=name) if kept is None else _settings(name, kept)
            try:
                settings = VhostSettings(**{**before.model_dump(), **changes})
            except ValidationError as error:
                raise InvalidArgument("; ".join(map(_told, error.errors()))) from None
            if name in self._configured:
                if changes:
                    self._check_own(name)
                return False
            if not is_new and not changes:
                return False
            if is_new and len(self._hub.vhosts()) >= limits.VHOSTS_MAX:
                raise LimitReached(f"{limits.VHOSTS_MAX} virtual hosts exist already")
            self._records.keep(name, _stored(settings))
            self._hub.configure_vhost(settings)
            if is_new:
                for policy in self._first_policies(name):
                    self._hub.of_vhost(name).client.policies.set(policy)
            await self._commits.durable()
        told = settings.model_dump(exclude={"name"}, exclude_defaults=True)
        _log.info("vhost.made" if is_new else "vhost.changed", vhost=name, **told)
        if self._hub.events.is_wanted:
            self._tell(before, settings, is_new=is_new)
        return is_new

    async def delete(self, name: str) -> None:
        """Delete a virtual host with all that is in it; who is connected to it is sent away.

        Raises VhostNotFound; PreconditionFailed for `/`, what is protected, and what stands in the
        configuration.
        """
        async with self._changing:
            self._hub.of_vhost(name)
            if name == DEFAULT_VHOST:
                raise PreconditionFailed("the virtual host / is always there")
            self._check_own(name)
            if self._hub.of_vhost(name).vhost.settings.protected_from_deletion:
                raise ProtectedVhost(name)
            kept = self._records.kept().get(name, StoredVhost(False, 0, 0))
            self._records.keep(name, kept._replace(is_being_deleted=True))
            client = self._hub.of_vhost(name).client
            self._hub.drop_vhost(name)
            await self._send_away(name)
            await _empty(client)
            await self._records.emptied(name)
            self._records.forget(name)
            await self._commits.durable()
        _log.info("vhost.deleted", vhost=name)
        if self._hub.events.is_wanted:
            self._hub.events.note("vhost.deleted", {"name": name})

    def follow(self, name: str, kept: StoredVhost) -> Awaitable[None] | None:
        """Have a virtual host as another worker of this broker has it; one that is being deleted is empty
        when what this returns is done. Before `begin` nothing is done: that finds what is kept.
        """
        if not self._is_begun or name in self._configured:
            return None
        if not kept.is_being_deleted:
            self._hub.configure_vhost(_settings(name, kept))
            return None
        if name not in self._hub.vhosts():
            return None
        client = self._hub.of_vhost(name).client
        self._hub.drop_vhost(name)
        return self._follow_deletion(name, client)

    async def _follow_deletion(self, name: str, client: ShardClient) -> None:
        await self._send_away(name)
        await _empty(client)
        self._records.forget(name)
        await self._commits.durable()

    def _tell(self, before: VhostSettings, after: VhostSettings, *, is_new: bool) -> None:
        """Have events tell of a virtual host that was made or changed."""
        events, name = self._hub.events, after.name
        if is_new:
            kind = after.default_queue_type
            told = {"description": after.description, "tags": list(after.tags), "default_queue_type": kind}
            events.note("vhost.created", {"name": name, **told})
        quotas = after.quotas()
        if quotas != before.quotas():
            key = "vhost.limits.set" if quotas else "vhost.limits.cleared"
            events.note(key, {"vhost": name, "name": "limits", **limits_told(quotas)})

    def _check_own(self, name: str) -> None:
        """Raise PreconditionFailed for what administration may not change."""
        if name in self._configured:
            raise PreconditionFailed(f"the configuration has the virtual host {name!r}: change it there")

    async def _delete_rest(self, name: str) -> None:
        """Go on with a deletion that a stop or a crash has interrupted."""
        self._hub.configure_vhost(VhostSettings(name=name))
        client = self._hub.of_vhost(name).client
        self._hub.drop_vhost(name)
        await _empty(client)
        self._records.forget(name)

    async def _send_away(self, name: str) -> None:
        async for peer in self._hub.peers():
            if peer.describe().description.vhost == name:
                peer.send_away(Goodbye.DISMISSED, f"vhost '{name}' is deleted")


def _settings(name: str, kept: StoredVhost) -> VhostSettings:
    fields: dict[str, Any] = {quota_field(quota): most for quota, most in kept.quotas}
    return VhostSettings(
        name=name,
        max_connections=kept.connections_max,
        max_queues=kept.queues_max,
        description=kept.description,
        tags=kept.tags,
        default_queue_type=cast(QueueType, kept.default_queue_type),
        protected_from_deletion=bool(kept.is_protected),
        **fields,
    )


def _stored(settings: VhostSettings) -> StoredVhost:
    quotas = settings.quotas()
    others = tuple([(name, most) for name, most in quotas.items() if name not in (CONNECTIONS, QUEUES)])
    return StoredVhost(
        False,
        settings.max_connections,
        settings.max_queues,
        others,
        settings.description,
        settings.tags,
        settings.default_queue_type,
        int(settings.protected_from_deletion),
    )


def _told(details: ErrorDetails) -> str:
    """Return a problem of a setting, with its name."""
    name = ".".join(map(str, details["loc"]))
    return f"{name}: {details['msg']}" if name else details["msg"]


async def _empty(client: ShardClient) -> None:
    """Delete everything in a virtual host."""
    await _end_sessions(client.sessions)
    for is_operator in (False, True):
        for policy in client.policies.all(is_operator=is_operator):
            client.policies.clear(policy.name, is_operator=is_operator)
    async for queue in _each(client, await client.queues.names()):
        try:
            await client.queues.delete(queue)
        except QueueNotFound:
            pass  # it went with its last consumer, or its owner
    async for binding in _each(client, await client.exchanges.bindings()):
        await client.exchanges.unbind(binding)
    async for exchange in _each(client, await client.exchanges.views()):
        try:
            await client.exchanges.delete(exchange.name)
        except (AccessRefused, ExchangeNotFound):
            pass  # it is always there, or went with its last binding
    async for topic in _each(client, client.retained.topics()):
        client.retained.keep(EnvelopeTemplate(topic), 0, b"")
    await client.commits.durable()


async def _each(client: ShardClient, things: Sequence[T]) -> AsyncIterator[T]:
    """Yield the things; after some of them what was done is written, and others have their turn."""
    async for part in in_steps(things, limits.VHOST_THINGS_ENDED_PER_STEP):
        for thing in part:
            yield thing
        client.turns.settle()


async def _end_sessions(sessions: SessionClient) -> None:
    async for session in one_by_one(sessions.all(), limits.VHOST_SESSIONS_ENDED_PER_STEP):
        if not session.is_over:  # that of a share group ends with its last member
            sessions.end(session)
    for session_number in sessions.wills.all:
        sessions.wills.let_go(session_number)
