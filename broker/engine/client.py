"""What front-ends and administration may ask of the core, wherever it runs.

`ShardClient` is put together of one client for each subject; `broker.engine.local` has it for a shard in this
process. What crosses are the values of `queue_manager.api`, and while messages flow what
`broker.engine.traffic` states. Calls that change something take effect in the order they are made; that it is
durable `CommitClient` tells. Refusals are QueueManagerErrors; every call may come to StorageError, and to
BrokerStopped once the shard has stopped or its store has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from broker.engine.answers import Answer
from broker.engine.commit_stats import CommitView
from broker.engine.names import Address, Name, VhostName
from broker.engine.session_traffic import (
    Bounds,
    Log,
    LogCall,
    Losses,
    Session,
    SubscriptionOptions,
    Totals,
    WillValue,
)
from broker.engine.traffic import (
    Claim,
    Consumer,
    Credit,
    Group,
    Judgement,
    PublishPlan,
    RetainedMessage,
    Sink,
    Source,
    Targets,
    Topics,
)
from queue_manager.address import DEFAULT_VHOST
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
    ProducerView,
    QueueDeclaration,
    QueueStatus,
    QueueView,
    StageTag,
    State,
    StoredVhost,
    StreamStart,
    StreamStatus,
)
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.policy import Pause
from queue_manager.routing.exchange_types.base import Headers
from storage.cuts import Cut
from storage.envelope import EnvelopeTemplate


class Waiter(Protocol):
    """Somebody who may tell his peer only what is durable."""

    def committed(self, tokens: list[int]) -> None:
        """What these tokens stand for is durable; called once per commit, commits in order."""


class QueueClient(Protocol):
    """Queues come and go."""

    def declare(self, declaration: QueueDeclaration, caller: str = OPERATOR) -> Answer[QueueStatus]:
        """The queue of that name, made if it is not there.

        Waits while one of that name is being deleted. Comes to PreconditionFailed when it exists with another
        definition, ResourceLocked, ReservedName, InvalidAddress, LimitReached.
        """
        ...

    def configure(self, declaration: QueueDeclaration) -> Answer[bool]:
        """Have a queue as declared: made if it is not there, else given the policy and bindings; whether
        anything of an existing queue changed.

        Comes to PreconditionFailed when it exists as another type.
        """
        ...

    def exists(self, name: Name) -> Answer[bool]:
        """Whether there is a queue of that name."""
        ...

    def look(self, name: Name, caller: str, *, is_use: bool = False) -> Answer[QueueStatus]:
        """A queue that exists; `is_use`: asking counts as use. Comes to QueueNotFound, ResourceLocked."""
        ...

    def purge(self, name: Name, caller: str = OPERATOR) -> Answer[Dropped]:
        """Drop what waits in every group. Comes to QueueNotFound, ResourceLocked."""
        ...

    def pause(self, name: Name, pause: Pause) -> Answer[Changed]:
        """Stop what `pause` says in a queue, besides what is stopped in it. Comes to QueueNotFound."""
        ...

    def resume(self, name: Name, pause: Pause) -> Answer[Changed]:
        """Let go on in a queue what `pause` says. Comes to QueueNotFound."""
        ...

    def delete(
        self, name: Name, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """Delete a queue with all it holds.

        Comes to QueueNotFound, ResourceLocked, PreconditionFailed when it is used or not empty and that was a
        condition.
        """
        ...

    def forget_caller(self, caller: str) -> None:
        """The caller is gone: its exclusive queues go with it."""

    async def view(self, name: Name) -> QueueView:
        """One queue; raises QueueNotFound."""
        ...

    async def views(
        self, names: Sequence[Name] | None = None, *, vhost: VhostName = DEFAULT_VHOST
    ) -> list[QueueView]:
        """The queues of these names that are there, in this order; None: all of a virtual host, by name."""
        ...

    async def names(self, *, vhost: VhostName = DEFAULT_VHOST) -> list[Name]:
        """The names of all queues of a virtual host, sorted."""
        ...

    def bound(self, vhost: str, queues_max: int) -> None:
        """Have a virtual host take so many queues at most; 0: as many as there may be."""


class ExchangeClient(Protocol):
    """Exchanges and bindings come and go. The default exchange, "", is not among them."""

    def declare(self, declaration: ExchangeDeclaration) -> Answer[Changed]:
        """Make an exchange if it is not there.

        Comes to Inequivalent when it exists as another, ReservedName, InvalidArgument, LimitReached.
        """
        ...

    def look(self, name: Name) -> Answer[ExchangeView]:
        """An exchange that exists. Comes to ExchangeNotFound."""
        ...

    def delete(self, name: Name, *, if_unused: bool = False) -> Answer[Changed]:
        """Delete an exchange with its bindings. Comes to ExchangeNotFound, AccessRefused for those that are
        always there, PreconditionFailed when it has bindings and may have none.
        """
        ...

    def bind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """Have an exchange pass messages on; nothing changes if it does already. Comes to ExchangeNotFound,
        QueueNotFound, ResourceLocked, InvalidArgument, LimitReached.
        """
        ...

    def unbind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """Undo a `bind`; that there was none is no error. Comes to ResourceLocked, InvalidArgument."""
        ...

    def views(self, *, vhost: VhostName = DEFAULT_VHOST) -> Answer[list[ExchangeView]]:
        """All exchanges of a virtual host, by name."""
        ...

    def bindings(
        self,
        *,
        source: Name | None = None,
        queue: Name | None = None,
        exchange: Name | None = None,
        vhost: VhostName = DEFAULT_VHOST,
    ) -> Answer[list[BindingDefinition]]:
        """The bindings of one exchange as their source, those to a queue, those to an exchange, or all of a
        virtual host.
        Comes to ExchangeNotFound, QueueNotFound.
        """
        ...


class GroupClient(Protocol):
    """Consumer groups and where they are. What changes is durable when a call returns, but for `ensure`."""

    async def create(self, queue: Name, wanted: GroupDefinition) -> GroupView:
        """Make a group. Raises QueueNotFound, InvalidAddress, InvalidArgument, LimitReached,
        PreconditionFailed if it is there.
        """
        ...

    async def ensure(self, queue: Name, wanted: GroupDefinition) -> None:
        """Make a group if it is not there; raises as `create`, and PreconditionFailed if it has another
        selector.
        """
        ...

    async def reset(self, queue: Name, group_id: str, to: GroupStart, *, force: bool) -> GroupView:
        """Have a group go on at `to`. Raises QueueNotFound, GroupNotFound, InvalidArgument,
        PreconditionFailed while it has consumers or claims, unless `force`.
        """
        ...

    async def delete(self, queue: Name, group_id: str, *, force: bool) -> None:
        """Delete a group; raises as `reset`."""
        ...

    async def delete_passing(self) -> int:
        """After a start: delete the groups that should have gone with their clients before it; gives how many
        they were.
        """
        ...

    async def view(self, queue: Name, group_id: str) -> GroupView:
        """One group; raises QueueNotFound, GroupNotFound."""
        ...

    async def views(self, queue: Name) -> list[GroupView]:
        """The groups of a queue that have a name, by their IDs; raises QueueNotFound."""
        ...


class MessageClient(Protocol):
    """Messages that wait, failed or are done. What changes is durable when a call returns."""

    async def browse(self, queue: Name, request: BrowseRequest, caller: str = OPERATOR) -> BrowsedPage:
        """Look at messages, a page at a time; with bodies a page ends early at some 32 MiB. Raises
        QueueNotFound, ResourceLocked, GroupNotFound, InvalidArgument.
        """
        ...

    async def move(
        self,
        queue: Name,
        to: Name,
        *,
        group: str | None,
        state: State,
        limit: int | None,
        per_second: float | None,
    ) -> int:
        """Move what a group has ready or failed to the end of another queue; give how many went. Raises
        QueueNotFound, GroupNotFound, InvalidArgument.
        """
        ...

    async def copy(
        self,
        queue: Name,
        to: Name,
        *,
        group: str | None,
        state: State,
        start: GroupStart | None,
        limit: int | None,
        per_second: float | None,
    ) -> int:
        """As `move`, but they stay, and any state but scheduled does."""
        ...

    async def redrive_failed(
        self,
        queue: Name,
        group_id: str,
        *,
        offsets: Collection[int] | None,
        limit: int | None,
        per_second: float | None,
    ) -> int:
        """Have a group try its failed messages again, at their places; give how many it were. Raises
        QueueNotFound, GroupNotFound, InvalidArgument.
        """
        ...

    async def redrive_dead_letters(
        self, queue: Name, *, target: Name | None, limit: int | None, per_second: float | None
    ) -> int:
        """Move dead letters back to where they came from, or to `target`; give how many went. Raises
        QueueNotFound, InvalidArgument.
        """
        ...

    async def remove(self, queue: Name, offset: int, *, group: str) -> bool:
        """Remove one message from a group that has not done it yet, claimed or not; False if there is none
        such. Raises QueueNotFound, GroupNotFound, InvalidArgument of a stream, LimitReached when too many
        wait before it.
        """
        ...

    async def cancel_scheduled(self, queue: Name, name: str) -> bool:
        """Cancel a scheduled message (`BrowsedMessage.name`); False if it is not there, or due. Raises
        QueueNotFound, InvalidArgument.
        """
        ...


class StreamClient(Protocol):
    """What only streams have. All come to InvalidArgument of another queue, QueueNotFound, ResourceLocked."""

    def status(
        self, queue: Name, caller: str, *, group: str | None, start: StreamStart | None
    ) -> Answer[StreamStatus]:
        """Which offsets there are, and the committed one of a group, which is made at `start` if it is not
        there; without a group the offset of `start`. Comes to InvalidAddress, LimitReached.
        """
        ...

    def commit_offset(self, queue: Name, caller: str, group_id: str, offset: int) -> Answer[None]:
        """Everything up to and with `offset` is done with in the group. Comes to GroupNotFound."""
        ...


class EpochClient(Protocol):
    """Staged epochs. All that give an Answer come to QueueNotFound, ResourceLocked."""

    def commit(
        self, queue: Name, caller: str, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str
    ) -> Answer[CommittedEpoch]:
        """Make exactly the named attempts of an epoch part of the queue, in the order of their parts.

        Comes to PreconditionFailed when the epoch is older than the last or the attempts do not have so many
        rows, InvalidArgument, LimitReached.
        """
        ...

    def abort(
        self,
        queue: Name,
        caller: str,
        producer: str,
        epoch: int,
        attempts: Collection[tuple[int, str]] | None,
    ) -> Answer[int]:
        """Drop what is staged for an epoch that is not committed, or only these (part, attempt) of it; give
        how many attempts it were.
        """
        ...

    def status(self, queue: Name, caller: str, producer: str, tag: StageTag | None) -> Answer[EpochStatus]:
        """The last epoch of a producer, and how many rows an attempt has staged."""
        ...

    def producers(self, queue: Name) -> list[str]:
        """Whose last epoch is known or who staged rows, in no order; raises QueueNotFound."""
        ...

    def views(self, queue: Name, producers: Collection[str]) -> list[ProducerView]:
        """What is known of these producers, in their order; raises QueueNotFound."""
        ...

    def forget(self, queue: Name, caller: str, producer: str) -> Answer[bool]:
        """Forget the last epoch of a producer and drop what it staged; False if it was not known.

        Comes to PreconditionFailed while the rows of that epoch are still on their way into the queue.
        """
        ...


class CommitClient(Protocol):
    """When what was done is durable."""

    def stats(self) -> CommitView:
        """What was seen of commits since the start."""
        ...

    def wait(self, waiter: Waiter, token: int) -> None:
        """Have `waiter` told `token` when everything done so far is durable."""

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """As `wait`, for many tokens."""

    def wait_up_to(self, waiter: Waiter, token: int) -> bool:
        """As `wait`, but of the tokens of one commit only the last is told; whether it is the first of its
        commit.
        """
        ...

    async def durable(self) -> None:
        """Have delivered what can be delivered, and wait until everything done so far is durable."""

    def on_committed(self, call: Callable[[], None]) -> None:
        """Have `call` called after each commit."""


class BackupClient(Protocol):
    """Cuts of the storage, which other processes copy. Of all virtual hosts."""

    async def cut(self) -> Cut:
        """A cut with everything done so far, kept for `limits.CUT_LIFETIME_S`.

        Raises PreconditionFailed where the storage is in memory, LimitReached where too many are kept.
        """
        ...

    async def keep(self, cut_id: str) -> bool:
        """Keep a cut for as long again; False if it is not there."""
        ...

    async def drop(self, cut_id: str) -> bool:
        """Let go of a cut; False if it is not there."""
        ...


class WillClient(Protocol):
    """Wills with a delay, of sessions that outlive their connection: stored until somebody publishes them."""

    @property
    def all(self) -> dict[int, WillValue]:
        """Those that are kept, by the number of their session."""
        ...

    def keep(self, session: int, will: WillValue) -> None:
        """Have a session's will; durable with the open commit."""

    def let_go(self, session: int) -> None:
        """The session has none any more."""


class SessionClient(Protocol):
    """MQTT sessions of a virtual host that outlive their connection, and the logs of what they are subscribed
    to; see `broker.engine.session_traffic`.
    """

    def within(self, vhost: str) -> SessionClient:
        """The same for another virtual host."""
        ...

    @property
    def wills(self) -> WillClient:
        """Their wills."""
        ...

    @property
    def logs(self) -> Sequence[Log]:
        """The logs that are there."""
        ...

    def on_log(self, call: LogCall) -> None:
        """Have `call` called with each log that begins and, with False, that ends."""

    def limit(self, bounds: Bounds) -> None:
        """Let so much wait for each session, of whatever virtual host."""

    def find(self, client_id: str) -> Session | None:
        """The session of a client."""
        ...

    def totals(self) -> Totals:
        """All sessions together."""
        ...

    @property
    def losses(self) -> Losses:
        """What sessions never got, in all virtual hosts."""
        ...

    def all(self) -> list[Session]:
        """All sessions."""
        ...

    def of_user(self, user: str) -> list[Session]:
        """The sessions of a user."""
        ...

    def begin(self, client_id: str, user: str, expiry_s: int) -> Session:
        """A new session of a client that has none; raises LimitReached."""
        ...

    def leave(self, session: Session) -> None:
        """The connection of a session is gone."""

    def end(self, session: Session) -> None:
        """A session is over."""

    def subscribe(
        self, session: Session, topic_filter: str, options: SubscriptionOptions, *, is_logged: bool
    ) -> bool:
        """Subscribe a session to a filter; whether it was not. `is_logged`: messages are kept for it."""
        ...

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Subscribe a session to a filter no more; whether it was."""
        ...

    def send_own(
        self,
        session: Session,
        topic_filter: str,
        messages: Sequence[tuple[EnvelopeTemplate, int, int, bytes]],
    ) -> None:
        """Send a session what was retained, of QoS 1 or 2, as its subscription to a filter wants it; it stays
        in flight over connections. Each message is given with QoS, time and body.
        """

    def has_room(self, logs: Sequence[Log], count: int, body_bytes: int) -> bool:
        """Whether no session that reads these logs is full, where publishers are to be told that."""
        ...

    def publish(
        self,
        logs: Sequence[Log],
        template: EnvelopeTemplate,
        qos: int,
        retain: bool,
        publisher: Session | None,
        bodies: list[bytes],
    ) -> None:
        """Add messages of QoS 1 or 2 to logs, which have room; they are durable once the open commit is."""


class VhostRecords(Protocol):
    """What is kept of the virtual hosts that administration made; durable with the open commit."""

    def kept(self) -> Mapping[str, StoredVhost]:
        """All of them, by name."""
        ...

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """Have one kept so."""

    def forget(self, name: str) -> None:
        """Keep one no more; nothing of it may be left."""


class RetainedClient(Protocol):
    """The last message of each topic that was published with RETAIN."""

    def keep(self, template: EnvelopeTemplate, qos: int, body: bytes) -> bool:
        """Retain a message in the place of the last of its topic, or none if the body is empty; durable once
        the open commit is. False: there is no room, and the topic has none.
        """
        ...

    def matching(self, topic_filter: str) -> Iterator[RetainedMessage | None]:
        """The messages a filter matches that have not expired, and None after so many topics, for who goes
        through them in steps; what is retained later than this call is not given.
        """
        ...

    def topics(self) -> list[str]:
        """The topics that have a message, in no order."""
        ...

    @property
    def extent(self) -> tuple[int, int]:
        """How many there are, and the memory they take."""
        ...


class PublishingClient(Protocol):
    """From a publish to the queues that take it."""

    @property
    def creates_queues(self) -> bool:
        """Whether a publish to a name nobody declared makes a queue in memory."""
        ...

    def match(self, topic: Address) -> Targets:
        """The queues that are bound to a `$queue/...` address."""
        ...

    def route(self, topic: Address, now_ms: int) -> Targets:
        """As `match`, but a queue in memory is made if there is none. Raises QueueNotFound where that is not
        allowed, InvalidAddress, LimitReached.
        """
        ...

    def named(self, name: Name) -> Targets:
        """The queue of that name, if there is one."""
        ...

    def through(self, exchange: Name, keys: Sequence[str], headers: Callable[[], Headers]) -> Targets:
        """The queues that an exchange other than the default one gives messages with these routing keys (one,
        and what CC and BCC add) and headers, which are asked for where they matter. They are not current
        where the next message may go elsewhere. Raises ExchangeNotFound, AccessRefused.
        """
        ...

    def joined(self, targets: Iterable[Targets]) -> Targets:
        """All these queues, each once; not current, so that it is asked for again."""
        ...

    def unconditional(self, exchange: Name, key: str) -> Targets:
        """As `through`, if headers do not matter and it is the same for all messages; otherwise, and if
        clients may not publish there, there are none.
        """
        ...

    def plan(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
        exchange: str = "",
    ) -> PublishPlan:
        """What publishes of this topic and these properties have in common; to be aimed."""
        ...

    def aim(self, plan: PublishPlan, targets: Targets, keys: Sequence[str] = ()) -> None:
        """Point a plan at queues, see `is_current`, and at the subscribers of the topics that it meets: those
        of these routing keys, or of its own topic.
        """

    def join(self, topics: Topics | None, vhost: VhostName = DEFAULT_VHOST) -> None:
        """Have the subscribers of these topics hear what is published in a virtual host; None: it is
        deleted.
        """

    def is_current(self, plan: PublishPlan) -> bool:
        """Whether the plan is aimed as bindings are now."""
        ...

    def publish(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """Publish a run; gives an outcome of `queue_manager.outcomes`. Raises QueueManagerError."""
        ...

    def judge(self, wanted: Iterable[tuple[PublishPlan, list[bytes]]], now_ms: int) -> Sequence[Judgement]:
        """Find what would become of publishes that are applied one after the other, up to the first that is
        refused; nothing changes. Raises QueueManagerError.
        """
        ...

    def apply(self, judged: Judgement, now_ms: int) -> int:
        """Do what was judged, in the same turn; gives the outcome as `publish` does."""
        ...

    def next_offset(self, name: Name) -> int:
        """The offset that the next message without a priority gets in a queue; raises QueueNotFound."""
        ...

    def is_remembered(self, plan: PublishPlan, outcome: int) -> bool:
        """Whether a refusal is to be told only when the open commit, which remembers it, is durable."""
        ...


class ConsumingClient(Protocol):
    """From a queue to consumers."""

    def find(self, name: Name, caller: str = OPERATOR) -> Source:
        """The queue; raises QueueNotFound, ResourceLocked."""
        ...

    def find_or_create(self, name: Name, caller: str, now_ms: int) -> Source:
        """As `find`, but an unknown name makes a queue in memory where that is allowed."""
        ...

    def is_stream(self, name: Name) -> bool:
        """Whether there is a stream of that name."""
        ...

    def credit(self, credit_max: int) -> Credit:
        """A limit that consumers share, of so many unsettled messages."""
        ...

    def share(self, consumer: Consumer, credit: Credit) -> None:
        """Have a consumer that was there before a limit come under it; what it holds counts, too."""

    def subscribe(
        self,
        queue: Source,
        group_name: str,
        pattern: str,
        sink: Sink,
        *,
        consumer_id: str,
        credit_max: int,
        no_ack: bool,
        exclusive: bool,
        lease_ms: int,
        pool: Credit | None = None,
        priority: int = 0,
        wanted: ConsumerFilter | None = None,
        group_selector: str | None = None,
        start: StreamStart | None = None,
        auto_commit: bool = True,
        is_told_offsets: bool = False,
    ) -> Consumer:
        """Add a consumer to a group, made if need be; `start` and `auto_commit` are for streams.

        `is_told_offsets`: what it is given is shown with its offset, or anything made of that: so its group
        is given only what is durable, as any of a stream. Raises AccessRefused, PreconditionFailed,
        InvalidAddress, LimitReached.
        """
        ...

    def unsubscribe(self, consumer: Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """Take a consumer away, unless its queue is gone; its claims return, or stay with their holder."""

    def wake(self, consumer: Consumer) -> None:
        """The consumer's credit grew or it is no longer paused."""

    def puller(
        self,
        queue: Source,
        sink: Sink,
        consumer_id: str,
        *,
        lease_ms: int,
        group_name: str = "",
        is_told_offsets: bool = False,
    ) -> Consumer:
        """A consumer of a group that is given nothing by itself and takes by `pull`."""
        ...

    def pull(self, consumer: Consumer, no_ack: bool, now_ms: int, count: int = 1) -> int | None:
        """Claim up to `count` messages for a puller; how many there were. None: they are being read
        (`when_loaded`).
        """
        ...

    def set_credit(self, consumer: Consumer, credit_max: int) -> None:
        """Let a consumer hold so many unsettled messages."""

    def when_loaded(self, consumer: Consumer, call: Callable[[int], None]) -> None:
        """Have `call` called, with the time, when what the consumer's group is reading has been read."""

    def ready_count(self, consumer: Consumer) -> int:
        """Messages that wait for a claim in the consumer's group."""
        ...

    def is_consumer_of(self, consumer: Consumer, queue: Source) -> bool:
        """Whether the queue, and not an older one of its name, is what the consumer reads."""
        ...

    def is_gone(self, consumer: Consumer) -> bool:
        """Whether the consumer's queue was deleted."""
        ...

    def primary_group(self, consumer: Consumer) -> str:
        """The group of the consumer's stream whose progress deliveries tell; "" for none."""
        ...

    def primary_committed(self, consumer: Consumer) -> int:
        """How far that group is."""
        ...

    def gap(self, consumer: Consumer) -> int:
        """Messages lost to retention that no consumer of the stream's group was told of yet."""
        ...

    def take_gap(self, consumer: Consumer) -> int:
        """As `gap`; they are told now."""
        ...


class SettlingClient(Protocol):
    """What becomes of messages that consumers hold."""

    def ack(self, claims: Iterable[Claim], now_ms: int) -> int:
        """Mark claims done; gives how many came too late."""
        ...

    def requeue(self, claims: Iterable[Claim], now_ms: int, *, delay_ms: int | None = None) -> int:
        """Return claims to their places after `delay_ms` (None: the back-off of the queue); gives how many
        came too late.
        """
        ...

    def reject(self, claims: Iterable[Claim], now_ms: int) -> int:
        """Fail claims for good; gives how many came too late."""
        ...

    def extend(self, claim: Claim, lease_ms: int, now_ms: int) -> bool:
        """Give a claim a new lease from now; False if it is no claim any more."""
        ...

    def find_claim(self, queue: Source, group_id: str, offset: int) -> Claim:
        """The claim a control topic names; raises GroupNotFound, InvalidAddress."""
        ...

    def holder(self, claim: Claim) -> Consumer | None:
        """The consumer that has, or had, the claim."""
        ...

    def is_claim_of(self, claim: Claim, queue: Source) -> bool:
        """Whether a claim that is in flight is of this queue."""
        ...

    def durable_group_of(self, claim: Claim) -> Group | None:
        """The group of a claim that is in flight, if its queue is stored; None otherwise."""
        ...

    def write_soon(self, group: Group) -> None:
        """Have what was settled in a group written with the open commit, which can be waited for."""


class TurnClient(Protocol):
    """The end of each chunk and loop turn: what was done to the core is followed up."""

    def has_work(self) -> bool:
        """Whether `settle` has anything to do."""
        ...

    def announce(self) -> None:
        """Something may have been done to the core, and more may be in this loop turn: have it committed once
        `settle` was called, which follows at the end of the turn.
        """

    def settle(self) -> None:
        """Deliver what can be delivered, commit what must be."""

    def uncommitted_bytes(self) -> int:
        """Memory of what waits for durability; publishers are held back when it grows too much."""
        ...


class ShardClient(Protocol):
    """The way to one shard."""

    @property
    def queues(self) -> QueueClient: ...

    @property
    def exchanges(self) -> ExchangeClient: ...

    @property
    def groups(self) -> GroupClient: ...

    @property
    def messages(self) -> MessageClient: ...

    @property
    def streams(self) -> StreamClient: ...

    @property
    def epochs(self) -> EpochClient: ...

    @property
    def commits(self) -> CommitClient: ...

    @property
    def backups(self) -> BackupClient: ...

    @property
    def sessions(self) -> SessionClient: ...

    @property
    def retained(self) -> RetainedClient: ...

    @property
    def vhosts(self) -> VhostRecords: ...

    @property
    def publishing(self) -> PublishingClient: ...

    @property
    def consuming(self) -> ConsumingClient: ...

    @property
    def settling(self) -> SettlingClient: ...

    @property
    def turns(self) -> TurnClient: ...

    def check(self) -> None:
        """Raise BrokerStopped once the shard has stopped or its store has failed."""
