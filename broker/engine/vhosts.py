"""Virtual hosts: the one place where names of queues and exchanges are made those of the core, and back.

In the core and on the store what is in the virtual host `/` has its plain name, and everything else
`<vhost>` U+001D `<name>`. Clients say and hear plain names only; none of theirs may hold U+001D
(`broker.access` refuses it): it could name what is in another virtual host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from broker.engine.answers import Answer
from broker.engine.client import (
    ConsumingClient,
    ExchangeClient,
    PublishingClient,
    RetainedClient,
    ShardClient,
)
from broker.engine.traffic import Claim, Consumer, Sink, Source, Targets
from queue_manager.address import DEFAULT_VHOST, PREFIX, local_name, qualified_name
from queue_manager.api import (
    OPERATOR,
    BindingDefinition,
    BrowsedPage,
    BrowseRequest,
    Changed,
    CommittedEpoch,
    Dropped,
    EpochPart,
    EpochStatus,
    ExchangeDeclaration,
    ExchangeView,
    GroupDefinition,
    GroupStart,
    GroupView,
    Pause,
    ProducerView,
    QueueDeclaration,
    QueuePolicy,
    QueueStatus,
    QueueView,
    StageTag,
    StreamStart,
    StreamStatus,
)
from queue_manager.errors import LimitReached
from queue_manager.retained import RetainedMessage
from queue_manager.routing.exchange_types.base import Headers
from queue_manager.sessions.bounds import Bounds
from queue_manager.sessions.directory import Totals
from queue_manager.sessions.filter_log import FilterLog
from queue_manager.sessions.session import Session
from queue_manager.sessions.subscription import SubscriptionOptions
from storage.envelope import EnvelopeTemplate
from storage.records.session_will import WillValue


class VhostClient:
    """As `ShardClient`, for who is in one virtual host other than `/`."""

    def __init__(self, client: ShardClient, vhost: str) -> None:
        self._client = client
        names = _Names(vhost)
        self.queues = _VhostQueues(client, names)
        self.exchanges = _VhostExchanges(client.exchanges, names)
        self.groups = _VhostGroups(client, names)
        self.messages = _VhostMessages(client, names)
        self.streams = _VhostStreams(client, names)
        self.epochs = _VhostEpochs(client, names)
        self.publishing = _VhostPublishing(client.publishing, names)
        self.consuming = _VhostConsuming(client.consuming, names)
        self.sessions = _NoSessions()
        self.retained = _VhostRetained(client.retained, names)
        self.commits = client.commits
        self.backups = client.backups
        self.turns = client.turns

    def check(self) -> None:
        """See `ShardClient.check`."""
        self._client.check()


class _Names:
    """Names of one virtual host, and what they are in the core."""

    __slots__ = ("vhost",)

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost

    def inner(self, name: str) -> str:
        """The core's name for a queue or exchange."""
        return qualified_name(self.vhost, name)

    def topic(self, topic: str) -> str:
        """As `inner`, for a `$queue/...` address."""
        if not topic.startswith(PREFIX):
            return topic
        return PREFIX + self.inner(topic[len(PREFIX) :])

    def outer_topic(self, topic: str) -> str:
        """A `$queue/...` address as it is said in the virtual host."""
        return PREFIX + local_name(topic[len(PREFIX) :]) if topic.startswith(PREFIX) else topic


class _VhostQueues:
    """As `QueueClient`."""

    def __init__(self, client: ShardClient, names: _Names) -> None:
        self._queues = client.queues
        self._names = names

    def _declaration(self, declaration: QueueDeclaration) -> QueueDeclaration:
        topics = tuple(map(self._names.topic, declaration.topics))
        return replace(declaration, name=self._names.inner(declaration.name), topics=topics)

    def _status(self, status: QueueStatus) -> QueueStatus:
        return replace(status, name=local_name(status.name))

    def _view(self, view: QueueView) -> QueueView:
        topics = tuple(map(self._names.outer_topic, view.topics))
        return replace(view, name=local_name(view.name), topics=topics)

    def declare(
        self, declaration: QueueDeclaration, caller: str = OPERATOR, *, create: bool = True
    ) -> Answer[QueueStatus]:
        """See `QueueClient.declare`."""
        inner = self._declaration(declaration)
        return self._queues.declare(inner, caller, create=create).map(self._status)

    def configure(self, declaration: QueueDeclaration) -> Answer[bool]:
        """See `QueueClient.configure`."""
        return self._queues.configure(self._declaration(declaration))

    def exists(self, name: str) -> Answer[bool]:
        """See `QueueClient.exists`."""
        return self._queues.exists(self._names.inner(name))

    def look(self, name: str, caller: str, *, is_use: bool = False) -> Answer[QueueStatus]:
        """See `QueueClient.look`."""
        return self._queues.look(self._names.inner(name), caller, is_use=is_use).map(self._status)

    def purge(self, name: str, caller: str = OPERATOR) -> Answer[Dropped]:
        """See `QueueClient.purge`."""
        return self._queues.purge(self._names.inner(name), caller)

    def pause(self, name: str, pause: Pause) -> Answer[Changed]:
        """See `QueueClient.pause`."""
        return self._queues.pause(self._names.inner(name), pause)

    def resume(self, name: str, pause: Pause) -> Answer[Changed]:
        """See `QueueClient.resume`."""
        return self._queues.resume(self._names.inner(name), pause)

    def delete(
        self, name: str, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """See `QueueClient.delete`."""
        return self._queues.delete(self._names.inner(name), caller, if_unused=if_unused, if_empty=if_empty)

    def forget_caller(self, caller: str) -> None:
        """See `QueueClient.forget_caller`."""
        self._queues.forget_caller(caller)

    def bound(self, vhost: str, queues_max: int) -> None:
        """See `QueueClient.bound`."""
        self._queues.bound(vhost, queues_max)

    async def view(self, name: str) -> QueueView:
        """See `QueueClient.view`."""
        return self._view(await self._queues.view(self._names.inner(name)))

    async def views(self, names: Sequence[str] | None = None) -> list[QueueView]:
        """See `QueueClient.views`."""
        wanted = await self.names() if names is None else names
        found = await self._queues.views([self._names.inner(name) for name in wanted])
        return [self._view(view) for view in found]

    async def names(self, vhost: str = DEFAULT_VHOST) -> list[str]:
        """See `QueueClient.names`; those of this virtual host."""
        return [local_name(name) for name in await self._queues.names(self._names.vhost)]


class _VhostExchanges:
    """As `ExchangeClient`."""

    def __init__(self, exchanges: ExchangeClient, names: _Names) -> None:
        self._exchanges = exchanges
        self._names = names

    def _view(self, view: ExchangeView) -> ExchangeView:
        return replace(view, name=local_name(view.name))

    def _inner(self, binding: BindingDefinition) -> BindingDefinition:
        inner = self._names.inner
        return replace(binding, source=inner(binding.source), destination=inner(binding.destination))

    def _outer(self, binding: BindingDefinition) -> BindingDefinition:
        source, destination = local_name(binding.source), local_name(binding.destination)
        return replace(binding, source=source, destination=destination)

    def declare(self, declaration: ExchangeDeclaration, *, create: bool = True) -> Answer[Changed]:
        """See `ExchangeClient.declare`."""
        inner = replace(declaration, name=self._names.inner(declaration.name))
        return self._exchanges.declare(inner, create=create)

    def look(self, name: str) -> Answer[ExchangeView]:
        """See `ExchangeClient.look`."""
        return self._exchanges.look(self._names.inner(name)).map(self._view)

    def delete(self, name: str, *, if_unused: bool = False) -> Answer[Changed]:
        """See `ExchangeClient.delete`."""
        return self._exchanges.delete(self._names.inner(name), if_unused=if_unused)

    def bind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """See `ExchangeClient.bind`."""
        return self._exchanges.bind(self._inner(binding), caller)

    def unbind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """See `ExchangeClient.unbind`."""
        return self._exchanges.unbind(self._inner(binding), caller)

    def views(self, vhost: str = DEFAULT_VHOST) -> Answer[list[ExchangeView]]:
        """See `ExchangeClient.views`; those of this virtual host."""
        found = self._exchanges.views(self._names.vhost)
        return found.map(lambda views: [self._view(view) for view in views])

    def bindings(
        self,
        *,
        source: str | None = None,
        queue: str | None = None,
        exchange: str | None = None,
        vhost: str = DEFAULT_VHOST,
    ) -> Answer[list[BindingDefinition]]:
        """See `ExchangeClient.bindings`; those of this virtual host."""
        inner = self._names.inner
        found = self._exchanges.bindings(
            source=None if source is None else inner(source),
            queue=None if queue is None else inner(queue),
            exchange=None if exchange is None else inner(exchange),
            vhost=self._names.vhost,
        )
        return found.map(lambda bindings: [self._outer(binding) for binding in bindings])


class _VhostGroups:
    """As `GroupClient`."""

    def __init__(self, client: ShardClient, names: _Names) -> None:
        self._groups = client.groups
        self._names = names

    def _view(self, view: GroupView) -> GroupView:
        return replace(view, queue=local_name(view.queue))

    async def create(self, queue: str, wanted: GroupDefinition) -> GroupView:
        """See `GroupClient.create`."""
        return self._view(await self._groups.create(self._names.inner(queue), wanted))

    async def ensure(self, queue: str, wanted: GroupDefinition) -> None:
        """See `GroupClient.ensure`."""
        await self._groups.ensure(self._names.inner(queue), wanted)

    async def reset(self, queue: str, group_id: str, to: GroupStart, *, force: bool) -> GroupView:
        """See `GroupClient.reset`."""
        return self._view(await self._groups.reset(self._names.inner(queue), group_id, to, force=force))

    async def delete(self, queue: str, group_id: str, *, force: bool) -> None:
        """See `GroupClient.delete`."""
        await self._groups.delete(self._names.inner(queue), group_id, force=force)

    async def delete_passing(self) -> int:
        """See `GroupClient.delete_passing`."""
        return await self._groups.delete_passing()

    async def view(self, queue: str, group_id: str) -> GroupView:
        """See `GroupClient.view`."""
        return self._view(await self._groups.view(self._names.inner(queue), group_id))

    async def views(self, queue: str) -> list[GroupView]:
        """See `GroupClient.views`."""
        return [self._view(view) for view in await self._groups.views(self._names.inner(queue))]


class _VhostMessages:
    """As `MessageClient`."""

    def __init__(self, client: ShardClient, names: _Names) -> None:
        self._messages = client.messages
        self._names = names

    async def browse(self, queue: str, request: BrowseRequest, caller: str = OPERATOR) -> BrowsedPage:
        """See `MessageClient.browse`."""
        return await self._messages.browse(self._names.inner(queue), request, caller)

    async def move(self, queue: str, to: str, **how: Any) -> int:
        """See `MessageClient.move`."""
        return await self._messages.move(self._names.inner(queue), self._names.inner(to), **how)

    async def copy(self, queue: str, to: str, **how: Any) -> int:
        """See `MessageClient.copy`."""
        return await self._messages.copy(self._names.inner(queue), self._names.inner(to), **how)

    async def redrive_failed(self, queue: str, group_id: str, **how: Any) -> int:
        """See `MessageClient.redrive_failed`."""
        return await self._messages.redrive_failed(self._names.inner(queue), group_id, **how)

    async def redrive_dead_letters(
        self, queue: str, *, target: str | None, limit: int | None, per_second: float | None
    ) -> int:
        """See `MessageClient.redrive_dead_letters`."""
        to = None if target is None else self._names.inner(target)
        return await self._messages.redrive_dead_letters(
            self._names.inner(queue), target=to, limit=limit, per_second=per_second
        )

    async def remove(self, queue: str, offset: int, *, group: str) -> bool:
        """See `MessageClient.remove`."""
        return await self._messages.remove(self._names.inner(queue), offset, group=group)

    async def cancel_scheduled(self, queue: str, name: str) -> bool:
        """See `MessageClient.cancel_scheduled`."""
        return await self._messages.cancel_scheduled(self._names.inner(queue), name)


class _VhostStreams:
    """As `StreamClient`."""

    def __init__(self, client: ShardClient, names: _Names) -> None:
        self._streams = client.streams
        self._names = names

    def status(
        self, queue: str, caller: str, *, group: str | None, start: StreamStart | None
    ) -> Answer[StreamStatus]:
        """See `StreamClient.status`."""
        return self._streams.status(self._names.inner(queue), caller, group=group, start=start)

    def commit_offset(self, queue: str, caller: str, group_id: str, offset: int) -> Answer[None]:
        """See `StreamClient.commit_offset`."""
        return self._streams.commit_offset(self._names.inner(queue), caller, group_id, offset)


class _VhostEpochs:
    """As `EpochClient`."""

    def __init__(self, client: ShardClient, names: _Names) -> None:
        self._epochs = client.epochs
        self._names = names

    def commit(
        self, queue: str, caller: str, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str
    ) -> Answer[CommittedEpoch]:
        """See `EpochClient.commit`."""
        return self._epochs.commit(self._names.inner(queue), caller, producer, epoch, parts, checksum)

    def abort(
        self,
        queue: str,
        caller: str,
        producer: str,
        epoch: int,
        attempts: Collection[tuple[int, str]] | None,
    ) -> Answer[int]:
        """See `EpochClient.abort`."""
        return self._epochs.abort(self._names.inner(queue), caller, producer, epoch, attempts)

    def status(self, queue: str, caller: str, producer: str, tag: StageTag | None) -> Answer[EpochStatus]:
        """See `EpochClient.status`."""
        return self._epochs.status(self._names.inner(queue), caller, producer, tag)

    def producers(self, queue: str) -> list[str]:
        """See `EpochClient.producers`."""
        return self._epochs.producers(self._names.inner(queue))

    def views(self, queue: str, producers: Collection[str]) -> list[ProducerView]:
        """See `EpochClient.views`."""
        return self._epochs.views(self._names.inner(queue), producers)

    def forget(self, queue: str, caller: str, producer: str) -> Answer[bool]:
        """See `EpochClient.forget`."""
        return self._epochs.forget(self._names.inner(queue), caller, producer)


class _NoWills:
    """As `WillClient`, where there are no such sessions."""

    all: dict[int, WillValue] = {}

    def keep(self, session: int, will: WillValue) -> None:
        """See `WillClient`."""

    def let_go(self, session: int) -> None:
        """See `WillClient`."""


class _NoSessions:
    """As `SessionClient`, where no session outlives its connection: they are kept for `/` only."""

    logs: Sequence[FilterLog] = ()
    wills = _NoWills()

    def on_log(self, call: Callable[[FilterLog, bool], None]) -> None:
        """See `SessionClient`: there never is one."""

    def limit(self, bounds: Bounds) -> None:
        """See `SessionClient`."""

    def find(self, client_id: str) -> Session | None:
        """See `SessionClient`."""
        return None

    def totals(self) -> Totals:
        """See `SessionClient`."""
        return Totals(0, 0, 0, 0, 0, 0)

    def all(self) -> list[Session]:
        """See `SessionClient`."""
        return []

    def of_user(self, user: str) -> list[Session]:
        """See `SessionClient`."""
        return []

    def begin(self, client_id: str, user: str, expiry_s: int) -> Session:
        """See `SessionClient`."""
        raise LimitReached("sessions that outlive a connection are kept in the virtual host / only")

    def leave(self, session: Session) -> None:
        """See `SessionClient`."""

    def end(self, session: Session) -> None:
        """See `SessionClient`."""

    def subscribe(
        self, session: Session, topic_filter: str, options: SubscriptionOptions, *, is_logged: bool
    ) -> bool:
        """See `SessionClient`."""
        raise LimitReached("there is no such session")

    def publish(
        self,
        logs: Sequence[FilterLog],
        template: EnvelopeTemplate,
        qos: int,
        retain: bool,
        publisher: Session | None,
        bodies: list[bytes],
    ) -> bool:
        """See `SessionClient`: there are no logs."""
        return True


class _VhostRetained:
    """As `RetainedClient`. In the core topics begin with a level for the virtual host, which no wildcard of
    `/` matches for its `$`, and nobody can name.
    """

    def __init__(self, retained: RetainedClient, names: _Names) -> None:
        self._retained = retained
        self._prefix = f"${names.inner('')}/"

    def keep(self, template: EnvelopeTemplate, qos: int, body: bytes) -> bool:
        """See `RetainedClient.keep`."""
        return self._retained.keep(_with_topic(template, self._prefix + template.topic), qos, body)

    def matching(self, topic_filter: str) -> Iterator[RetainedMessage]:
        """See `RetainedClient.matching`."""
        for message in self._retained.matching(self._prefix + topic_filter):
            template = _with_topic(message.template, message.topic[len(self._prefix) :])
            yield RetainedMessage(template, message.qos, message.body, message.received_at_ms)

    def topics(self) -> list[str]:
        """See `RetainedClient.topics`."""
        prefix = self._prefix
        return [topic[len(prefix) :] for topic in self._retained.topics() if topic.startswith(prefix)]

    @property
    def extent(self) -> tuple[int, int]:
        """See `RetainedClient.extent`: of all virtual hosts."""
        return self._retained.extent


def _with_topic(template: EnvelopeTemplate, topic: str) -> EnvelopeTemplate:
    return EnvelopeTemplate(
        topic,
        template.properties_kind,
        template.properties,
        priority=template.priority,
        expires_at_ms=template.expires_at_ms,
        persistent=template.persistent,
        exchange=template.exchange,
    )


class _VhostPublishing:
    """As `PublishingClient`. What was planned and aimed needs no names: that goes straight on."""

    def __init__(self, publishing: PublishingClient, names: _Names) -> None:
        self._publishing = publishing
        self._names = names
        self.joined = publishing.joined
        self.plan = publishing.plan
        self.aim = publishing.aim
        self.is_current = publishing.is_current
        self.publish = publishing.publish
        self.first_full = publishing.first_full
        self.is_remembered = publishing.is_remembered

    @property
    def creates_queues(self) -> bool:
        """See `PublishingClient`."""
        return self._publishing.creates_queues

    def match(self, topic: str) -> Targets:
        """See `PublishingClient`."""
        return self._publishing.match(self._names.topic(topic))

    def route(self, topic: str, now_ms: int) -> Targets:
        """See `PublishingClient`."""
        return self._publishing.route(self._names.topic(topic), now_ms)

    def named(self, name: str) -> Targets:
        """See `PublishingClient`."""
        return self._publishing.named(self._names.inner(name))

    def through(self, exchange: str, keys: Sequence[str], headers: Callable[[], Headers]) -> Targets:
        """See `PublishingClient`."""
        return self._publishing.through(self._names.inner(exchange), keys, headers)

    def unconditional(self, exchange: str, key: str) -> Targets:
        """See `PublishingClient`."""
        return self._publishing.unconditional(self._names.inner(exchange), key)

    def next_offset(self, name: str) -> int:
        """See `PublishingClient`."""
        return self._publishing.next_offset(self._names.inner(name))


class _VhostSource:
    """A queue under its name in the virtual host."""

    __slots__ = ("inner", "name")

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.name = local_name(inner.name)

    @property
    def policy(self) -> QueuePolicy:
        """See `Source`."""
        return self.inner.policy


class _VhostConsuming:
    """As `ConsumingClient`. Consumers and claims know their queue: calls with them go straight on."""

    def __init__(self, consuming: ConsumingClient, names: _Names) -> None:
        self._consuming = consuming
        self._names = names
        self.credit = consuming.credit
        self.share = consuming.share
        self.unsubscribe = consuming.unsubscribe
        self.wake = consuming.wake
        self.pull = consuming.pull
        self.set_credit = consuming.set_credit
        self.when_loaded = consuming.when_loaded
        self.ready_count = consuming.ready_count
        self.is_gone = consuming.is_gone
        self.primary_group = consuming.primary_group
        self.primary_committed = consuming.primary_committed
        self.gap = consuming.gap
        self.take_gap = consuming.take_gap
        self.ack = consuming.ack
        self.requeue = consuming.requeue
        self.reject = consuming.reject
        self.extend = consuming.extend
        self.holder = consuming.holder
        self.durable_group_of = consuming.durable_group_of
        self.write_soon = consuming.write_soon

    def find(self, name: str, caller: str = OPERATOR) -> Source:
        """See `ConsumingClient`."""
        return _VhostSource(self._consuming.find(self._names.inner(name), caller))

    def find_or_create(self, name: str, caller: str, now_ms: int) -> Source:
        """See `ConsumingClient`."""
        return _VhostSource(self._consuming.find_or_create(self._names.inner(name), caller, now_ms))

    def is_stream(self, name: str) -> bool:
        """See `ConsumingClient`."""
        return self._consuming.is_stream(self._names.inner(name))

    def subscribe(self, queue: Source, group_name: str, pattern: str, sink: Sink, **options: Any) -> Consumer:
        """See `ConsumingClient`."""
        return self._consuming.subscribe(_inner(queue), group_name, pattern, sink, **options)

    def puller(
        self, queue: Source, sink: Sink, consumer_id: str, *, lease_ms: int, group_name: str = ""
    ) -> Consumer:
        """See `ConsumingClient`."""
        return self._consuming.puller(
            _inner(queue), sink, consumer_id, lease_ms=lease_ms, group_name=group_name
        )

    def is_consumer_of(self, consumer: Consumer, queue: Source) -> bool:
        """See `ConsumingClient`."""
        return self._consuming.is_consumer_of(consumer, _inner(queue))

    def find_claim(self, queue: Source, group_id: str, offset: int) -> Claim:
        """See `ConsumingClient`."""
        return self._consuming.find_claim(_inner(queue), group_id, offset)

    def is_claim_of(self, claim: Claim, queue: Source) -> bool:
        """See `ConsumingClient`."""
        return self._consuming.is_claim_of(claim, _inner(queue))


def _inner(queue: Source) -> Source:
    return queue.inner if isinstance(queue, _VhostSource) else queue
