"""The answers of calls to the core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import wraps
from typing import Generic, ParamSpec, TypeVar

from broker.engine.shard_ending import resolve
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError

T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")


class Answer(Generic[T]):
    """A value that is there when a call returns, or comes later; or the error the call came to.

    A client in the core's process has nearly all answers at once, one that speaks to another process has
    none. Whoever can wait awaits it; whoever must go on asks `is_done` and leaves a callback.
    """

    __slots__ = ("_calls", "_error", "_value", "is_done")

    _value: T

    def __init__(self) -> None:
        self.is_done = False
        self._error: QueueManagerError | StorageError | None = None
        self._calls: list[Callable[[Answer[T]], object]] = []

    @classmethod
    def of(cls, call: Callable[[], T]) -> Answer[T]:
        """Return what `call` gives, or the QueueManagerError it raises, as an answer."""
        answer = cls()
        try:
            answer._value = call()
            answer.is_done = True
        except QueueManagerError as error:
            answer.fail(error)
        return answer

    @classmethod
    def given(cls, value: T) -> Answer[T]:
        """Return an answer that is there."""
        answer = cls()
        answer._value = value
        answer.is_done = True
        return answer

    @classmethod
    def failed(cls, error: QueueManagerError | StorageError) -> Answer[T]:
        """Return an answer that is an error."""
        answer = cls()
        answer.fail(error)
        return answer

    def map(self, call: Callable[[T], U]) -> Answer[U]:
        """Return what `call` makes of the value, once it is there; errors stay what they are."""
        return self.chain(lambda value: Answer.given(call(value)))

    def chain(self, call: Callable[[T], Answer[U]]) -> Answer[U]:
        """Return what `call` comes to with the value, once it is there; errors stay what they are."""
        chained: Answer[U] = Answer()

        def take(answer: Answer[T]) -> None:
            try:
                call(answer.result()).then(chained._follow)
            except (QueueManagerError, StorageError) as error:
                chained.fail(error)

        self.then(take)
        return chained

    def otherwise(self, error_class: type[QueueManagerError], call: Callable[[], Answer[T]]) -> Answer[T]:
        """Return what `call` comes to where this comes to an error of that very class."""
        if self.is_done and type(self._error) is not error_class:
            return self
        other: Answer[T] = Answer()

        def take(answer: Answer[T]) -> None:
            if type(answer._error) is not error_class:
                other._follow(answer)
                return
            try:
                call().then(other._follow)
            except QueueManagerError as error:
                other.fail(error)

        self.then(take)
        return other

    def _follow(self, other: Answer[T]) -> None:
        if other._error is None:
            self.resolve(other._value)
        else:
            self.fail(other._error)

    def resolve(self, value: T) -> None:
        """End the wait with the value."""
        self._value = value
        self._finish()

    def fail(self, error: QueueManagerError | StorageError) -> None:
        """End the wait: there will be no value."""
        self._error = error
        self._finish()

    @property
    def is_error(self) -> bool:
        """Whether `result` raises an error of the call."""
        return self._error is not None

    def result(self) -> T:
        """Return the value, or the error raised. Raises RuntimeError if neither is there yet."""
        if not self.is_done:
            raise RuntimeError("the answer is not there yet")
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, call: Callable[[Answer[T]], object]) -> None:
        """Have `call` called once the answer is there, which may be now."""
        if self.is_done:
            call(self)
        else:
            self._calls.append(call)

    def __await__(self) -> Generator[object, None, T]:
        if not self.is_done:
            there = asyncio.get_running_loop().create_future()
            self.then(lambda answer: resolve(there))
            yield from there
        return self.result()

    def _finish(self) -> None:
        self.is_done = True
        calls, self._calls = self._calls, []
        for call in calls:
            call(self)


def answered(call: Callable[P, T]) -> Callable[P, Answer[T]]:
    """Have a function give what it returns, or the QueueManagerError it raises, as an Answer."""

    @wraps(call)
    def answer(*arguments: P.args, **named: P.kwargs) -> Answer[T]:
        return Answer.of(lambda: call(*arguments, **named))

    return answer
