"""Consumers that settle by being sent to: what their sink did not take is not settled."""

from typing import Any

import pytest

from queue_manager.claims.claim import DONE, IN_FLIGHT, UNLIMITED
from queue_manager.filters.consumer_filter import consumer_filter
from tests.unit.queue_manager.managers import NOW_MS, Sink, make_manager, make_queue, publish_durably

KINDS = {
    "classic": {},
    "ephemeral": {"durable": False},
    "stream": {"stream": True},
    "priorities": {"priority_max": 2},
    "ephemeral priorities": {"priority_max": 2, "durable": False},
    "message groups": {"message_groups": "sticky"},
    "ephemeral message groups": {"message_groups": "sticky", "durable": False},
    "filters": {},
    "ephemeral filters": {"durable": False},
}


class Broken(Exception):
    pass


class GoodSink(Sink):
    """Notes the state of each claim at its delivery."""

    def __init__(self):
        super().__init__()
        self.states = set()

    def deliver(self, consumer, messages, claims):
        self.states |= {claim.state for claim in claims or []}
        return super().deliver(consumer, messages, claims)


class RefusingSink(Sink):
    """Says that it could send nothing."""

    def deliver(self, consumer, messages, claims):
        return False


class RaisingSink(Sink):
    """Raises what nobody expects."""

    def deliver(self, consumer, messages, claims):
        raise Broken


class LeavingSink(Sink):
    """Its client goes while it is being sent to."""

    def __init__(self, manager):
        super().__init__()
        self.manager = manager

    def deliver(self, consumer, messages, claims):
        if consumer.active:
            self.manager.consumption.unsubscribe(consumer, NOW_MS)
        return False


class Side:
    """A queue of one kind, with a group `g`."""

    def __init__(self, kind):
        self.manager = make_manager()
        self.manager.queues.maker.find_group_keys_by(lambda template: ("one", False))
        self.manager.context.fields.read_by(lambda template: {"region": "eu"})
        self.queue = make_queue(self.manager, **KINDS[kind])
        self.options: dict[str, Any] = (
            {"wanted": consumer_filter("region = 'eu'", {})} if "filters" in kind else {}
        )
        self.subscribe = self.manager.consumption.subscribe
        if kind == "stream":
            self.subscribe = self.manager.consumption.subscribe_stream  # type: ignore[assignment]
            self.options = {"start": None, "auto_commit": True}

    def join(self, sink, *, no_ack):
        return self.subscribe(
            self.queue, "g", "#", sink, consumer_id="c", credit_max=UNLIMITED, no_ack=no_ack, exclusive=False,
            lease_ms=30_000, **self.options,
        )  # fmt: skip

    def dispatch(self):
        try:
            self.manager.dispatch(NOW_MS)
        except Broken:
            pass

    def return_three(self):
        """Publish three messages and have somebody bring them back."""
        holder = self.join(Sink(), no_ack=False)
        publish_durably(self.manager, 3)
        self.dispatch()
        assert len(holder.in_flight) == 3
        self.manager.consumption.unsubscribe(holder, NOW_MS)

    def assert_all_comes_back(self):
        """The next consumer is given three messages for the second time or later."""
        sink = Sink()
        consumer = self.join(sink, no_ack=False)
        self.manager.dispatch(NOW_MS)
        assert sink.offsets == [0, 1, 2]
        assert all(claim.attempts > 1 and claim.state == IN_FLIGHT for claim in sink.claims)
        assert self.manager.ack(sink.claims, NOW_MS) == 0
        assert consumer.bytes_in_flight == 0
        assert self.queue.groups.find("g").in_flight_count() == 0


@pytest.fixture(params=KINDS)
def side(request):
    return Side(request.param)


@pytest.mark.parametrize("make", [RefusingSink, RaisingSink])
def test_new_messages_that_were_not_taken_return_with_their_consumer(side, make):
    consumer = side.join(make(), no_ack=True)
    publish_durably(side.manager, 3)
    side.dispatch()
    assert len(consumer.in_flight) == 3
    side.manager.consumption.unsubscribe(consumer, NOW_MS)
    side.assert_all_comes_back()


@pytest.mark.parametrize("make", [RefusingSink, RaisingSink])
def test_returned_messages_that_were_not_taken_return_with_their_consumer(side, make):
    side.return_three()
    consumer = side.join(make(), no_ack=True)
    side.dispatch()
    assert len(consumer.in_flight) == 3
    side.manager.consumption.unsubscribe(consumer, NOW_MS)
    side.assert_all_comes_back()


@pytest.mark.parametrize("returned", [False, True])
def test_what_was_being_sent_to_one_who_left_returns(side, returned):
    if returned:
        side.return_three()
    consumer = side.join(LeavingSink(side.manager), no_ack=True)
    if not returned:
        publish_durably(side.manager, 3)
    side.dispatch()
    assert not consumer.in_flight
    side.assert_all_comes_back()


@pytest.mark.parametrize("returned", [False, True])
def test_what_was_taken_is_done_and_was_in_flight_until_then(side, returned):
    if returned:
        side.return_three()
    sink = GoodSink()
    consumer = side.join(sink, no_ack=True)
    if not returned:
        publish_durably(side.manager, 3)
    side.dispatch()
    assert sink.offsets == [0, 1, 2]
    assert sink.states <= {IN_FLIGHT}
    assert {claim.state for claim in sink.claims} <= {DONE}
    assert (len(consumer.in_flight), consumer.bytes_in_flight) == (0, 0)
    group = side.queue.groups.find("g")
    buckets = [bucket for cursor in group.cursors for bucket in cursor.claims.buckets.values()]
    assert all(bucket.open_count == 0 for bucket in buckets)
    side.manager.consumption.unsubscribe(consumer, NOW_MS)
    later = Sink()
    side.join(later, no_ack=False)
    side.dispatch()
    assert later.offsets == []


@pytest.mark.parametrize("make", [RefusingSink, RaisingSink])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stream"])
def test_a_pulled_message_that_was_not_taken_returns(kind, make):
    side = Side(kind)
    group = side.queue.group("g")
    puller = side.manager.consumption.puller(side.queue, make(), "p", lease_ms=30_000, group=group)
    publish_durably(side.manager, 3)
    for _ in range(3):
        try:
            side.manager.consumption.pull(puller, True, NOW_MS)
        except Broken:
            pass
    assert len(puller.in_flight) == 3
    side.manager.consumption.unsubscribe(puller, NOW_MS)
    side.assert_all_comes_back()
