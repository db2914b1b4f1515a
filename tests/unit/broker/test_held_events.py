"""broker.amqp.connection.held_events: what waits on a channel goes on in order, behind what it waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.held_events import HeldEvents, Resumption
from broker.engine.answers import Answer
from queue_manager.errors import QueueNotFound

DECLARE = 50 << 16 | 10


class Channel:
    """A channel that notes what is handled, and whether anything is read from the client."""

    def __init__(self) -> None:
        self.handled: list[Any] = []
        self.sent: list[Any] = []
        self.waiters: list[Any] = []
        self.hold_count = 0
        hub = SimpleNamespace(
            settle_turn=lambda: None,
            client=SimpleNamespace(
                commits=SimpleNamespace(wait=lambda waiter, token: self.waiters.append(waiter))
            ),
        )
        transport = SimpleNamespace(
            reading=SimpleNamespace(hold=self.hold, release=self.release),
            want_flush=lambda: None,
            guard=lambda call, *arguments: call(*arguments),
        )
        connection = SimpleNamespace(send_method=lambda number, method: self.sent.append(method))
        client: Any = SimpleNamespace(hub=hub, transport=transport, connection=connection)
        self.channel = AmqpChannel(client, 1)
        self.held = HeldEvents(self.channel, self.handle)

    def hold(self) -> None:
        self.hold_count += 1

    def release(self) -> None:
        self.hold_count -= 1

    def handle(self, event: Any) -> None:
        if self.held.is_holding:
            self.held.add(event)
        elif type(event) is Resumption:
            event.act()
        elif callable(event):
            event()
        else:
            self.handled.append(event)


@pytest.fixture
def channel() -> Channel:
    return Channel()


def test_events_that_come_while_one_waits_follow_it_in_order(channel: Channel) -> None:
    channel.held.hold_with("first")
    channel.handle("second")
    assert (channel.handled, channel.hold_count) == ([], 1)
    channel.held.release()
    assert (channel.handled, channel.hold_count) == (["first", "second"], 0)


def test_answer_that_is_there_is_acted_on_at_once(channel: Channel) -> None:
    channel.held.expect(
        Answer.given("queue"), lambda answer: channel.handled.append(answer.result()), DECLARE
    )
    assert (channel.handled, channel.held.is_holding) == (["queue"], False)


def test_late_answer_is_acted_on_before_what_came_meanwhile(channel: Channel) -> None:
    answer: Answer[str] = Answer()
    channel.held.expect(answer, lambda answer: channel.handled.append(answer.result()), DECLARE)
    channel.handle("next")
    assert channel.handled == []
    answer.resolve("queue")
    assert (channel.handled, channel.hold_count) == (["queue", "next"], 0)


def test_client_is_read_from_while_an_answer_is_waited_for_and_nothing_waits_behind_it(
    channel: Channel,
) -> None:
    answer: Answer[str] = Answer()
    channel.held.expect(answer, lambda answer: channel.handled.append(answer.result()), DECLARE)
    assert channel.hold_count == 0
    channel.handle("next")
    channel.handle("third")
    assert channel.hold_count == 1
    answer.resolve("queue")
    assert (channel.handled, channel.hold_count) == (["queue", "next", "third"], 0)


def test_error_of_late_answer_is_raised_while_its_method_is_handled(channel: Channel) -> None:
    answer: Answer[str] = Answer()
    channel.held.expect(answer, lambda answer: channel.handled.append(answer.result()), DECLARE)
    seen: list[Any] = []
    channel.held._handle = seen.append
    answer.fail(QueueNotFound("no queue"))
    [resumption] = seen
    assert resumption.index == DECLARE
    with pytest.raises(QueueNotFound):
        resumption.act()


def test_part_of_a_run_that_is_put_back_comes_behind_the_answer_it_waits_for(channel: Channel) -> None:
    answer: Answer[str] = Answer()
    channel.held.expect(answer, lambda answer: channel.handled.append(answer.result()), DECLARE)
    channel.handle("next")
    channel.held.put_back("rest of the run")
    answer.resolve("answer")
    assert channel.handled == ["answer", "rest of the run", "next"]


def test_what_is_released_may_wait_again(channel: Channel) -> None:
    answer: Answer[str] = Answer()

    def reply(answer: Answer[str]) -> None:
        channel.held.reply_when_durable(answer.result(), DECLARE)

    channel.held.expect(answer, reply, DECLARE)
    channel.handle("next")
    answer.resolve("declare-ok")
    assert (channel.handled, channel.sent, channel.hold_count) == ([], [], 1)
    channel.waiters[0].committed([0])
    assert (channel.handled, channel.sent, channel.hold_count) == (["next"], ["declare-ok"], 0)


def test_event_that_holds_keeps_back_those_behind_it(channel: Channel) -> None:
    channel.held.hold_with(channel.held.hold)
    channel.handle("behind")
    channel.held.release()
    assert (channel.handled, channel.hold_count) == ([], 1)
    channel.held.release()
    assert channel.handled == ["behind"]


def test_answer_that_comes_after_the_channel_closed_does_nothing(channel: Channel) -> None:
    answer: Answer[str] = Answer()
    channel.held.expect(answer, lambda answer: channel.handled.append(answer.result()), DECLARE)
    channel.channel.close()
    assert list(channel.held.end()) == []
    answer.resolve("queue")
    assert (channel.handled, channel.hold_count) == ([], 0)


def test_client_that_caught_up_releases_only_what_waited_for_it(channel: Channel) -> None:
    channel.held.hold_with("declared")
    channel.held.caught_up()
    assert channel.handled == []
    channel.held.release()
    channel.held.hold_until_read("get")
    channel.held.caught_up()
    assert channel.handled == ["declared", "get"]
