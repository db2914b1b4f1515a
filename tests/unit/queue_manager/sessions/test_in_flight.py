"""What is in flight to a session's client stays so whatever becomes of the filter that brought it."""

import pytest

from queue_manager.sessions.session_subscription import SubscriptionOptions
from storage.envelope import EnvelopeTemplate
from storage.records import NEVER_S, filter_log, filter_log_entry, session_subscription
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, load, open_shard, run

TEMPLATE = EnvelopeTemplate("a", persistent=True)


def options(qos, identifier=0, no_local=False):
    return SubscriptionOptions(qos, no_local, False, 0, identifier, b"")


class Taker:
    """A link that takes so many messages and acknowledges nothing by itself."""

    def __init__(self, session, room):
        self.session = session
        self.room_left = room
        self.packet_id = max(session.unfinished.packet_ids(), default=100)
        self.got = []
        self.released = []
        self.forgotten = []
        self.queued_when_told = None

    def room(self):
        return self.room_left

    def take_packet_id(self):
        self.packet_id += 1
        return self.packet_id

    def deliver(self, deliveries):
        self.got += deliveries
        self.room_left -= len(deliveries)

    def release(self, packet_ids):
        self.released += packet_ids

    def forget(self, packet_ids):
        self.forgotten += packet_ids
        self.queued_when_told = self.session.queued

    def seen(self):
        return [(d.merged.message.body, d.qos, d.packet_id, d.is_repeated) for d in self.got]


class Broker:
    def __init__(self):
        self.clock = FakeClock()
        self.store = MemoryStore()
        self._open()

    def _open(self):
        self.shard = open_shard(self.store, self.clock)
        self.sessions = self.shard.manager.sessions.of("/")

    def attach(self, name="c", room=100):
        session = self.sessions.find(name, self.clock.ms) or self.sessions.begin(name, "", NEVER_S)
        taker = Taker(session, room)
        session.attach(taker)
        self.settle()
        return taker

    def reattach(self, taker, room=100):
        self.sessions.leave(taker.session, self.clock.ms)
        self.settle()
        return self.attach(taker.session.client_id, room)

    def subscribe(self, taker, topic_filter, qos, identifier=0):
        self.sessions.subscribe(taker.session, topic_filter, options(qos, identifier), is_logged=qos > 0)
        self.settle()

    def publish(self, *bodies, qos=1):
        logs = list(self.sessions.logs)
        if logs:
            self.sessions.logs.publish(logs, TEMPLATE, qos, False, None, list(bodies), 0)
        self.settle()

    def settle(self):
        for _ in range(100):
            self.shard.manager.dispatch(self.clock.ms)
            if not run(self.shard.commit_once(everything=True)) and not load(self.shard):
                return

    def restart(self):
        self.store = self.store.crash()
        self._open()
        self.settle()

    def rows(self, record):
        return [key for key in self.store._rows if key.startswith(record.prefix())]


@pytest.fixture
def broker():
    return Broker()


def end(broker, taker, way):
    """Have the filter `a` keep nothing more."""
    if way == "unsubscribed":
        taker.session.remove(taker.session.subscriptions["a"])
        broker.settle()
    else:
        broker.subscribe(taker, "a", 0)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("way", ["unsubscribed", "again with QoS 0"])
def test_what_is_in_flight_is_sent_again_after_its_filter_keeps_nothing_more(broker, way, qos, is_restarted):
    taker = broker.attach(room=2)
    broker.subscribe(taker, "a", qos, identifier=7)
    broker.publish(b"1", b"2", b"3", qos=qos)
    sent = taker.seen()
    assert [body for body, *_ in sent] == [b"1", b"2"]
    end(broker, taker, way)
    if is_restarted:
        broker.restart()
        taker = broker.attach()
    else:
        taker = broker.reattach(taker)
    assert taker.seen()[:2] == [(body, qos, packet_id, True) for body, qos, packet_id, _ in sent]
    assert [d.identifiers for d in taker.got[:2]] == [[7], [7]]
    assert [body for body, *_ in taker.seen()[2:]] == ([] if way == "unsubscribed" else [b"3"])
    assert taker.forgotten == taker.released == []


def test_nothing_is_left_of_a_filter_once_what_it_had_in_flight_is_finished(broker):
    taker = broker.attach(room=2)
    broker.subscribe(taker, "a", 1)
    broker.publish(b"1", b"2", b"3")
    end(broker, taker, "unsubscribed")
    assert list(broker.sessions.logs) == []
    taker.session.acknowledge([d.packet_id for d in taker.got[:1]], 0)
    broker.settle()
    assert broker.rows(filter_log)
    taker.session.acknowledge([d.packet_id for d in taker.got[1:]], 0)
    broker.settle()
    for record in (filter_log, filter_log_entry, session_subscription):
        assert broker.rows(record) == []


def test_what_waited_behind_an_ended_filter_takes_no_room_any_more(broker):
    taker = broker.attach(room=1)
    broker.subscribe(taker, "a", 1)
    for number in range(200):
        broker.publish(b"%d" % number)
    assert len(broker.rows(filter_log_entry)) == 200
    end(broker, taker, "unsubscribed")
    assert len(broker.rows(filter_log_entry)) == 1
    assert taker.session.queued == (0, 0)
    assert broker.sessions.totals().messages == 0
    assert [d.merged.message.body for d in broker.reattach(taker).got] == [b"0"]


def test_a_filter_that_is_subscribed_to_again_goes_on_beside_what_was_in_flight(broker):
    taker = broker.attach()
    broker.subscribe(taker, "a", 1, identifier=1)
    broker.publish(b"1")
    end(broker, taker, "unsubscribed")
    broker.publish(b"nobody's")
    broker.subscribe(taker, "a", 1, identifier=2)
    broker.publish(b"2")
    assert [body for body, *_ in taker.seen()] == [b"1", b"2"]
    end(broker, taker, "again with QoS 0")
    broker.restart()
    taker = broker.attach()
    assert [(d.merged.message.body, d.is_repeated, d.identifiers) for d in taker.got] == [
        (b"1", True, [1]),
        (b"2", True, [2]),
    ]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
def test_what_waits_is_not_lost_as_its_filter_is_subscribed_to_again_with_qos_0(
    broker, is_shared, is_restarted
):
    """Section 3.8.4: no application messages may be lost as a subscription is replaced."""
    taker = broker.attach(room=1)
    broker.subscribe(taker, "a", 1)
    if is_shared:
        broker.subscribe(broker.attach("other", room=0), "a", 1)
    broker.publish(b"1", b"2")
    broker.publish(b"3")
    end(broker, taker, "again with QoS 0")
    broker.publish(b"4")
    assert taker.session.queued == (2, 2)
    if is_restarted:
        broker.restart()
        taker = broker.attach()
    else:
        taker.room_left = 10
        taker.session.wake()
        broker.settle()
    assert [body for body, *_ in taker.seen()] == [b"1", b"2", b"3"]
    assert taker.session.queued == (0, 0)
    taker.session.acknowledge([d.packet_id for d in taker.got], 0)
    broker.settle()
    assert len(broker.rows(session_subscription)) == 1 + is_shared
    if not is_shared:
        assert broker.rows(filter_log) == broker.rows(filter_log_entry) == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_filter_of_qos_0_adds_its_identifier_to_what_is_published_after_it_was_subscribed_to(
    broker, is_restarted
):
    taker = broker.attach(room=1)
    broker.subscribe(taker, "+", 1, identifier=1)
    broker.publish(b"1", b"2")
    broker.subscribe(taker, "a", 0, identifier=2)
    broker.publish(b"3")
    if is_restarted:
        broker.restart()
        taker = broker.attach()
    else:
        taker = broker.reattach(taker)
    assert [d.identifiers for d in taker.got] == [[1], [1], [1, 2]]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_other_sessions_and_filters_go_on(broker, is_restarted):
    """The filter's log stays for others, and brings who unsubscribed nothing new."""
    taker, other = broker.attach(), broker.attach("other", room=0)
    for each in (taker, other):
        broker.subscribe(each, "a", 1, identifier=1)
    broker.publish(b"1")
    end(broker, taker, "unsubscribed")
    broker.subscribe(taker, "+", 1, identifier=2)
    broker.publish(b"2")
    if is_restarted:
        broker.restart()
        taker, other = broker.attach(), broker.attach("other")
    else:
        taker, other = broker.reattach(taker), broker.reattach(other)
    assert [(d.merged.message.body, d.identifiers) for d in taker.got] == [(b"1", [1]), (b"2", [2])]
    assert [d.merged.message.body for d in other.got] == [b"1", b"2"]
    broker.publish(b"3")
    assert [d.merged.message.body for d in taker.got] == [b"1", b"2", b"3"]
    for each in (taker, other):
        each.session.acknowledge([d.packet_id for d in each.got], 0)
    broker.settle()
    assert broker.rows(filter_log_entry) == []


def test_what_is_sent_again_slowly_is_not_cut_off_by_an_unsubscribe(broker):
    taker = broker.attach()
    broker.subscribe(taker, "a", 1)
    broker.publish(b"1", b"2", b"3")
    taker = broker.reattach(taker, room=1)
    end(broker, taker, "unsubscribed")
    taker.room_left = 5
    taker.session.wake()
    broker.settle()
    assert [(body, is_repeated) for body, _, _, is_repeated in taker.seen()] == [
        (b"1", True),
        (b"2", True),
        (b"3", True),
    ]


def test_a_session_that_ends_leaves_nothing_of_ended_filters(broker):
    taker = broker.attach()
    broker.subscribe(taker, "a", 1)
    broker.publish(b"1")
    end(broker, taker, "unsubscribed")
    broker.sessions.end(taker.session, 0)
    broker.settle()
    for record in (filter_log, filter_log_entry, session_subscription):
        assert broker.rows(record) == []


def test_client_is_told_of_room_that_what_it_does_not_want_had_taken(broker):
    """Else what it waits for beside its session, from a `$share` group, would wait on."""
    taker = broker.attach()
    broker.sessions.subscribe(taker.session, "a", options(1, no_local=True), is_logged=True)
    broker.settle()
    logs = list(broker.sessions.logs)
    broker.sessions.logs.publish(logs, TEMPLATE, 1, False, taker.session, [b"1", b"2"], 0)
    broker.settle()
    assert taker.got == []
    assert taker.queued_when_told == (0, 0)


def test_client_is_told_of_room_that_a_message_of_two_filters_had_taken(broker):
    """It waits for each of them, and is given once."""
    taker = broker.attach()
    for topic_filter in ("a", "+"):
        broker.sessions.subscribe(taker.session, topic_filter, options(1), is_logged=True)
    broker.settle()
    broker.sessions.logs.publish(list(broker.sessions.logs), TEMPLATE, 1, False, None, [b"1"], 0)
    broker.settle()
    assert len(taker.got) == 1
    assert taker.queued_when_told == (0, 0)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("no_local", [False, True])
def test_no_local_counts_for_what_is_published_while_it_is_asked_for(broker, no_local, is_restarted):
    """Section 3.8.4: no application messages may be lost as a subscription is replaced."""
    taker = broker.attach(room=0)
    for number in range(3):
        each = options(1, no_local=no_local if number != 1 else not no_local)
        broker.sessions.subscribe(taker.session, "a", each, is_logged=True)
        logs = list(broker.sessions.logs)
        broker.sessions.logs.publish(logs, TEMPLATE, 1, False, taker.session, [b"%d" % number], 0)
        broker.settle()
    if is_restarted:
        broker.restart()
        taker = broker.attach()
    else:
        taker = broker.reattach(taker)
    assert [body for body, *_ in taker.seen()] == ([b"1"] if no_local else [b"0", b"2"])
    taker.session.acknowledge([d.packet_id for d in taker.got], 0)
    broker.settle()
    assert len(broker.rows(session_subscription)) == 1
    assert broker.rows(filter_log_entry) == []
