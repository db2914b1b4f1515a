"""Queues, exchanges and what is asked of them by name, over the shards of all workers.

What this worker does to its own queues the others know before the answer is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from broker.engine.answers import Answer
from broker.engine.call_names import Name, VhostName
from broker.engine.client.exchanges import ExchangeClient
from broker.engine.client.queues import QueueClient
from broker.engine.shard import Shard
from broker.engine.shard_ending import WorkerLost
from broker.workers.first_uses import FirstUses
from broker.workers.neighbours import Neighbours, called, release, reserved, told_caller
from broker.workers.worker_directory import Directory, all_answered, is_own_name
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import (
    OPERATOR,
    BindingDefinition,
    Changed,
    Dropped,
    ExchangeDeclaration,
    Pause,
    QueueDeclaration,
    QueueStatus,
    QueueView,
)
from queue_manager.errors import PreconditionFailed, QueueManagerError
from storage.errors import StorageError

T = TypeVar("T")
_Part = TypeVar("_Part")

HOME: Final = 0  # the worker by which exchanges are made


class OwnQueues:
    """The queues of this worker, for itself and the others."""

    def __init__(self, local: QueueClient, directory: Directory) -> None:
        self._local = local
        self._directory = directory

    def _told(self, answer: Answer[T]) -> Answer[T]:
        """Give the answer once the other workers know of what was done."""
        return answer.chain(lambda value: self._directory.tell().map(lambda _: value))

    def declare(self, declaration: QueueDeclaration, caller: str = OPERATOR) -> Answer[QueueStatus]:
        """See `QueueClient`."""
        return self._told(self._local.declare(declaration, caller))

    def configure(self, declaration: QueueDeclaration) -> Answer[bool]:
        """See `QueueClient`."""
        return self._told(self._local.configure(declaration))

    def delete(
        self, name: Name, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """See `QueueClient`."""
        return self._told(self._local.delete(name, caller, if_unused=if_unused, if_empty=if_empty))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)


class ShardedQueues:
    """As `QueueClient`."""

    def __init__(
        self, local: QueueClient, own: OwnQueues, neighbours: Neighbours, first_uses: FirstUses
    ) -> None:
        self._local = local
        self._own = own
        self._neighbours = neighbours
        self._first_uses = first_uses
        self._directory = neighbours.directory
        self.watch = local.watch  # of the deletion of others' queues its routing tells
        self.unwatch = local.unwatch
        self.forget_caller = local.forget_caller

    def _at(self, name: str) -> int | None:
        """Return the worker that has a queue; None: none but this one has it."""
        queue = self._directory.get(name)
        return None if queue is None else queue.shard

    def _call(self, worker: int, part: str, method: str, *arguments: Any, **named: Any) -> Answer[Any]:
        return called(self._neighbours, worker, part, method, *arguments, **named)

    def declare(self, declaration: QueueDeclaration, caller: str = OPERATOR) -> Answer[QueueStatus]:
        """Make a queue if none of that name is there: at this worker, unless that is much busier than others
        and the queue is not for this connection.
        """
        name = declaration.name
        worker = self._at(name)
        if worker is not None:
            return self._call(worker, "queues", "declare", declaration, told_caller(self._neighbours, caller))
        if (decided := self._first_uses.decided(name)) is not None:
            return decided.chain(lambda _: self.declare(declaration, caller))
        if is_own_name(name) or self._is_here(name):
            return self._own.declare(declaration, caller)
        is_passing = declaration.exclusive or declaration.auto_delete
        worker = self._neighbours.number if is_passing else self._neighbours.placement.choose()
        return reserved(self._neighbours, name, worker).chain(partial(self._declare_at, declaration, caller))

    def declare_here(self, declaration: QueueDeclaration, caller: str) -> Answer[QueueStatus]:
        """Declare a queue for another worker, which takes it to be at this one, or to be made here."""
        name = declaration.name
        if (decided := self._first_uses.decided(name)) is not None:
            return decided.chain(lambda _: self.declare_here(declaration, caller))
        if is_own_name(name) or self._is_here(name):
            return self._own.declare(declaration, caller)
        worker = self._neighbours.number
        return reserved(self._neighbours, name, worker).chain(partial(self._declare_at, declaration, caller))

    def _is_here(self, name: str) -> bool:
        return self._local.exists(name).result()

    def _declare_at(self, declaration: QueueDeclaration, caller: str, worker: int) -> Answer[QueueStatus]:
        if worker == self._neighbours.number:
            self._first_uses.is_ours(declaration.name)
            answer = self._own.declare(declaration, caller)
        else:
            answer = self._call(
                worker, "queues", "declare", declaration, told_caller(self._neighbours, caller)
            )
        answer.then(partial(self._release_if_refused, declaration.name, worker))
        return answer

    def _release_if_refused(self, name: str, worker: int, answer: Answer[QueueStatus]) -> None:
        try:
            answer.result()
        except (QueueManagerError, StorageError):
            release(self._neighbours, name, worker)

    def configure(self, declaration: QueueDeclaration) -> Answer[bool]:
        """Have a queue as declared, wherever it is."""
        worker = self._at(declaration.name)
        if worker is not None:
            return self._call(worker, "queues", "configure", declaration)
        if (decided := self._first_uses.decided(declaration.name)) is not None:
            return decided.chain(lambda _: self.configure(declaration))
        return self._own.configure(declaration)

    def exists(self, name: Name) -> Answer[bool]:
        """See `QueueClient`."""
        return Answer.given(True) if self._directory.get(name) is not None else self._local.exists(name)

    def look(self, name: Name, caller: str, *, is_use: bool = False) -> Answer[QueueStatus]:
        """See `QueueClient`."""
        return self._asked("look", name, caller, is_use=is_use)

    def purge(self, name: Name, caller: str = OPERATOR) -> Answer[Dropped]:
        """See `QueueClient`."""
        return self._asked("purge", name, caller)

    def pause(self, name: Name, pause: Pause) -> Answer[Changed]:
        """See `QueueClient`."""
        return self._asked("pause", name, pause)

    def resume(self, name: Name, pause: Pause) -> Answer[Changed]:
        """See `QueueClient`."""
        return self._asked("resume", name, pause)

    def delete(
        self, name: Name, caller: str = OPERATOR, *, if_unused: bool = False, if_empty: bool = False
    ) -> Answer[Dropped]:
        """See `QueueClient`."""
        return self._asked("delete", name, caller, if_unused=if_unused, if_empty=if_empty)

    def _asked(self, method: str, name: str, *arguments: Any, **named: Any) -> Answer[Any]:
        worker = self._at(name)
        if worker is not None:
            if arguments and isinstance(arguments[0], str):
                arguments = (told_caller(self._neighbours, arguments[0]), *arguments[1:])
            return self._call(worker, "queues", method, name, *arguments, **named)
        if (decided := self._first_uses.decided(name)) is not None:
            return decided.chain(lambda _: self._asked(method, name, *arguments, **named))
        answer: Answer[Any] = getattr(self._own, method)(name, *arguments, **named)
        return answer

    async def view(self, name: Name) -> QueueView:
        """See `QueueClient`."""
        worker = self._at(name)
        if worker is None:
            return await self._local.view(name)
        return cast(QueueView, await self._call(worker, "queues", "view", name))

    async def views(
        self, names: Sequence[Name] | None = None, *, vhost: VhostName = DEFAULT_VHOST
    ) -> list[QueueView]:
        """See `QueueClient`: those of all workers that are up."""
        parts = await self._of_all("views", names, vhost=vhost)
        found = {view.name: view for part in parts for view in part}
        if names is None:
            return sorted(found.values(), key=lambda view: view.name)
        return [found[name] for name in names if name in found]

    async def names(self, *, vhost: VhostName = DEFAULT_VHOST) -> list[Name]:
        """See `QueueClient`."""
        return sorted(name for part in await self._of_all("names", vhost=vhost) for name in part)

    async def _of_all(self, method: str, *arguments: Any, **named: Any) -> list[Any]:
        links = self._neighbours.links()
        asked = [link.call("queues", method, *arguments, **named) for link in links]
        found = [await getattr(self._local, method)(*arguments, **named)]
        for answer in asked:
            try:
                found.append(await answer)
            except WorkerLost:
                pass  # that worker is gone, and is started again
        return found


class AskedQueues:
    """The queues of this worker, for the others: what one knows of them may not be so any more."""

    def __init__(self, own: OwnQueues, queues: ShardedQueues) -> None:
        self._own = own
        self._queues = queues

    def declare(self, declaration: QueueDeclaration, caller: str = OPERATOR) -> Answer[QueueStatus]:
        """See `QueueClient`."""
        return self._queues.declare_here(declaration, caller)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class ShardedExchanges:
    """As `ExchangeClient`: exchanges are the same everywhere, made by way of the home worker; a binding to a
    queue is at the queue's worker, and all know it.
    """

    def __init__(
        self, local: ExchangeClient, own: OwnExchanges, neighbours: Neighbours, first_uses: FirstUses
    ) -> None:
        self._local = local
        self._own = own
        self._neighbours = neighbours
        self._first_uses = first_uses
        self.type_of = local.type_of
        self.watch = local.watch
        self.unwatch = local.unwatch
        self.look = local.look
        self.views = local.views

    def declare(self, declaration: ExchangeDeclaration, caller: str = OPERATOR) -> Answer[Changed]:
        """Make an exchange at all workers if it is not there."""
        if self._local.type_of(declaration.name) is not None:
            return self._local.declare(declaration, caller)
        return self._everywhere("declare", declaration, caller)

    def delete(self, name: Name, *, if_unused: bool = False, caller: str = OPERATOR) -> Answer[Changed]:
        """Delete an exchange at all workers."""
        return self._everywhere("delete", name, if_unused=if_unused, caller=caller)

    def bindings(
        self,
        *,
        source: Name | None = None,
        queue: Name | None = None,
        exchange: Name | None = None,
        vhost: VhostName = DEFAULT_VHOST,
    ) -> Answer[list[BindingDefinition]]:
        """See `ExchangeClient`: all are known here; of those to a queue its worker is asked."""
        known = None if queue is None or source is not None else self._neighbours.directory.get(queue)
        if known is None:
            return self._local.bindings(source=source, queue=queue, exchange=exchange, vhost=vhost)
        return self._neighbours.link(known.shard).call("own_exchanges", "bindings", queue=queue)

    def bind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """Have an exchange pass messages on."""
        return self._bound("bind", binding, caller)

    def unbind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """Undo a `bind`."""
        return self._bound("unbind", binding, caller)

    def _bound(self, method: str, binding: BindingDefinition, caller: str) -> Answer[Changed]:
        if binding.destination_type == "exchange":
            return self._everywhere(method, binding, caller)
        if (decided := self._first_uses.decided(binding.destination)) is not None:
            return decided.chain(lambda _: self._bound(method, binding, caller))
        queue = self._neighbours.directory.get(binding.destination)
        if queue is None:
            answer: Answer[Changed] = getattr(self._own, method)(binding, caller)
            return answer
        told = told_caller(self._neighbours, caller) if queue.is_exclusive else OPERATOR
        return called(self._neighbours, queue.shard, "own_exchanges", method, binding, told)

    def _everywhere(self, method: str, *arguments: Any, **named: Any) -> Answer[Changed]:
        neighbours = self._neighbours
        if neighbours.number != HOME:
            return called(neighbours, HOME, "exchanges", method, *arguments, **named)
        return self._own_and_others(method, *arguments, **named)

    def _own_and_others(self, method: str, *arguments: Any, **named: Any) -> Answer[Changed]:
        done: Answer[Changed] = getattr(self._local, method)(*arguments, **named)

        def tell(changed: Changed) -> Answer[Changed]:
            links = self._neighbours.links()
            asked = [link.call("own_exchanges", method, *arguments, **named) for link in links]
            return all_answered(asked).map(lambda _: changed)

        return done.chain(tell)


class OwnExchanges:
    """The exchanges as this worker has them, and the bindings to its queues."""

    def __init__(self, local: ExchangeClient, shard: Shard, directory: Directory) -> None:
        self._local = local
        self._exchanges = shard.manager.queues.exchanges
        self._directory = directory
        self.declare = local.declare
        self.delete = local.delete
        self.bindings = local.bindings

    def bind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """See `ExchangeClient`."""
        return self._told(self._local.bind(binding, caller))

    def unbind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """See `ExchangeClient`."""
        return self._told(self._local.unbind(binding, caller))

    def _told(self, answer: Answer[T]) -> Answer[T]:
        return answer.chain(lambda value: self._directory.tell().map(lambda _: value))

    def take_all(self, declared: Sequence[ExchangeDeclaration], bound: Sequence[BindingDefinition]) -> None:
        """Have the exchanges that the home worker has, with what leads from one to another."""
        names = {declaration.name for declaration in declared}
        for exchange in list(self._exchanges):
            if exchange.name not in names and not exchange.is_predeclared:
                self._exchanges.delete(exchange)
        for declaration in declared:
            if isinstance(_error_of(self._local.declare(declaration)), PreconditionFailed):
                self._local.delete(declaration.name)
                self._local.declare(declaration)
        for binding in self._between():
            if binding not in bound:
                self._local.unbind(binding)
        for binding in bound:
            self._local.bind(binding)

    def all(self) -> tuple[list[ExchangeDeclaration], list[BindingDefinition]]:
        """Return what `take_all` takes."""
        declared = [
            ExchangeDeclaration(
                name=exchange.name,
                type=exchange.definition.type,
                durable=exchange.definition.durable,
                auto_delete=exchange.definition.auto_delete,
                internal=exchange.definition.internal,
                arguments=exchange.definition.arguments,
            )
            for exchange in self._exchanges
            if not exchange.is_predeclared
        ]
        return declared, self._between()

    def _between(self) -> list[BindingDefinition]:
        """Return the bindings that lead from one exchange to another."""
        return [
            BindingDefinition(
                source=binding.source,
                destination=binding.destination.name,
                destination_type="exchange",
                routing_key=binding.key,
                arguments=binding.arguments,
            )
            for exchange in self._exchanges
            for binding in exchange.bindings.values()
            if binding.is_to_exchange
        ]


def _error_of(answer: Answer[Any]) -> Exception | None:
    """Return the refusal that an answer is, if it is one."""
    try:
        answer.result()
    except QueueManagerError as error:
        return error
    return None


class ByName:
    """A part of the client whose calls name a queue first: they go to the worker that has it."""

    def __init__(
        self, local: object, part: str, stated: type, neighbours: Neighbours, first_uses: FirstUses
    ) -> None:
        self._local = local
        self._part = part
        self._neighbours = neighbours
        self._first_uses = first_uses
        for name, function in inspect.getmembers(stated, inspect.isfunction):
            if not name.startswith("_") and _names_queue(function):
                setattr(self, name, self._over(name, getattr(local, name), function))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def _over(self, method: str, local: Callable[..., Any], function: Any) -> Callable[..., Any]:
        is_coroutine = inspect.iscoroutinefunction(function)

        def call(queue: str, *arguments: Any, **named: Any) -> Any:
            known = self._neighbours.directory.get(queue)
            if known is None and (decided := self._first_uses.decided(queue)) is not None:
                if is_coroutine:
                    return _called_then(decided, call, queue, *arguments, **named)
                return decided.chain(lambda _: call(queue, *arguments, **named))
            if known is None:
                return local(queue, *arguments, **named)
            answer = called(self._neighbours, known.shard, self._part, method, queue, *arguments, **named)
            return _awaited(answer) if is_coroutine else answer

        return call


def by_name(local: _Part, part: str, neighbours: Neighbours, first_uses: FirstUses) -> _Part:
    """Return a part of the client as `ByName`."""
    return cast(_Part, ByName(local, part, type(local), neighbours, first_uses))


async def _awaited(answer: Answer[T]) -> T:
    return await answer


async def _called_then(first: Answer[None], call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    await first
    return await call(*arguments, **named)


def _names_queue(function: Any) -> bool:
    parameters = list(inspect.signature(function).parameters)[1:2]
    return parameters in (["queue"], ["name"])
