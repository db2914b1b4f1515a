"""queue_manager.claims.places: credit that is spent by what is sent, and drains."""

from __future__ import annotations

from typing import Any

import pytest

from config import limits
from queue_manager.claims.claim import UNLIMITED, Claim, Consumer
from queue_manager.claims.places import LinkCredit
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from tests.unit.queue_manager.managers import NOW_MS, become_durable, make_manager, make_queue, publish
from tests.unit.queue_manager.selecting import fields_of, send


class Receiver:
    """A client with one consumer under link credit. `dried`: what was left each time a drain ended."""

    def __init__(
        self,
        *,
        no_ack: bool = False,
        manager: QueueManager | None = None,
        queue: Queue | None = None,
        pattern: str = "#",
        selector: str = "",
    ) -> None:
        self.manager = manager or make_manager()
        self.queue = queue or make_queue(self.manager)
        self.offsets: list[int] = []
        self.claims: list[Claim] = []
        self.dried: list[int] = []
        self.credit = LinkCredit(self.manager.context, lambda: self.dried.append(self.credit.left))
        options = {"no_ack": no_ack, "exclusive": False, "lease_ms": 30_000, "pool": self.credit}
        options["wanted"] = consumer_filter(selector, {})
        subscribe: Any = self.manager.consumption.subscribe
        if isinstance(self.queue, Stream):
            options |= {"start": None, "auto_commit": True}
            subscribe = self.manager.consumption.subscribe_stream
        self.consumer: Consumer = subscribe(
            self.queue, "", pattern, self, consumer_id="receiver", credit_max=UNLIMITED, **options
        )

    def allow(self, count: int, *, drain: bool = False) -> None:
        self.credit.set(count)
        if drain:
            self.credit.drain()
        self.manager.consumption.wake(self.consumer)
        self.manager.dispatch(NOW_MS)

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        self.offsets += [message.offset for message in messages]
        self.claims += claims or []
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


@pytest.mark.parametrize("no_ack", [False, True], ids=["unsettled", "pre-settled"])
def test_no_more_is_given_than_was_allowed_whatever_is_settled(no_ack: bool) -> None:
    receiver = Receiver(no_ack=no_ack)
    publish(receiver.manager, 5)
    receiver.allow(2)
    receiver.manager.ack(receiver.claims, NOW_MS)
    receiver.manager.dispatch(NOW_MS)
    assert receiver.offsets == [0, 1]
    receiver.allow(1)
    assert receiver.offsets == [0, 1, 2]


def test_credit_is_given_though_nothing_was_settled() -> None:
    receiver = Receiver()
    publish(receiver.manager, 4)
    receiver.allow(2)
    receiver.allow(2)
    assert receiver.offsets == [0, 1, 2, 3]


def test_a_drain_is_told_once_all_that_is_there_was_given() -> None:
    receiver = Receiver()
    publish(receiver.manager, 3)
    receiver.allow(10, drain=True)
    assert receiver.offsets == [0, 1, 2]
    assert receiver.dried == [7]


def test_a_drain_of_an_empty_queue_is_told_at_once() -> None:
    receiver = Receiver()
    receiver.allow(4, drain=True)
    assert receiver.dried == [4]


@pytest.mark.parametrize("is_stream", [False, True], ids=["queue", "stream"])
@pytest.mark.parametrize(
    "wanted", [{"pattern": "us/#"}, {"selector": "region = 'us'"}], ids=["pattern", "selector"]
)
def test_a_drain_looks_at_all_that_is_there(
    monkeypatch: pytest.MonkeyPatch, is_stream: bool, wanted: dict[str, str]
) -> None:
    monkeypatch.setattr(limits, "PATTERN_SCAN_MESSAGES_MAX", 4)
    monkeypatch.setattr(limits, "SELECTOR_SCAN_MESSAGES_MAX", 4)
    manager = make_manager()
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager, stream=is_stream)
    receiver = Receiver(manager=manager, queue=queue, **wanted)
    send(manager, *["eu/1"] * 10, "us/1")
    become_durable(manager)
    receiver.allow(5, drain=True)
    while manager.consumption.take_step(NOW_MS):
        pass
    assert (receiver.offsets, receiver.dried) == ([10], [4])


def test_a_drain_ends_with_the_credit() -> None:
    receiver = Receiver()
    publish(receiver.manager, 3)
    receiver.allow(2, drain=True)
    assert (receiver.offsets, receiver.dried) == ([0, 1], [0])


def test_a_drain_of_a_paused_consumer_waits_for_it() -> None:
    receiver = Receiver()
    publish(receiver.manager, 1)
    receiver.consumer.pause()
    receiver.allow(2, drain=True)
    assert not receiver.dried
    receiver.consumer.resume()
    receiver.credit.drain()
    receiver.manager.dispatch(NOW_MS)
    assert (receiver.offsets, receiver.dried) == ([0], [1])


def test_a_drain_gives_nothing_past_a_single_active_consumer() -> None:
    manager = make_manager()
    queue = make_queue(manager, single_active=True)
    Receiver(manager=manager, queue=queue)
    second = Receiver(manager=manager, queue=queue)
    publish(manager, 1)
    second.allow(2, drain=True)
    assert (second.offsets, second.dried) == ([], [2])


def test_what_is_released_is_no_attempt() -> None:
    receiver = Receiver()
    publish(receiver.manager, 2)
    receiver.allow(2)
    held = list(receiver.claims)
    receiver.manager.consumption.release(held, NOW_MS)
    receiver.allow(2)
    assert receiver.offsets == [0, 1, 0, 1]
    assert [claim.attempts for claim in receiver.claims[2:]] == [1, 1]
    assert receiver.manager.consumption.release(held, NOW_MS) == 2
