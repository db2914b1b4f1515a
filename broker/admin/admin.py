"""What can be asked of a running broker and done to it, in process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from broker.access.login import Identity
from broker.access.users import itself
from broker.admin import browsing, publishing
from broker.admin.checking import checks_arguments
from broker.admin.users import UserAdmin
from broker.admin.vhosts import Vhosts
from broker.admin.views import (
    ChangedQueue,
    Difference,
    GroupView,
    Page,
    Published,
    PublishedThrough,
    QueuePage,
    QueueView,
    State,
)
from broker.clock import Clock
from broker.configured import capture, declaration_of, groups_of
from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.queue_change import QueueChange, told
from broker.reloading import Reloaded
from config.loader import ConfigError
from config.names import check_queue_name
from config.queue_settings import QueueSettings
from config.settings import Settings
from queue_manager.api import (
    BindingDefinition,
    BrowseRequest,
    Changed,
    ExchangeDeclaration,
    ExchangeView,
    GroupDefinition,
    QueueDeclaration,
    read_start,
)
from queue_manager.errors import InvalidAddress, InvalidArgument
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import Pause

Start = str | int | datetime


@checks_arguments
class Admin:
    """What can be asked of a running broker and done to it. Call it from the broker's own event loop.

    Every call may raise StorageError; the reasons of QueueManagerError are fit for users. Changes are durable
    when a call returns. Once the broker has stopped or its store has failed, every call raises BrokerStopped
    (a StorageError), also those that wait then.
    """

    def __init__(
        self,
        client: ShardClient,
        settings: Callable[[], Settings],
        clock: Clock,
        reload: Callable[[], Awaitable[Reloaded]],
        vhosts: Vhosts,
        users: UserAdmin,
    ) -> None:
        self.vhosts = vhosts
        self.users = users
        self._its_client = client
        self._reload = reload
        self._settings = settings
        self._clock = clock
        self._identity = itself().enter("*")

    def within(self, client: ShardClient) -> Admin:
        """The same for what is in a virtual host: `client` is its way to the shard."""
        return Admin(client, self._settings, self._clock, self._reload, self.vhosts, self.users)

    @property
    def _client(self) -> ShardClient:
        """The way to the shard, as long as it lives; raises BrokerStopped."""
        self._its_client.check()
        return self._its_client

    def check(self) -> None:
        """Raise BrokerStopped once the broker has stopped, or its store has failed."""
        self._its_client.check()

    async def reload(self) -> Reloaded:
        """Read the configuration, users and certificates anew, as at SIGHUP.

        Raises InvalidArgument, with all problems, for what cannot be used; then nothing changes.
        """
        self.check()
        try:
            return await self._reload()
        except ConfigError as error:
            raise InvalidArgument(str(error)) from None

    @property
    def settings(self) -> Settings:
        """The settings that hold; a reload changes them."""
        return self._settings()

    # queues

    async def queues(self) -> list[QueueView]:
        """All queues, by name."""
        return await self._client.queues.views()

    async def queue_page(self, *, after: str = "", limit: int = 100, name: str = "") -> QueuePage:
        """At most `limit` queues with `name` in their names, by name, behind the name `after`."""
        names = [found for found in await self._client.queues.names() if name in found]
        begin = bisect_right(names, after) if after else 0
        wanted = names[begin : begin + limit]
        views = await self._client.queues.views(wanted)
        more = begin + limit < len(names)
        return QueuePage(items=tuple(views), total=len(names), next=wanted[-1] if more and wanted else None)

    async def queue(self, name: str) -> QueueView:
        """One queue; raises QueueNotFound."""
        return await self._client.queues.view(name)

    async def declare(self, settings: QueueSettings | str) -> QueueView:
        """The queue, made if it is not there, as an entry of `queues:` in the configuration says (a name
        alone: a classic queue with the defaults).

        Raises PreconditionFailed when it exists as another type, InvalidAddress, LimitReached.
        """
        if isinstance(settings, str):
            try:
                settings = QueueSettings(name=check_queue_name(settings))
            except ValueError as error:
                raise InvalidAddress(str(error)) from None
        client = self._client
        await client.queues.declare(declaration_of(self.settings, settings))
        for group in groups_of(settings):
            await client.groups.ensure(settings.name, group)
        await client.commits.durable()
        return await client.queues.view(settings.name)

    async def configure(self, settings: QueueSettings) -> QueueView:
        """Have a queue as an entry of `queues:` in the configuration says: made if it is not there, else
        given its policy, topics and groups. Raises PreconditionFailed when it exists as another type.
        """
        client = self._client
        await client.queues.configure(declaration_of(self.settings, settings))
        for group in groups_of(settings):
            await client.groups.ensure(settings.name, group)
        await client.commits.durable()
        return await client.queues.view(settings.name)

    async def change(self, change: QueueChange) -> ChangedQueue:
        """As `configure`, but what the request does not name stays as it is; tells what is different now."""
        client = self._client
        settings = change.settings
        is_there = await client.queues.exists(settings.name)
        before = told(await client.queues.view(settings.name)) if is_there else {}
        declaration = declaration_of(self.settings, settings)
        await client.queues.configure(replace(declaration, policy=change.policy(declaration.policy)))
        if change.touches("topics") or change.touches("capture"):
            await capture(client, settings)
        for group in groups_of(settings):
            await client.groups.ensure(settings.name, group)
        await client.commits.durable()
        view = await client.queues.view(settings.name)
        after = told(view)
        changed = {key: Difference(was, after[key]) for key, was in before.items() if was != after[key]}
        known = {each.name: getattr(view, each.name) for each in fields(view)}
        return ChangedQueue(**known, changed=changed)

    async def declare_queue(self, declaration: QueueDeclaration) -> bool:
        """A queue by its whole declaration, as AMQP has it; whether it is new. Raises Inequivalent,
        PreconditionFailed, InvalidAddress, LimitReached.
        """
        client = self._client
        status = await client.queues.declare(declaration)
        if status.durable:
            await client.commits.durable()
        return status.is_new

    async def delete(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue with all it holds; give how many messages waited in it.

        Raises QueueNotFound, PreconditionFailed.
        """
        client = self._client
        dropped = await client.queues.delete(name, if_unused=if_unused, if_empty=if_empty)
        await client.commits.durable()
        return dropped.count

    async def purge(self, name: str) -> int:
        """Drop what waits in every group; give how many messages it were. Raises QueueNotFound."""
        client = self._client
        dropped = await client.queues.purge(name)
        await client.commits.durable()
        return dropped.count

    async def pause(self, name: str, *, publish: bool = True, deliver: bool = True) -> QueueView:
        """Refuse publishes to a queue (`publish`), give nothing to its consumers (`deliver`), until `resume`.

        What they hold stays theirs. Holds over restarts of a durable queue. Raises QueueNotFound.
        """
        await self._changed(self._client.queues.pause(name, Pause(publish, deliver)))
        return await self._client.queues.view(name)

    async def resume(self, name: str, *, publish: bool = True, deliver: bool = True) -> QueueView:
        """Let publishers, consumers of a paused queue go on. Raises QueueNotFound."""
        await self._changed(self._client.queues.resume(name, Pause(publish, deliver)))
        return await self._client.queues.view(name)

    # exchanges

    async def exchanges(self) -> list[ExchangeView]:
        """All exchanges but the default one, by name."""
        return await self._client.exchanges.views()

    async def bindings(
        self, *, source: str | None = None, queue: str | None = None, exchange: str | None = None
    ) -> list[BindingDefinition]:
        """The bindings of one exchange as their source, those to a queue, those to an exchange, or all."""
        return await self._client.exchanges.bindings(source=source, queue=queue, exchange=exchange)

    async def declare_exchange(self, declaration: ExchangeDeclaration) -> bool:
        """Make an exchange; whether it is new. Raises Inequivalent, InvalidArgument, LimitReached."""
        return await self._changed(self._client.exchanges.declare(declaration))

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> bool:
        """Delete an exchange with its bindings. Raises ExchangeNotFound, AccessRefused,
        PreconditionFailed.
        """
        return await self._changed(self._client.exchanges.delete(name, if_unused=if_unused))

    async def bind(self, binding: BindingDefinition) -> bool:
        """Have an exchange pass messages on; whether that is new. Raises ExchangeNotFound, QueueNotFound."""
        return await self._changed(self._client.exchanges.bind(binding))

    async def unbind(self, binding: BindingDefinition) -> bool:
        """Undo a `bind`; whether there was one."""
        return await self._changed(self._client.exchanges.unbind(binding))

    async def _changed(self, answer: Answer[Changed]) -> bool:
        changed = await answer
        if changed.durable:
            await self._client.commits.durable()
        return changed.is_new

    # messages

    async def publish(
        self,
        address: str,
        body: bytes,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        publisher: Identity | None = None,
        **properties: Any,
    ) -> Published:
        """Publish one message to a queue's name or a `$queue/...` address.

        `properties` are AMQP's (content_type, correlation_id, reply_to, message_id, ...); what an AMQP client
        may not say of itself is refused here, too. `publisher`: whose permissions count, None: the
        broker's own, which are all. Returns once it is durable, where it went to a durable queue. Raises
        QueueNotFound, InvalidAddress, InvalidArgument, NotPermitted, PreconditionFailed where another user is
        named, LimitReached when a queue does not take it.
        """
        client = self._client
        published = publishing.publish_to_queue(
            client.publishing,
            self._clock.now_ms(),
            publisher or self._identity,
            address,
            body,
            headers,
            persistent,
            properties,
        )
        await client.commits.durable()
        return published

    async def publish_to_exchange(
        self,
        exchange: str,
        key: str,
        body: bytes,
        *,
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
        publisher: Identity | None = None,
        **properties: Any,
    ) -> PublishedThrough:
        """Publish one message to an exchange ("": the default one), which may lead to no queue. As `publish`;
        raises ExchangeNotFound.
        """
        client = self._client
        published = publishing.publish(
            client.publishing,
            self._clock.now_ms(),
            publisher or self._identity,
            exchange,
            key,
            body,
            headers,
            persistent,
            properties,
        )
        await client.commits.durable()
        return published

    async def browse(
        self,
        queue: str,
        group: str | None = None,
        state: State = "ready",
        *,
        after: str | None = None,
        start: Start | None = None,
        limit: int = 100,
        bodies: bool = True,
    ) -> Page:
        """Look at messages in a state, a page at a time; `after` is the `next` of the page before.

        Ready, delayed and in-flight ones come in the order of the queue (the highest priority first), failed
        and done ones in the order they were first claimed, scheduled ones in the order they are due. `start`
        is where the first page of ready ones begins: an offset, or `timestamp=<ms since 1970>`. `group` None:
        the default group, or the only one, or whatever is in a queue without groups; of a stream everything.
        Nothing is disturbed. With `bodies` a page ends early at some 32 MiB. Raises QueueNotFound,
        GroupNotFound, InvalidArgument.
        """
        place = None if start is None else read_start("start", start)
        request = BrowseRequest(
            state=state, group=group, after=after, start=place, limit=limit, bodies=bodies
        )
        return browsing.page_of(queue, state, await self._client.messages.browse(queue, request))

    async def cancel_scheduled(self, message_id: str) -> bool:
        """Cancel the scheduled message of that ID (`MessageView.message_id`); False if it is not there, or
        due.
        """
        queue, _, name = message_id.rpartition(":")
        return await self._client.messages.cancel_scheduled(queue, name)

    async def move(
        self,
        queue: str,
        to: str,
        *,
        group: str | None = None,
        state: State = "ready",
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Move what a group has ready or failed to the end of another queue; give how many went.

        Each message is in one of the two at any moment, also after a crash; topic and properties stay. What
        the other queue does not take (full, too large), and what a message group has bound to a consumer,
        keeps its place. At most `limit` and at most `limits.MOVED_MESSAGES_PER_CALL_MAX`. Raises
        QueueNotFound, GroupNotFound, InvalidArgument (also for a stream, whose messages stay).
        """
        return await self._client.messages.move(
            queue, to, group=group, state=state, limit=limit, per_second=per_second
        )

    async def copy(
        self,
        queue: str,
        to: str,
        *,
        group: str | None = None,
        state: State = "ready",
        start: Start | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Copy messages to the end of another queue: as `move`, but they stay, and any state but scheduled
        does.

        `start`: where in the queue to begin, as `browse` has it.
        """
        place = None if start is None else read_start("start", start)
        return await self._client.messages.copy(
            queue, to, group=group, state=state, start=place, limit=limit, per_second=per_second
        )

    async def redrive(
        self,
        queue: str,
        group: str = "",
        *,
        offsets: Collection[int] | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Have a group try its failed messages again, at their original places; give how many it were.

        `offsets` are those meant, None is all; at most `limit`, and at most
        `limits.REDRIVEN_MESSAGES_PER_CALL_MAX`. Raises QueueNotFound, GroupNotFound, InvalidArgument.
        """
        return await self._client.messages.redrive_failed(
            queue, group, offsets=offsets, limit=limit, per_second=per_second
        )

    async def redrive_dead_letters(
        self, queue: str, *, to: str | None = None, limit: int | None = None, per_second: float | None = None
    ) -> int:
        """Send dead letters back to where they came from, or to the queue `to`; give how many went.

        What cannot go keeps its place. At most `limit`, and at most `limits.REDRIVEN_MESSAGES_PER_CALL_MAX`.
        Raises QueueNotFound, InvalidArgument.
        """
        return await self._client.messages.redrive_dead_letters(
            queue, target=to, limit=limit, per_second=per_second
        )

    # groups

    async def groups(self, queue: str) -> list[GroupView]:
        """The consumer groups of a queue, by their IDs; raises QueueNotFound."""
        return await self._client.groups.views(queue)

    async def group(self, queue: str, group: str) -> GroupView:
        """One group; raises QueueNotFound, GroupNotFound."""
        return await self._client.groups.view(queue, group)

    async def create_group(
        self,
        queue: str,
        name: str,
        *,
        pattern: str = MATCH_ALL,
        selector: str = "",
        start: Start = "earliest",
    ) -> GroupView:
        """Make a group that begins at `start`: `earliest`, `latest`, an offset, `timestamp=<ms since 1970>`
        or a datetime. It is given what matches both `pattern` and `selector`.

        A queue with priorities has no offsets to begin at. Raises QueueNotFound, InvalidAddress,
        InvalidArgument, LimitReached, PreconditionFailed if it is there.
        """
        wanted = GroupDefinition(
            name=name, pattern=pattern, selector=selector, start=read_start("start", start)
        )
        return await self._client.groups.create(queue, wanted)

    async def reset_group(
        self, queue: str, group: str, *, to: Start = "earliest", force: bool = False
    ) -> GroupView:
        """Have a group go on at `to` (as `create_group`'s `start`), with whatever is still kept.

        Messages before count as done, but those that failed stay failed. Refused while the group has
        consumers or claims, unless `force`: consumers then stay and their claims end. Raises QueueNotFound,
        GroupNotFound, InvalidArgument, PreconditionFailed.
        """
        return await self._client.groups.reset(queue, group, read_start("to", to), force=force)

    async def delete_group(self, queue: str, group: str, *, force: bool = False) -> None:
        """Delete a group with its progress and failed messages; what only it kept goes.

        Of the last group of a queue, what it had not done stays in the queue. Refused while the group has
        consumers or claims, unless `force`: its consumers are cancelled. Raises QueueNotFound, GroupNotFound,
        PreconditionFailed.
        """
        await self._client.groups.delete(queue, group, force=force)
