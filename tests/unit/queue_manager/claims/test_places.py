"""queue_manager.claims.places: consumers, a session and other messages of a client within one window."""

from __future__ import annotations

import pytest

from broker.mqtt.settling.window import OutboundWindow
from queue_manager.claims.claim import UNLIMITED, Claim, Consumer
from queue_manager.claims.places import Places
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue, publish


class Device:
    """A client with a window: what it is sent, in order, as (by whom, packet identifier)."""

    def __init__(self, receive_maximum: int, *, has_session: bool = False) -> None:
        self.manager: QueueManager = make_manager()
        self.window = OutboundWindow(receive_maximum)
        self.waiting = 0
        self.waiting_in_session = 0
        session = DeviceSession(self) if has_session else None
        self.places = Places(self.manager.context, self.window, self.fill, session)
        self.sent: list[tuple[str, int]] = []
        self.claims: dict[int, Claim] = {}

    def consume(
        self, name: str, count: int, *, credit_max: int = UNLIMITED, **policy: str
    ) -> tuple[Queue, Consumer]:
        queue = make_queue(self.manager, name, **policy)
        sink = DeviceSink(self, name)
        options = {"no_ack": False, "exclusive": False, "lease_ms": 30_000, "pool": self.places}
        consumer = self.manager.consumption.subscribe(
            queue, "", "#", sink, consumer_id=name, credit_max=credit_max, **options
        )
        if count:
            publish(self.manager, count, f"$queue/{name}/k")
        return queue, consumer

    def take(self, by: str) -> int:
        packet_id = self.window.take_one()
        self.sent.append((by, packet_id))
        return packet_id

    def fill(self) -> None:
        while self.waiting and self.window.free() > 0:
            self.waiting -= 1
            self.take("topic")

    def dispatch(self) -> None:
        before = len(self.sent)
        self.manager.dispatch(NOW_MS)
        assert len(self.sent) == before or self.window.free() >= 0

    def acknowledge(self, *packet_ids: int) -> None:
        """As a front-end does."""
        self.window.release(list(packet_ids))
        self.places.freed()
        claims = [self.claims.pop(packet_id) for packet_id in packet_ids if packet_id in self.claims]
        self.manager.ack(claims, NOW_MS)

    def senders(self) -> list[str]:
        return [by for by, _ in self.sent]

    def go_on(self, turns: int) -> list[str]:
        """Acknowledge what was sent first, again and again; give who sent meanwhile."""
        before = len(self.sent)
        for _ in range(turns):
            self.acknowledge(min(self.window.in_use, key=lambda packet_id: self._place_of(packet_id)))
            self.dispatch()
        return self.senders()[before:]

    def _place_of(self, packet_id: int) -> int:
        return max(place for place, (_, sent) in enumerate(self.sent) if sent == packet_id)


class DeviceSink:
    """What a queue sends a device."""

    def __init__(self, device: Device, name: str) -> None:
        self._device = device
        self._name = name

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        assert claims is not None
        for claim in claims:
            self._device.claims[self._device.take(self._name)] = claim
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


class DeviceSession:
    """What a session sends a device."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def dispatch(self, now_ms: int) -> None:
        device = self._device
        while device.waiting_in_session and device.window.room() > 0:
            device.waiting_in_session -= 1
            device.take("session")


def test_no_more_is_claimed_than_there_are_places_besides_what_topics_have() -> None:
    device = Device(3)
    device.take("topic")
    device.take("topic")
    queue, consumer = device.consume("jobs", 5)
    device.dispatch()
    assert device.senders() == ["topic", "topic", "jobs"]
    assert consumer.held_count == 1
    assert queue.groups.find("").ready_count() == 4


def test_places_that_topics_leave_are_a_queues_with_one_dispatch() -> None:
    device = Device(3)
    topics = [device.take("topic") for _ in range(3)]
    device.consume("jobs", 5)
    device.dispatch()
    assert not device.claims
    device.acknowledge(*topics)
    device.dispatch()
    assert device.senders()[3:] == ["jobs"] * 3


def test_a_claim_that_ends_otherwise_keeps_its_place_until_the_client_acknowledges_it() -> None:
    device = Device(1)
    _, consumer = device.consume("jobs", 2, credit_max=1)
    device.dispatch()
    claim = device.claims.pop(1)
    device.manager.reject([claim], NOW_MS)
    device.dispatch()
    assert consumer.held_count == 0
    assert device.senders() == ["jobs"]
    device.acknowledge(1)
    device.dispatch()
    assert device.senders() == ["jobs", "jobs"]


def test_a_window_with_more_in_use_than_the_client_allows_gives_nothing() -> None:
    device = Device(1)
    device.window.occupy([1, 2, 3], [1, 2])
    device.consume("jobs", 1)
    device.dispatch()
    device.acknowledge(1, 2)
    device.dispatch()
    assert not device.sent
    device.acknowledge(3)
    device.dispatch()
    assert device.senders() == ["jobs"]


@pytest.mark.parametrize("policy", [{}, {"message_groups": "sticky"}], ids=["in order", "by key"])
def test_queues_topics_and_a_session_take_turns(policy: dict[str, str]) -> None:
    device = Device(1, has_session=True)
    device.waiting = device.waiting_in_session = 30
    device.fill()
    for name in ("one", "two", "three"):
        device.consume(name, 30, **policy)
    device.dispatch()
    served = device.go_on(24)
    assert [served.count(name) for name in ("one", "two", "three", "topic")] == [6] * 4
    device.waiting = 0
    served = device.go_on(24)
    assert [served.count(name) for name in ("one", "two", "three", "session")] == [6] * 4


def test_who_gets_something_to_send_in_the_same_turn_is_not_always_first() -> None:
    device = Device(1)
    device.consume("one", 30)
    device.consume("two", 30)
    device.dispatch()
    for _ in range(12):
        publish(device.manager, 1, "$queue/one/k")
        device.acknowledge(device.sent[-1][1])
        publish(device.manager, 1, "$queue/one/k")
        device.waiting += 1
        device.fill()  # as a topic that is published to
        device.dispatch()
    assert [device.senders()[1:].count(name) for name in ("one", "two", "topic")] == [4, 4, 4]


def test_what_nobody_wants_of_places_is_there_for_all_others() -> None:
    device = Device(4)
    device.waiting = 7
    device.fill()
    device.consume("one", 1)
    device.consume("two", 0)
    device.dispatch()
    device.acknowledge(1, 2, 3, 4)
    device.dispatch()
    assert sorted(device.senders()[4:]) == ["one", "topic", "topic", "topic"]


def test_messages_that_wait_go_out_at_once_where_no_queue_lacks_places() -> None:
    device = Device(2)
    device.consume("jobs", 0)
    device.waiting = 3
    device.fill()
    device.acknowledge(1)
    assert len(device.sent) == 3
    assert device.window.free() == 0


def test_what_a_sink_had_no_place_for_goes_back_and_was_no_attempt() -> None:
    device = Device(2)
    queue, consumer = device.consume("jobs", 3)
    device.dispatch()
    device.manager.consumption.unclaim([device.claims.pop(2)], NOW_MS)
    assert consumer.held_count == 1
    group = queue.groups.find("")
    assert group.ready_count() == 2
    assert group.redelivered_count() == 0
    device.acknowledge(1, 2)
    device.dispatch()
    assert [(claim.message.offset, claim.attempts) for claim in device.claims.values()] == [(1, 1), (2, 1)]


def test_consumers_of_a_queue_that_is_deleted_leave_the_window() -> None:
    device = Device(2)
    queue, _ = device.consume("jobs", 3)
    device.dispatch()
    device.acknowledge(1)
    device.manager.queues.delete(queue, NOW_MS)
    assert not device.places.consumers
    device.waiting = 1
    device.dispatch()
    assert device.senders()[2:] == ["topic"]
