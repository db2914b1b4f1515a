"""When it is written what a session's client has acknowledged: soon, also while ever more comes."""

import random

import pytest

from config import limits
from queue_manager.sessions.sent import Unfinished
from queue_manager.sessions.session import Delivery
from queue_manager.sessions.session_subscription import SubscriptionOptions
from storage.envelope import EnvelopeTemplate
from storage.records import NEVER_S, session_progress
from storage.records.special_codecs import RECEIVED_QOS_2
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, load, open_shard, run

TEMPLATE = EnvelopeTemplate("a", persistent=True)
OPTIONS = SubscriptionOptions(1, False, False, 0, 0, b"")
STEP_MS = 5


class Taker:
    """A link that takes everything, and acknowledges at once what `acknowledges` says."""

    def __init__(self, session, clock, *, acknowledges=True):
        self.session = session
        self.clock = clock
        self.acknowledges = acknowledges
        self.packet_id = 0
        self.bodies = []

    def room(self):
        return 1_000

    def take_packet_id(self):
        self.packet_id += 1
        return self.packet_id

    def deliver(self, deliveries: list[Delivery]):
        self.bodies += [d.merged.message.body for d in deliveries]
        if self.acknowledges:
            self.session.acknowledge([d.packet_id for d in deliveries], self.clock.ms)

    def forget(self, packet_ids):
        raise AssertionError("nothing was unsubscribed")


class Broker:
    """A shard with two sessions that share a filter, so that what one has done stays for the other."""

    def __init__(self):
        self.clock = FakeClock()
        self.store = MemoryStore()
        self._open()
        for client in ("busy", "away"):
            session = self.sessions.begin(client, "", NEVER_S)
            self.sessions.subscribe(session, "a", OPTIONS, is_logged=True)
            session.detach(self.clock.ms)
        run(self.shard.commit_once(everything=True))

    def _open(self):
        self.shard = open_shard(self.store, self.clock)
        self.sessions = self.shard.manager.sessions.of("/")

    def attach(self, **options):
        session = self.sessions.find("busy", self.clock.ms)
        session.expect(NEVER_S)
        taker = Taker(session, self.clock, **options)
        session.attach(taker)
        self.settle()
        return taker

    def settle(self):
        """As the loops: dispatch, and write what is due."""
        while True:
            self.shard.manager.dispatch(self.clock.ms)
            due_ms = self.shard.manager.commit_due_ms(self.clock.ms)
            is_written = due_ms == 0 and run(self.shard.commit_once())
            if not is_written and not load(self.shard):
                return

    def publish(self, body):
        self.sessions.logs.publish(list(self.sessions.logs), TEMPLATE, 1, False, None, [body], 0)
        self.settle()

    def pass_time(self, ms):
        self.clock.ms += ms
        self.settle()

    def crash(self):
        self.store = self.store.crash()
        self._open()


def test_what_was_acknowledged_is_not_repeated_after_a_crash_20_ms_later():
    broker = Broker()
    taker = broker.attach()
    for number in range(100):
        broker.publish(b"%d" % number)
    assert len(taker.bodies) == 100
    broker.pass_time(limits.STATE_FLUSH_INTERVAL_MS)
    broker.crash()
    assert broker.attach().bodies == []


@pytest.mark.parametrize("lived_steps", [10, 401])
def test_only_what_was_acknowledged_last_is_repeated_after_a_crash_while_ever_more_comes(lived_steps):
    broker = Broker()
    broker.attach()
    for number in range(lived_steps):
        broker.publish(b"%d" % number)
        broker.pass_time(STEP_MS)
    broker.crash()
    repeated = broker.attach().bodies
    assert len(repeated) <= limits.STATE_FLUSH_INTERVAL_MS // STEP_MS


def test_a_session_with_much_in_flight_is_written_less_often():
    """Each time all of that is written."""
    broker = Broker()
    taker = broker.attach(acknowledges=False)
    for number in range(500):
        broker.publish(b"%d" % number)
    broker.pass_time(1_000)
    session = taker.session
    key = session_progress.key(session.number)

    def written():
        return broker.store._rows[key]

    before = written()
    session.acknowledge([1], broker.clock.ms)
    wait_ms = 499 // limits.SESSION_PROGRESS_MESSAGES_PER_MS
    broker.pass_time(wait_ms - 1)
    assert written() == before
    broker.pass_time(1)
    assert len(session_progress.decode(written())[1]) == 499


def test_unfinished_messages_are_encoded_as_they_are_whatever_happened_between():
    source = random.Random(3)
    unfinished = Unfinished()
    for number in range(2_000):
        what = source.random()
        packets = unfinished.packet_ids()
        if what < 0.5:
            unfinished.add(number, number % 60_000 + 1, source.choice([1, 2]))
        elif packets and what < 0.7:
            unfinished.receive(source.sample(packets, 1))
        elif packets and what < 0.9:
            unfinished.finish(source.sample(packets, 1))
        else:
            read_to, sent = session_progress.decode(unfinished.encode(number))
            assert read_to == number
            assert sent == list(unfinished)
    assert any(each.state == RECEIVED_QOS_2 for each in unfinished)
