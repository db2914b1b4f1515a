"""What front-ends and administration may ask of the core, wherever it runs.

`ShardClient` is put together of one client for each subject; `broker.engine.local` has it for a shard in this
process. What crosses are the values of `queue_manager.api`. Calls that change something take effect in the
order they are made; that it is durable `CommitClient` tells. Refusals are QueueManagerErrors; every call may
come to StorageError, and to BrokerStopped once the shard has stopped or its store has failed.

Publishing, consuming and settling are no part of it yet: `broker.engine.local.traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from broker.engine.answers import Answer
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
    QueueDeclaration,
    QueueStatus,
    QueueView,
    StageTag,
    State,
    StreamStart,
    StreamStatus,
)


class Waiter(Protocol):
    """Somebody who may tell his peer only what is durable."""

    def committed(self, tokens: list[int]) -> None:
        """What these tokens stand for is durable; called once per commit, commits in order."""


class QueueClient(Protocol):
    """Queues come and go."""

    def declare(
        self, declaration: QueueDeclaration, caller: str = OPERATOR, *, create: bool = True
    ) -> Answer[QueueStatus]:
        """The queue of that name, made if it is not there (and `create`).

        Waits while one of that name is being deleted. Comes to PreconditionFailed when it exists with another
        definition, ResourceLocked, QueueNotFound, InvalidAddress, LimitReached.
        """
        ...

    def configure(self, declaration: QueueDeclaration) -> Answer[bool]:
        """Have a queue as declared: made if it is not there, else given the policy and bindings; whether
        anything of an existing queue changed.

        Comes to PreconditionFailed when it exists as another type.
        """
        ...

    def exists(self, name: str) -> Answer[bool]:
        """Whether there is a queue of that name."""
        ...

    def look(self, name: str, caller: str, *, is_use: bool = False) -> Answer[QueueStatus]:
        """A queue that exists; `is_use`: asking counts as use. Comes to QueueNotFound, ResourceLocked."""
        ...

    def purge(self, name: str, caller: str = OPERATOR) -> Answer[Dropped]:
        """Drop what waits in every group. Comes to QueueNotFound, ResourceLocked."""
        ...

    def delete(
        self, name: str, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """Delete a queue with all it holds.

        Comes to QueueNotFound, ResourceLocked, PreconditionFailed when it is used or not empty and that was a
        condition.
        """
        ...

    def forget_caller(self, caller: str) -> None:
        """The caller is gone: its exclusive queues go with it."""

    async def view(self, name: str) -> QueueView:
        """One queue; raises QueueNotFound."""
        ...

    async def views(self, names: Sequence[str] | None = None) -> list[QueueView]:
        """The queues of these names that are there, in this order; None: all, by name."""
        ...

    async def names(self) -> list[str]:
        """The names of all queues, sorted."""
        ...


class ExchangeClient(Protocol):
    """Exchanges and bindings come and go. The default exchange, "", is not among them."""

    def declare(self, declaration: ExchangeDeclaration, *, create: bool = True) -> Answer[Changed]:
        """Make an exchange if it is not there (and `create`).

        Comes to Inequivalent when it exists as another, ExchangeNotFound, InvalidArgument, LimitReached.
        """
        ...

    def look(self, name: str) -> Answer[ExchangeView]:
        """An exchange that exists. Comes to ExchangeNotFound."""
        ...

    def delete(self, name: str, *, if_unused: bool = False) -> Answer[Changed]:
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

    def views(self) -> Answer[list[ExchangeView]]:
        """All exchanges, by name."""
        ...

    def bindings(
        self, *, source: str | None = None, queue: str | None = None, exchange: str | None = None
    ) -> Answer[list[BindingDefinition]]:
        """The bindings of one exchange as their source, those to a queue, those to an exchange, or all.
        Comes to ExchangeNotFound, QueueNotFound.
        """
        ...


class GroupClient(Protocol):
    """Consumer groups and where they are. What changes is durable when a call returns, but for `ensure`."""

    async def create(self, queue: str, wanted: GroupDefinition) -> GroupView:
        """Make a group. Raises QueueNotFound, InvalidAddress, InvalidArgument, LimitReached,
        PreconditionFailed if it is there.
        """
        ...

    async def ensure(self, queue: str, wanted: GroupDefinition) -> None:
        """Make a group if it is not there; raises as `create`, and PreconditionFailed if it has another
        selector.
        """
        ...

    async def reset(self, queue: str, group_id: str, to: GroupStart, *, force: bool) -> GroupView:
        """Have a group go on at `to`. Raises QueueNotFound, GroupNotFound, InvalidArgument,
        PreconditionFailed while it has consumers or claims, unless `force`.
        """
        ...

    async def delete(self, queue: str, group_id: str, *, force: bool) -> None:
        """Delete a group; raises as `reset`."""
        ...

    async def delete_passing(self) -> int:
        """After a start: delete the groups that should have gone with their clients before it; gives how many
        they were.
        """
        ...

    async def view(self, queue: str, group_id: str) -> GroupView:
        """One group; raises QueueNotFound, GroupNotFound."""
        ...

    async def views(self, queue: str) -> list[GroupView]:
        """The groups of a queue that have a name, by their IDs; raises QueueNotFound."""
        ...


class MessageClient(Protocol):
    """Messages that wait, failed or are done. What changes is durable when a call returns."""

    async def browse(self, queue: str, request: BrowseRequest, caller: str = OPERATOR) -> BrowsedPage:
        """Look at messages, a page at a time; with bodies a page ends early at some 32 MiB. Raises
        QueueNotFound, ResourceLocked, GroupNotFound, InvalidArgument.
        """
        ...

    async def move(
        self,
        queue: str,
        to: str,
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
        queue: str,
        to: str,
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
        queue: str,
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
        self, queue: str, *, target: str | None, limit: int | None, per_second: float | None
    ) -> int:
        """Move dead letters back to where they came from, or to `target`; give how many went. Raises
        QueueNotFound, InvalidArgument.
        """
        ...

    async def remove(self, queue: str, offset: int, *, group: str) -> bool:
        """Remove one message from a group that has not done it yet, claimed or not; False if there is none
        such. Raises QueueNotFound, GroupNotFound, InvalidArgument of a stream, LimitReached when too many
        wait before it.
        """
        ...

    async def cancel_scheduled(self, queue: str, name: str) -> bool:
        """Cancel a scheduled message (`BrowsedMessage.name`); False if it is not there, or due. Raises
        QueueNotFound, InvalidArgument.
        """
        ...


class StreamClient(Protocol):
    """What only streams have. All come to InvalidArgument of another queue, QueueNotFound, ResourceLocked."""

    def status(
        self, queue: str, caller: str, *, group: str | None, start: StreamStart | None
    ) -> Answer[StreamStatus]:
        """Which offsets there are, and the committed one of a group, which is made at `start` if it is not
        there; without a group the offset of `start`. Comes to InvalidAddress, LimitReached.
        """
        ...

    def commit_offset(self, queue: str, caller: str, group_id: str, offset: int) -> Answer[None]:
        """Everything up to and with `offset` is done with in the group. Comes to GroupNotFound."""
        ...


class EpochClient(Protocol):
    """Staged epochs. All come to QueueNotFound, ResourceLocked."""

    def commit(
        self, queue: str, caller: str, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str
    ) -> Answer[CommittedEpoch]:
        """Make exactly the named attempts of an epoch part of the queue, in the order of their parts.

        Comes to PreconditionFailed when the epoch is older than the last or the attempts do not have so many
        rows, InvalidArgument, LimitReached.
        """
        ...

    def abort(
        self,
        queue: str,
        caller: str,
        producer: str,
        epoch: int,
        attempts: Collection[tuple[int, str]] | None,
    ) -> Answer[int]:
        """Drop what is staged for an epoch that is not committed, or only these (part, attempt) of it; give
        how many attempts it were.
        """
        ...

    def status(self, queue: str, caller: str, producer: str, tag: StageTag | None) -> Answer[EpochStatus]:
        """The last epoch of a producer, and how many rows an attempt has staged."""
        ...

    def forget(self, queue: str, caller: str, producer: str) -> Answer[bool]:
        """Forget the last epoch of a producer and drop what it staged; False if it was not known.

        Comes to PreconditionFailed while the rows of that epoch are still on their way into the queue.
        """
        ...


class CommitClient(Protocol):
    """When what was done is durable."""

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

    def check(self) -> None:
        """Raise BrokerStopped once the shard has stopped or its store has failed."""
