"""Administration of a running broker, in process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from broker.access.accounts_of_file import itself
from broker.access.login import Identity
from broker.admin.admin_views import (
    ChangedQueue,
    Difference,
    Listing,
    MessageView,
    Page,
    Published,
    PublishedThrough,
    QueueInFull,
    QueueView,
    State,
)
from broker.admin.queue_change import QueueChange, told
from broker.admin.reloading import Reloaded
from broker.admin.users import UserAdmin
from broker.clock import Clock
from broker.configured import capture, declaration_of, groups_of
from broker.engine.answers import Answer
from broker.engine.checking import checks_calls
from broker.engine.client import ShardClient
from broker.engine.client.groups import Start
from broker.engine.late_outcome import LateOutcome
from broker.engine.shard_ending import WorkerLost
from broker.engine.traffic import Source
from broker.properties import amqp
from broker.properties.templates import as_amqp
from broker.publication import with_properties
from broker.vhosts.vhost_directory import VhostDirectory
from config.name_rules import check_queue_name
from config.queue_settings import QueueSettings
from config.settings import Settings
from config.settings_loader import ConfigError
from queue_manager.address import is_queue_topic, local_name, parse
from queue_manager.api import (
    BindingDefinition,
    BrowsedMessage,
    BrowseRequest,
    Changed,
    ExchangeDeclaration,
    ExchangeView,
    QueueDeclaration,
    read_start,
)
from queue_manager.errors import (
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueNotFound,
)
from queue_manager.outcomes import ACCEPTED, REFUSED_LOST, UNROUTED, reason_of
from queue_manager.policy import Pause


@checks_calls
class Admin:
    """Administration of a running broker. Call it from the broker's own event loop.

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
        vhosts: VhostDirectory,
        users: UserAdmin,
    ) -> None:
        self.vhosts = vhosts
        self.users = users
        self._client = client
        self._reload = reload
        self._settings = settings
        self._clock = clock
        self._identity = itself().enter("*")
        self.check = client.check
        self.move = client.messages.move
        self.copy = client.messages.copy
        self.redrive = client.messages.redrive
        self.redrive_dead_letters = client.messages.redrive_dead_letters
        self.groups = client.groups.views
        self.group = client.groups.view
        self.create_group = client.groups.create
        self.reset_group = client.groups.reset
        self.delete_group = client.groups.delete

    def within(self, client: ShardClient) -> Admin:
        """Return the same for what is in a virtual host: `client` is its way to the shard."""
        return Admin(client, self._settings, self._clock, self._reload, self.vhosts, self.users)

    async def reload(self) -> Reloaded:
        """Read the configuration, users and certificates anew, as at SIGHUP.

        Raises InvalidArgument, with all problems, for what cannot be used; then nothing changes.
        """
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
        """Return all queues, by name."""
        return await self._client.queues.views()

    async def queue_page(
        self, *, after: str = "", limit: int = 100, name: str = ""
    ) -> Listing[QueueView, str]:
        """Return at most `limit` queues with `name` in their names, by name, behind the name `after`."""
        names = [found for found in await self._client.queues.names() if name in found]
        begin = bisect_right(names, after) if after else 0
        wanted = names[begin : begin + limit]
        views = await self._client.queues.views(wanted)
        more = begin + limit < len(names)
        return Listing(items=views, total=len(names), next=wanted[-1] if more and wanted else None)

    async def queue(self, name: str) -> QueueInFull:
        """One queue; raises QueueNotFound."""
        view = await self._client.queues.view(name)
        return QueueInFull(**_fields_of(view), settings=told(view))

    async def declare(self, settings: QueueSettings | str) -> QueueView:
        """Return the queue, made if it is not there, as an entry of `queues:` in the configuration says (a
        name alone: a classic queue with the defaults).

        Raises PreconditionFailed when it exists as another type, InvalidAddress, LimitReached.
        """
        if isinstance(settings, str):
            try:
                settings = QueueSettings(name=check_queue_name(settings))
            except ValueError as error:
                raise InvalidAddress(str(error)) from None
        await self._client.queues.declare(declaration_of(self.settings, settings))
        return await self._with_groups(settings)

    async def configure(self, settings: QueueSettings) -> QueueView:
        """Have a queue as an entry of `queues:` in the configuration says: made if it is not there, else
        given its policy, topics and groups. Raises PreconditionFailed when it exists as another type.
        """
        await self._client.queues.configure(declaration_of(self.settings, settings))
        return await self._with_groups(settings)

    async def change(self, change: QueueChange) -> ChangedQueue:
        """Change a queue as `configure`, but leave what the request does not name; tells what is different
        now.
        """
        client = self._client
        settings = change.settings
        is_there = await client.queues.exists(settings.name)
        before = told(await client.queues.view(settings.name)) if is_there else {}
        declaration = declaration_of(self.settings, settings)
        await client.queues.configure(replace(declaration, policy=change.policy(declaration.policy)))
        if change.touches("topics") or change.touches("capture"):
            await capture(client, settings)
        view = await self._with_groups(settings)
        after = told(view)
        changed = {key: Difference(was, after[key]) for key, was in before.items() if was != after[key]}
        return ChangedQueue(**_fields_of(view), settings=after, is_new=not is_there, changed=changed)

    async def _with_groups(self, settings: QueueSettings) -> QueueView:
        for group in groups_of(settings):
            await self._client.groups.ensure(settings.name, group)
        await self._client.commits.durable()
        return await self._client.queues.view(settings.name)

    async def declare_queue(self, declaration: QueueDeclaration) -> bool:
        """Declare a queue by its whole declaration, as AMQP has it; returns whether it is new. Raises
        Inequivalent, PreconditionFailed, InvalidAddress, LimitReached.
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
        """Return all exchanges but the default one, by name."""
        return await self._client.exchanges.views()

    async def bindings(
        self, *, source: str | None = None, queue: str | None = None, exchange: str | None = None
    ) -> list[BindingDefinition]:
        """Return the bindings of one exchange as their source, those to a queue, those to an exchange, or
        all.
        """
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
        if is_queue_topic(address) and parse(address).verb:
            raise InvalidAddress(f"{address!r} is a control topic")
        published = await self.publish_to_exchange(
            "",
            address,
            body,
            headers=headers,
            persistent=persistent,
            publisher=publisher,
            **properties,
        )
        if published.is_routed:
            return Published(queues=published.queues)
        if published.queues:
            raise PreconditionFailed(f"no consumer group of {address!r} wants it: such messages are dropped")
        raise QueueNotFound(f"no queue {address!r}")

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
        client, now_ms = self._client, self._clock.now_ms()
        raw = amqp.write_fields(persistent, properties, headers)
        if not properties and not headers:
            raw = amqp.PERSISTENT if persistent else amqp.NONE
        plan = with_properties.plan_publication(
            client.publishing,
            publisher or self._identity,
            exchange,
            key,
            raw,
            now_ms,
            persistent=persistent,
        )
        outcome = client.publishing.publish(plan, [body], now_ms)
        _check_taken(outcome, plan.full)
        queues = tuple([local_name(name) for name in plan.queue_names])
        late = LateOutcome()
        if outcome == ACCEPTED:
            client.commits.wait(late, 0)
        await client.commits.durable()
        _check_taken(late.outcome)
        return PublishedThrough(queues=queues, is_routed=outcome != UNROUTED)

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
        page = await self._client.messages.browse(queue, request)
        return Page(messages=tuple([_view(queue, state, each) for each in page.messages]), next=page.next)

    async def cancel_scheduled(self, message_id: str) -> bool:
        """Cancel the scheduled message of that ID (`MessageView.message_id`); False if it is not there, or
        due.
        """
        queue, _, name = message_id.rpartition(":")
        return await self._client.messages.cancel_scheduled(queue, name)


def _check_taken(outcome: int, full: Sequence[Source] = ()) -> None:
    """Raise LimitReached if a publish was refused, WorkerLost if a worker that is gone should have it."""
    if outcome == REFUSED_LOST:
        raise WorkerLost(reason_of(outcome, full))
    if outcome not in (ACCEPTED, UNROUTED):
        raise LimitReached(reason_of(outcome, full))


def _view(queue: str, state: State, found: BrowsedMessage) -> MessageView:
    """Return a message with headers and properties as an AMQP consumer sees them."""
    template = found.template
    headers, properties = amqp.read_fields(as_amqp(template))
    return MessageView(
        message_id=f"{queue}:{found.name}",
        offset=found.offset,
        topic=template.topic,
        state=state,
        attempts=found.attempts,
        received_at_ms=found.received_at_ms,
        time_ms=found.time_ms,
        persistent=template.persistent,
        headers=headers,
        properties=properties,
        body=found.body,
        consumer=found.consumer,
    )


def _fields_of(view: QueueView) -> dict[str, Any]:
    return {each.name: getattr(view, each.name) for each in fields(view)}
