"""broker.engine.answers: values that are there at once, or later."""

from __future__ import annotations

import asyncio

import pytest

from broker.engine.answers import Answer
from broker.engine.shard_ending import WorkerLost
from queue_manager.errors import InvalidArgument, QueueManagerError, QueueNotFound


def refuse() -> int:
    raise QueueNotFound("no queue")


def test_of_a_call_that_returns_is_done_with_its_value() -> None:
    answer = Answer.of(lambda: 5)
    assert answer.is_done
    assert answer.result() == 5


def test_of_a_call_that_is_refused_is_done_with_the_error() -> None:
    answer = Answer.of(refuse)
    assert answer.is_done
    with pytest.raises(QueueNotFound):
        answer.result()


def test_a_result_asked_for_too_early_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        Answer[int]().result()


def test_callbacks_are_called_once_in_order_when_the_answer_comes() -> None:
    answer: Answer[int] = Answer()
    called: list[tuple[str, int]] = []
    answer.then(lambda there: called.append(("a", there.result())))
    answer.then(lambda there: called.append(("b", there.result())))
    assert not called
    answer.resolve(7)
    answer.then(lambda there: called.append(("late", there.result())))
    assert called == [("a", 7), ("b", 7), ("late", 7)]


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("error", "wanted"),
    [(None, 7), (QueueNotFound("no queue"), 8), (InvalidArgument("no"), InvalidArgument)]
    + [(WorkerLost("away"), WorkerLost)],
)
def test_error_of_the_class_that_is_provided_for_is_replaced(
    error: QueueManagerError | None, wanted: int | type[Exception], is_late: bool
) -> None:
    answer: Answer[int] = Answer()

    def come() -> None:
        if error is None:
            answer.resolve(7)
        else:
            answer.fail(error)

    if not is_late:
        come()
    other = answer.otherwise(QueueNotFound, lambda: Answer.given(8))
    if is_late:
        come()
    if isinstance(wanted, int):
        assert other.result() == wanted
    else:
        with pytest.raises(wanted):
            other.result()


def test_error_of_what_replaces_an_error_is_that_of_the_answer() -> None:
    failed: Answer[int] = Answer.failed(QueueNotFound("no queue"))
    with pytest.raises(QueueNotFound):
        failed.otherwise(QueueNotFound, lambda: Answer.given(refuse())).result()


def test_a_mapped_answer_comes_with_the_one_it_is_made_of() -> None:
    answer: Answer[int] = Answer()
    mapped = answer.map(str)
    assert not mapped.is_done
    answer.resolve(7)
    assert mapped.result() == "7"


def test_a_mapped_answer_has_the_error_of_the_one_it_is_made_of() -> None:
    answer: Answer[int] = Answer()
    mapped = answer.map(str)
    answer.fail(InvalidArgument("no"))
    with pytest.raises(InvalidArgument):
        mapped.result()


def test_a_chain_waits_for_both_answers() -> None:
    first: Answer[int] = Answer()
    second: Answer[str] = Answer()
    asked: list[int] = []

    def ask(value: int) -> Answer[str]:
        asked.append(value)
        return second

    chained = first.chain(ask)
    first.resolve(1)
    assert asked == [1]
    assert not chained.is_done
    second.resolve("two")
    assert chained.result() == "two"


def test_a_chain_fails_by_what_its_second_call_raises() -> None:
    chained = Answer.given(1).chain(lambda value: Answer.of(refuse))
    with pytest.raises(QueueNotFound):
        chained.result()

    def ask(value: int) -> Answer[int]:
        raise InvalidArgument("no")

    chained = Answer.given(1).chain(ask)
    with pytest.raises(InvalidArgument):
        chained.result()


async def test_an_answer_can_be_awaited_before_and_after_it_came() -> None:
    answer: Answer[int] = Answer()
    asyncio.get_running_loop().call_later(0.001, answer.resolve, 3)
    assert await answer == 3
    assert await answer == 3


async def test_an_awaited_answer_raises_its_error() -> None:
    answer: Answer[int] = Answer()
    asyncio.get_running_loop().call_later(0.001, answer.fail, QueueNotFound("gone"))
    with pytest.raises(QueueNotFound):
        await answer


async def test_who_gave_up_waiting_is_not_told() -> None:
    answer: Answer[int] = Answer()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer, 0.001)
    answer.resolve(1)
    assert answer.result() == 1
