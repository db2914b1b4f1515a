"""broker.clients.client_consumers: the consumers of one client are paused, replaced and ended together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.clients.client_consumers import Consumers
from broker.engine.answers import Answer
from queue_manager.quota_accounts import NO_SHARE


class Consumer:
    """As much of a consumer as is paused."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.paused = False

    def pace(self, per_s: int) -> None:
        pass

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class Consuming:
    """Notes what is asked of the core."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.watched: list[Any] = []  # to be paused when one of them ends

    def subscribe(self, queue: Any, group: str, pattern: str, sink: Any, **options: Any) -> Answer[Any]:
        consumer = Consumer(options)
        self.calls.append(("subscribe", consumer))
        return Answer.given(consumer)

    def unsubscribe(self, consumer: Any, now_ms: int, *, keep_claims: bool = False) -> None:
        assert all(other.paused for other in self.watched)
        self.calls.append(("unsubscribe", consumer))
        consumer.kept_claims = keep_claims

    def wake(self, consumer: Any) -> None:
        assert not consumer.paused
        self.calls.append(("wake", consumer))


class Sink:
    def attach(self, consumer: Any) -> None:
        self.consumer = consumer


@pytest.fixture
def core() -> Consuming:
    return Consuming()


@pytest.fixture
def consumers(core: Consuming) -> Consumers:
    hub: Any = SimpleNamespace(
        client=SimpleNamespace(consuming=core, settling=None),
        clock=SimpleNamespace(now_ms=lambda: 0),
        events=SimpleNamespace(is_wanted=False),
    )
    transport: Any = SimpleNamespace(paused=False, share=NO_SHARE, guard=lambda call, *given: call(*given))
    return Consumers(hub, transport)


def subscribe(consumers: Consumers, name: str) -> Any:
    sink: Any = Sink()
    consuming: Any = consumers._consuming
    consumers.expect(name, consuming.subscribe(None, "g", "#", sink, consumer_id=name), sink)
    return sink.consumer


def test_consumer_of_a_name_in_use_takes_the_place_of_the_old_one(
    consumers: Consumers, core: Consuming
) -> None:
    old, new = subscribe(consumers, "a"), subscribe(consumers, "a")
    assert [name for name, _ in core.calls] == ["subscribe", "subscribe", "unsubscribe"]
    assert core.calls[-1][1] is old
    assert consumers.find("a") is new
    assert len(consumers) == 1


def test_consumer_that_comes_while_the_client_is_paused_is_paused(consumers: Consumers) -> None:
    first = subscribe(consumers, "a")
    assert not first.paused
    consumers.pause()
    assert (first.paused, subscribe(consumers, "b").paused) == (True, True)
    consumers.resume()
    paused = [consumer.paused for consumer in consumers]  # type: ignore[attr-defined]
    assert paused == [False, False]


def test_all_are_paused_before_the_first_of_them_ends(consumers: Consumers, core: Consuming) -> None:
    made = [subscribe(consumers, name) for name in "ab"]
    core.watched = made
    consumers.end_all()
    assert [name for name, _ in core.calls[2:]] == ["unsubscribe", "unsubscribe"]
    assert len(consumers) == 0


def test_cancelled_consumer_leaves_its_claims_with_the_client(consumers: Consumers) -> None:
    consumer = subscribe(consumers, "a")
    assert consumers.end("a", keep_claims=True)
    assert consumer.kept_claims
    assert not consumers.end("a")


def test_consumer_that_ended_by_itself_is_not_ended_again(consumers: Consumers, core: Consuming) -> None:
    subscribe(consumers, "a")
    consumers.forget("a")
    consumers.end_all()
    assert [name for name, _ in core.calls] == ["subscribe"]
