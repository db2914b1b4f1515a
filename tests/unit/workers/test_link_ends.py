"""The two ends of a link: how they greet, and what becomes of what cannot be said or read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.engine.answers import Answer
from broker.engine.shard_ending import WorkerLost
from broker.workers import asking_link, link_codec, serving_link
from broker.workers import link_frames as f
from broker.workers.asking_link import Link
from broker.workers.link_codec import Codec, NotCarried, Unreadable
from broker.workers.link_greeting import LINK_VERSION, Greeting, LinkRefused, agreed, heard
from broker.workers.link_values import CARRIED, CODEC, ERRORS
from broker.workers.remote_consumers import RemoteGroup
from broker.workers.serving_link import LinkSink, Served, Service
from broker.workers.waits import Entry, Gate, Part
from config import limits
from queue_manager.model import Message
from queue_manager.options import PublishOptions
from queue_manager.outcomes import REFUSED_LOST
from queue_manager.routing.plan import PublishPlan
from storage.envelope import EnvelopeTemplate
from storage.errors import CorruptRecord


class Pipe:
    """One direction of a connection, as the transport of the end that writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.own: Any = None
        self.other: Any = None
        self.back: Pipe
        self.is_over = self.is_paused = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        if not self.is_over:
            self._loop.call_soon(self.other.data_received, data)

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.is_over:
            self.is_over = self.back.is_over = True
            self._loop.call_soon(self.own.connection_lost, None)
            self._loop.call_soon(self.other.connection_lost, None)

    abort = close


class Queues:
    """A part that may be called."""

    def __init__(self) -> None:
        self.called: list[Any] = []
        self.result: Any = None

    def look(self, name: str, caller: str = "") -> Any:
        self.called.append(name)
        return self.result

    def secret(self) -> None:
        raise AssertionError("is no call")


class Ends:
    """A link with both ends in this process; beside others of one `service` if that is given."""

    def __init__(self, service: Service | None = None, has_lease: Callable[[], bool] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.queues = Queues()
        client = Mock()
        clock = Mock()
        clock.now_ms.return_value = 0
        self.service = service or Service(
            1, client, clock, {"queues": self.queues, "workers": Mock()}, Mock()
        )
        self.served = Served(loop, self.service)
        self.link = Link(loop, 1, has_lease=has_lease)
        there, back = Pipe(loop), Pipe(loop)
        there.own = back.other = self.link
        there.other = back.own = self.served
        there.back, back.back = back, there
        self.link.connection_made(there)
        self.served.connection_made(back)

    async def greet(self, own: Greeting | None = None) -> None:
        await self.link.greet(own or Greeting(0, CODEC.table))


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def greeted() -> Ends:
    ends = Ends()
    await ends.greet()
    return ends


# greetings


@pytest.mark.parametrize("epochs", [(4, 5), (5, 4)])
async def test_of_two_links_of_one_shard_that_of_the_later_owner_stays(epochs: tuple[int, int]):
    first = Ends()
    ends = {epochs[0]: first, epochs[1]: Ends(first.service)}
    other = Ends(first.service)
    await other.greet(Greeting(2, CODEC.table, 1))
    for epoch in epochs:
        with suppress(LinkRefused, WorkerLost):
            await ends[epoch].greet(Greeting(3, CODEC.table, epoch))
    await turns()
    assert [ends[4].link.is_up, ends[5].link.is_up, other.link.is_up] == [False, True, True]


def test_ends_speak_the_older_of_two_versions_that_are_one_apart():
    own, newer = Greeting(0, {}, 0, 5, 4), Greeting(1, {}, 0, 6, 5)
    assert agreed(own, own) == 5
    assert agreed(own, newer) == agreed(newer, own) == 5


def test_ends_two_versions_apart_refuse_with_both_releases_in_the_reason():
    own, newer = Greeting(0, {}, 0, 5, 4, "1.5.0"), Greeting(1, {}, 0, 7, 6, "1.7.0")
    for one, other in ((own, newer), (newer, own)):
        with pytest.raises(LinkRefused, match=r"\(1\.[57]\.0\) are of version [57], .*may be one apart"):
            agreed(one, other)


@pytest.mark.parametrize(
    "told",
    [
        None,
        1,
        {},
        {"table": []},
        Greeting(0, {}).told() | {"worker": -1},
        Greeting(0, {}).told() | {"table": {"a": 1}},
    ],
)
def test_greeting_that_is_none_is_unreadable(told):
    with pytest.raises(Unreadable):
        heard(told)


def test_greeting_may_have_more_in_it():
    greeting = Greeting(3, {"a": ["b"]})
    assert heard(greeting.told() | {"more": 1}) == greeting


@pytest.mark.parametrize("version", [LINK_VERSION, LINK_VERSION + 1])
async def test_link_with_the_next_release_speaks_the_version_of_this_one(version):
    ends = Ends()
    await ends.greet(Greeting(0, CODEC.table, 0, version, version - 1, "9.9"))
    assert ends.link.version == ends.served.version == LINK_VERSION
    assert ends.served.number == 0


async def test_link_with_a_release_further_away_is_refused_and_both_ends_say_why():
    ends = Ends()
    with capture_logs() as logged:
        with pytest.raises(LinkRefused, match="may be one apart"):
            await ends.greet(Greeting(0, CODEC.table, 0, LINK_VERSION + 2, LINK_VERSION + 1, "9.9"))
        await turns()
    refused = [line for line in logged if line["event"] == "worker.link_refused"]
    assert [line["worker"] for line in refused] == [0, 1]
    assert refused[0]["reason"] == refused[1]["reason"]
    assert "9.9" in refused[0]["reason"]
    assert ends.link.is_refused
    assert not ends.link.is_up
    assert not ends.served.is_up


async def test_nothing_is_called_before_a_greeting():
    ends = Ends()
    with capture_logs() as logged:
        ends.link.send(CODEC.frame(f.CALL, 1, "queues", "look", ["q"], {}))
        await turns()
    assert ends.queues.called == []
    assert [line["reason"] for line in logged] == ["no greeting comes first"]
    assert not ends.served.is_up


async def test_frame_before_the_greeting_is_small():
    ends = Ends()
    with capture_logs() as logged:
        ends.link.send(CODEC.frame(f.HELLO, b"x" * limits.LINK_HELLO_BYTES_MAX))
        await turns()
    assert "at most 65536" in logged[0]["reason"]


async def test_greeting_that_is_not_answered_fails_with_the_link():
    ends = Ends()
    answer = ends.link.greet(Greeting(0, CODEC.table))
    ends.served.transport.close()
    with pytest.raises(WorkerLost):
        await answer


# what cannot be said


class Stray:
    """Of no declared type."""


async def test_argument_that_does_not_go_is_an_error_of_its_call_alone():
    ends = await greeted()
    with (
        capture_logs() as logged,
        pytest.raises(NotCarried, match="of type Stray cannot go to another worker"),
    ):
        await ends.link.call("queues", "look", Stray())
    assert [line["event"] for line in logged] == ["worker.not_carried"]
    ends.queues.result = 3
    assert await ends.link.call("queues", "look", "q") == 3


async def test_result_that_does_not_go_is_an_error_of_its_call_alone():
    ends = await greeted()
    ends.queues.result = Stray()
    with (
        capture_logs() as logged,
        pytest.raises(NotCarried, match="of type Stray cannot go to another worker"),
    ):
        await ends.link.call("queues", "look", "q")
    assert [line["event"] for line in logged] == ["worker.not_carried"]
    ends.queues.result = 3
    assert await ends.link.call("queues", "look", "q") == 3


async def test_consumer_and_publishes_that_do_not_go_leave_the_link_up():
    ends = await greeted()
    consumer = Mock()
    with pytest.raises(NotCarried):
        await ends.link.subscribe(consumer, f.SUBSCRIBE, "q", "", "#", {"wanted": Stray()})
    assert ends.link.consumers == {}
    with pytest.raises(NotCarried):
        await ends.link.publish_all([Stray()])
    plan = PublishPlan("a", 0, b"", True, replace(PublishOptions(), stage=Stray()))
    for _ in range(2):  # it is not taken for one that was told
        with pytest.raises(NotCarried):
            ends.link.publish(plan, ["q"], [b"x"], None)
    assert ends.link.sent_count == 0
    await turns()
    assert ends.link.is_up


async def test_storage_errors_come_with_their_fields():
    ends = await greeted()
    ends.queues.result = Answer.failed(CorruptRecord("payload", "size"))
    with pytest.raises(CorruptRecord) as caught:
        await ends.link.call("queues", "look", "q")
    assert (caught.value.record_type, caught.value.field) == ("payload", "size")


@pytest.mark.parametrize(("part", "method"), [("queues", "secret"), ("queues", "__init__"), ("none", "look")])
async def test_call_that_is_none_is_an_error_of_itself_alone(part, method):
    ends = await greeted()
    with pytest.raises(NotCarried, match=f"no call {part}.{method}"):
        await ends.link.call(part, method)
    assert await ends.link.call("queues", "look", "q") is None


async def test_part_that_is_not_served_yet_is_as_a_worker_that_is_not_there():
    ends = await greeted()
    with pytest.raises(WorkerLost, match="has no part node yet"):
        await ends.link.call("node", "own_use")


# what cannot be read


def with_one_more() -> Codec:
    return Codec([*CARRIED, link_codec.with_fields("Stray", Told, ("name",))], ERRORS)


class Told:
    """Of a type that only a newer release declares."""

    def __init__(self, name: str) -> None:
        self.name = name


async def test_argument_of_a_newer_release_is_an_error_of_its_call_alone(monkeypatch):
    newer = with_one_more()
    ends = Ends()
    await ends.greet(Greeting(0, newer.table))
    with monkeypatch.context() as patch:
        patch.setattr(asking_link, "CODEC", newer)
        asked = ends.link.call("queues", "look", Told("a"))
    with pytest.raises(NotCarried, match="does not know this: the type Stray"):
        await asked
    assert ends.queues.called == []
    assert ends.link.is_up


async def test_result_of_a_newer_release_is_an_error_of_its_call_alone(monkeypatch):
    newer = with_one_more()
    monkeypatch.setattr(serving_link, "CODEC", newer)
    ends = await greeted()
    ends.queues.result = Told("a")
    with pytest.raises(NotCarried, match="worker 1 said is not known here: the type Stray"):
        await ends.link.call("queues", "look", "q")
    assert ends.link.is_up


BROKEN = [
    f.HEAD.pack(0, f.CALL),
    f.HEAD.pack(4, f.CALL),
    f.CONSUMER_FRAME.pack(0, f.CONSUMER, 9, f.PAUSE, 0),
    f.HEAD.pack(0xFFFFFFFF, f.CALL),
    f.HEAD.pack(6, f.CALL) + b"\xc1",
    f.HEAD.pack(5, f.PUBLISH),
    f.HEAD.pack(6, 99) + b"\x90",
    f.PUBLISH_HEAD.pack(f.PUBLISH_HEAD.size, f.PUBLISH, 7, 1, 1),
    f.PUBLISH_HEAD.pack(f.PUBLISH_HEAD.size, f.PUBLISH, 7, 0xFFFFFFFF, 1),
    f.SETTLE_HEAD.pack(f.SETTLE_HEAD.size + f.RANGE.size, f.SETTLE, f.DONE, 0, -1, 0)
    + f.RANGE.pack(0, 0xFFFFFFFF),
    CODEC.frame(f.CALL, 1),
    CODEC.frame(f.CALL, 1, "queues", "look", ["q", "caller", "and one more"], {}),
    CODEC.frame(f.HELLO, Greeting(0, CODEC.table).told()),
]


@pytest.mark.parametrize("frame", BROKEN)
@pytest.mark.parametrize("is_at_once", [True, False])
async def test_what_cannot_be_read_ends_the_link_with_one_line(frame, is_at_once):
    ends = await greeted()
    waiting: Answer[Any] = Answer()
    ends.queues.result = waiting
    asked = ends.link.call("queues", "look", "q")
    await turns()
    before = len(ends.queues.called)
    with capture_logs() as logged:
        for part in [frame] if is_at_once else [bytes([octet]) for octet in frame]:
            ends.served.data_received(part)
        ends.served.data_received(CODEC.frame(f.CALL, 9, "queues", "look", ["q"], {}))
        await turns()
    assert [line["event"] for line in logged] == ["worker.link_broken"]
    assert not ends.served.is_up
    assert len(ends.queues.called) - before <= 1  # called, with what it does not take
    with pytest.raises(WorkerLost):
        await asked


async def test_what_the_served_end_says_and_cannot_be_read_ends_the_link_with_one_line():
    ends = await greeted()
    with capture_logs() as logged:
        ends.link.data_received(f.HEAD.pack(6, f.RESULT) + b"\xc1")
        await turns()
    assert [(line["event"], line["worker"]) for line in logged] == [("worker.link_broken", 1)]
    assert not ends.link.is_up


FRAMES = st.one_of(
    st.binary(max_size=60),
    st.tuples(st.integers(0, 32), st.binary(max_size=60)).map(
        lambda it: f.HEAD.pack(5 + len(it[1]), it[0]) + it[1]
    ),
    st.tuples(
        st.integers(0, 32),
        st.lists(
            st.none() | st.integers(0, 3) | st.text(max_size=3) | st.lists(st.integers(0, 3)), max_size=6
        ),
    ).map(lambda it: CODEC.frame(it[0], *it[1])),
)


@pytest.mark.parametrize("end", ["served", "link"])
@settings(max_examples=300, deadline=None)
@given(frames=st.lists(FRAMES, min_size=1, max_size=4))
def test_whatever_comes_nothing_is_raised_and_at_most_one_line_is_logged(end, frames):
    async def feed() -> list[Any]:
        ends = await greeted()
        with capture_logs() as logged:
            for frame in frames:
                getattr(ends, end).data_received(frame)
            await turns(3)
        return [line for line in logged if line["event"] == "worker.link_broken"]

    loop = asyncio.new_event_loop()
    raised: list[Any] = []
    loop.set_exception_handler(lambda _, context: raised.append(context))
    try:
        assert len(loop.run_until_complete(feed())) <= 1
        assert raised == []
    finally:
        loop.close()


# large deliveries


class Taken:
    """What a consumer was given."""

    def __init__(self) -> None:
        self.given: list[tuple[int, bytes]] = []
        self.link: Any = None
        self.ready = self.gap = self.committed = 0

    def give(self, messages: Any, claims: Any) -> None:
        numbers = [0] * len(messages) if claims is None else [claim.number for claim in claims]
        self.given += zip(numbers, [message.body for message in messages], strict=True)


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("has_claims", [True, False])
async def test_delivery_too_large_for_a_frame_goes_in_several(monkeypatch, attempts, has_claims):
    ends = await greeted()
    taken: Any = Taken()
    ends.link.consumers[4] = taken
    consuming: Any = ends.served.client.consuming
    consuming.failed_attempts.return_value = None
    sink = LinkSink(ends.served, 4)
    template = EnvelopeTemplate("t")
    bodies = [bytes([number]) * 200 for number in range(5)]
    messages = [Message(10 + n, 20 + n, body, template, 7) for n, body in enumerate(bodies)]
    claims = [Mock(attempts=attempts) for _ in messages] if has_claims else None
    monkeypatch.setattr(limits, "LINK_FRAME_BYTES_MAX", 600)
    ends.link._frame_bytes_max = 600
    assert sink.deliver(Mock(no_ack=not has_claims), messages, claims)
    await turns()
    assert taken.given == [(n + 1 if has_claims else 0, body) for n, body in enumerate(bodies)]


class Lease:
    """Of the node that has the asking end."""

    def __init__(self) -> None:
        self.lasts = True

    def __call__(self) -> bool:
        return self.lasts


async def test_what_comes_after_the_lease_ended_is_taken_in_order_once_that_is_renewed() -> None:
    lease = Lease()
    ends = Ends(has_lease=lease)
    await ends.greet()
    ends.queues.result = 1
    lease.lasts = False
    first, second = ends.link.call("queues", "look", "a"), ends.link.call("queues", "look", "b")
    await turns()
    third = ends.link.call("queues", "look", "c")
    await asyncio.sleep(3 * limits.LINK_LEASE_LOOK_MS / 1000)
    assert ends.queues.called == ["a", "b", "c"]
    assert not any(answer.is_done for answer in (first, second, third))
    lease.lasts = True
    assert [await answer for answer in (third, second, first)] == [1, 1, 1]
    assert await ends.link.call("queues", "look", "d") == 1


async def test_what_came_after_the_lease_ended_is_dropped_with_the_link() -> None:
    lease = Lease()
    ends = Ends(has_lease=lease)
    await ends.greet()
    lease.lasts = False
    answer = ends.link.call("queues", "look", "a")
    await turns()
    assert ends.link.transport is not None
    ends.link.transport.abort()
    await turns()
    lease.lasts = True
    with pytest.raises(WorkerLost):
        await answer
    await asyncio.sleep(2 * limits.LINK_LEASE_LOOK_MS / 1000)


async def test_other_end_is_read_no_more_while_too_much_waits_for_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LINK_OUTPUT_BYTES_HIGH", 1_000)
    lease = Lease()
    ends = Ends(has_lease=lease)
    await ends.greet()
    lease.lasts = False
    ends.queues.result = "x" * 2_000
    answer = ends.link.call("queues", "look", "a")
    await turns()
    pipe: Any = ends.link.transport
    assert pipe.is_paused
    lease.lasts = True
    assert await answer == "x" * 2_000
    assert not pipe.is_paused


# a link that is full


async def consumers_of(ends: Ends, count: int) -> list[Any]:
    """Consumers of another worker, as the core of this one has them."""
    made = [Mock(group=RemoteGroup("", "", "q", "", True)) for _ in range(count)]
    consuming: Any = ends.served.client.consuming
    consuming.subscribe.side_effect = made
    consuming.primary_group.return_value = ""
    consuming.find.return_value.durable = True
    options = {"is_activity_told": False, "has_link_credit": False}
    for _ in made:
        await ends.link.subscribe(Mock(), f.SUBSCRIBE, "q", "", "#", options)
    return made


async def test_consumers_wait_while_a_link_takes_no_more_and_who_was_paused_before_does_so_behind_it():
    ends = await greeted()
    consumer, paused = await consumers_of(ends, 2)
    ends.link.tell(2, f.PAUSE)
    await turns()
    ends.served.pause_writing()
    assert (consumer.pause.call_count, paused.pause.call_count) == (1, 2)
    ends.served.resume_writing()
    consumer.resume.assert_called_once_with()
    paused.resume.assert_not_called()
    consuming: Any = ends.served.client.consuming
    consuming.wake.assert_called_once_with(consumer)


async def test_consumer_that_comes_or_may_go_on_while_a_link_is_full_waits_for_it():
    ends = await greeted()
    (consumer,) = await consumers_of(ends, 1)
    ends.served.pause_writing()
    ends.link.tell(1, f.PAUSE)
    ends.link.tell(1, f.RESUME)
    (later,) = await consumers_of(ends, 1)
    await turns()
    later.pause.assert_called_once_with()
    consumer.resume.assert_not_called()
    ends.served.resume_writing()
    consumer.resume.assert_called_once_with()
    later.resume.assert_called_once_with()


# what comes too late


async def test_what_is_waited_for_of_a_link_that_is_gone_is_refused():
    ends = await greeted()
    ends.served.transport.close()
    await turns()
    waiter = Mock()
    gate = Gate(waiter, {})
    entry = Entry(gate, [7], -1)
    gate.entries.append(entry)
    ends.link.wait(Part(entry, 1, 1, (7,)))
    await turns()
    waiter.refused.assert_called_once_with((7,), REFUSED_LOST)
    waiter.committed.assert_called_once_with([7])


@pytest.mark.parametrize("attempts", [1, 2])
async def test_what_is_on_its_way_to_a_consumer_that_ended_returns_without_an_attempt(attempts):
    ends = await greeted()
    client: Any = ends.served.client
    client.consuming.failed_attempts.return_value = None
    template = EnvelopeTemplate("t")
    messages = [Message(10 + n, 20 + n, b"x", template, 7) for n in range(2)]
    claims: Any = [Mock(attempts=attempts) for _ in messages]
    assert LinkSink(ends.served, 4).deliver(Mock(no_ack=False), messages, claims)
    await turns()
    client.settling.unclaim.assert_called_once_with(claims, 0)
