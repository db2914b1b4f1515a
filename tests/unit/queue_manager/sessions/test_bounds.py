"""What waits for a session is bounded: the oldest go, new ones stay out, or publishers are told."""

import pytest

from config import limits
from queue_manager.effective_policy import Policy
from queue_manager.sessions.common import NEWEST, OLDEST, REJECT, Bounds
from queue_manager.sessions.session import Delivery
from queue_manager.sessions.session_subscription import SubscriptionOptions
from storage.envelope import EnvelopeTemplate
from storage.records import NEVER_S, filter_log, filter_log_entry
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, load, open_shard, run

TEMPLATE = EnvelopeTemplate("a", persistent=True)
OPTIONS = SubscriptionOptions(1, False, False, 0, 0, b"")


class Taker:
    """A link that takes everything and acknowledges it."""

    def __init__(self, session, clock):
        self.session = session
        self.clock = clock
        self.packet_id = 0
        self.bodies = []

    def room(self):
        return 100

    def take_packet_id(self):
        self.packet_id += 1
        return self.packet_id

    def forget(self, packet_ids):
        pass

    def deliver(self, deliveries: list[Delivery]):
        self.bodies += [d.merged.message.body for d in deliveries]
        self.session.acknowledge([d.packet_id for d in deliveries], self.clock.ms)


class Away:
    """A shard with a session that is away and subscribed to `a`; publishes are written one by one."""

    def __init__(self, bounds, clients=("dev",)):
        self.bounds = bounds
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.open()
        for client in clients:
            session = self.sessions.begin(client, "", NEVER_S)
            self.sessions.subscribe(session, "a", OPTIONS, is_logged=True)
            session.detach(self.clock.ms)
        self.commit()

    def open(self):
        self.shard = open_shard(self.store, self.clock)
        self.sessions = self.shard.manager.sessions.of("/")
        self.sessions.limit(self.bounds)

    def restart(self):
        self.commit()
        self.store = MemoryStore(rows=dict(self.store._rows))
        self.open()

    def commit(self):
        while run(self.shard.commit_once(everything=True)) or load(self.shard):
            pass

    def publish(self, bodies):
        taken = []
        for body in bodies:
            logs = list(self.sessions.logs)
            taken.append(self.sessions.logs.has_room(logs, 1, len(body)))
            if taken[-1]:
                self.sessions.logs.publish(logs, TEMPLATE, 1, False, None, [body], 0)
            self.commit()
        return taken

    def receive(self, client="dev"):
        session = self.sessions.find(client, self.clock.ms)
        taker = Taker(session, self.clock)
        session.attach(taker)
        for _ in range(1000):
            self.shard.manager.dispatch(self.clock.ms)
            if not load(self.shard) and not self.shard.manager.context.dispatchable:
                break
        session.detach(self.clock.ms)
        self.commit()
        return taker.bodies, session.dropped_count

    def rows(self):
        return [key for key in self.store._rows if key.startswith(filter_log_entry.prefix())]


NUMBERS = [str(number).encode() for number in range(10)]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Bounds(4, 0, OLDEST), NUMBERS[6:]),
        (Bounds(0, 4, OLDEST), NUMBERS[6:]),
        (Bounds(4, 0, NEWEST), NUMBERS[:4]),
        (Bounds(0, 4, NEWEST), NUMBERS[:4]),
        (Bounds(4, 0, REJECT), NUMBERS[:4]),
        (Bounds(), NUMBERS),
    ],
)
def test_bounds_hold_to_the_message(bounds, expected, restarts):
    away = Away(bounds)
    taken = away.publish(NUMBERS)
    assert taken == [number < 4 or bounds.drop != REJECT for number in range(10)]
    if restarts:
        away.restart()
    received, dropped = away.receive()
    assert received == expected
    if not restarts and bounds.drop != REJECT:
        assert dropped == 10 - len(expected)
    assert away.receive() == ([], dropped)
    assert away.publish([b"x"]) == [True]
    assert away.receive()[0] == [b"x"]


@pytest.mark.parametrize("bounds", [Bounds(5, 0, REJECT), Bounds(0, 5, REJECT)])
def test_room_is_asked_for_as_often_as_a_session_has_a_message_stored(bounds):
    away = Away(bounds)
    session = away.sessions.find("dev", away.clock.ms)
    away.sessions.subscribe(session, "+", OPTIONS, is_logged=True)
    assert away.publish(NUMBERS[:4]) == [True, True, False, False]
    assert session.queued == (4, 4)


@pytest.mark.parametrize("drop", [OLDEST, NEWEST])
def test_store_holds_little_more_than_a_session_would_get(drop, monkeypatch):
    monkeypatch.setattr(limits, "SESSION_TRIM_SLACK_MESSAGES", 10)
    away = Away(Bounds(40, 0, drop), clients=("dev", "other"))
    away.publish([str(number).encode() for number in range(200)])
    assert len(away.rows()) <= 40 + 5 + 10 + 1
    away.restart()
    for client in ("dev", "other"):
        received, _ = away.receive(client)
        numbers = range(160, 200) if drop == OLDEST else range(40)
        assert received == [str(number).encode() for number in numbers]
    assert not away.rows()


OWN_MESSAGE = (TEMPLATE, 2, 0, b"own")


def test_session_that_is_over_or_full_takes_no_messages_of_its_own():
    """A record of a session that is gone would keep the next start from serving."""
    away = Away(Bounds(1, 0, REJECT))
    session = away.sessions.find("dev", away.clock.ms)
    assert not away.sessions.send_own(session, "b", [OWN_MESSAGE], retain=False)  # not subscribed to
    assert away.sessions.send_own(session, "a", [OWN_MESSAGE], retain=False)
    assert not away.sessions.send_own(session, "a", [OWN_MESSAGE], retain=False)  # full
    away.commit()
    away.sessions.end(session, away.clock.ms)
    assert not away.sessions.send_own(session, "a", [OWN_MESSAGE], retain=False)
    away.commit()
    away.restart()
    assert away.sessions.find("dev", away.clock.ms) is None


def test_log_of_a_filter_that_began_anew_survives_a_crash_while_the_old_one_goes():
    """Publishes after the start reach the new one, and the session that reads it can end."""
    away = Away(Bounds())
    session = away.sessions.find("dev", away.clock.ms)
    session.remove(session.subscriptions["a"])
    away.sessions.subscribe(session, "a", OPTIONS, is_logged=True)
    run(away.shard.commit_once(everything=True))
    rows = dict(away.store._rows)
    assert sum(key.startswith(filter_log.prefix()) for key in rows) == 2
    away.store = MemoryStore(rows=rows)
    away.open()
    away.publish(NUMBERS)
    assert away.receive() == (NUMBERS, 0)
    away.sessions.end(away.sessions.find("dev", away.clock.ms), away.clock.ms)
    away.commit()
    assert not [key for key in away.store._rows if key.startswith(filter_log.prefix())]


def policy(name, pattern, *, is_operator=False, **settings):
    return Policy(
        vhost="/",
        name=name,
        pattern=pattern,
        apply_to="mqtt_sessions",
        priority=0,
        definition={"max-queued-messages": 1},
        settings=settings,
        is_operator=is_operator,
    )


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("drop", [OLDEST, NEWEST, REJECT])
def test_policy_bounds_the_sessions_that_it_matches(drop, restarts):
    away = Away(Bounds(8, 0, drop), ("dev-1", "other"))
    away.shard.manager.queues.set_policy(policy("few", "^dev-", queued_messages_max=3))
    away.shard.manager.sessions.follow_policies()
    if restarts:
        away.restart()
    taken = away.publish(NUMBERS)
    few, many = NUMBERS[:3], NUMBERS[:8]
    if drop == REJECT:
        assert taken == [True] * 3 + [False] * 7  # a full session has its publishers refused
        many = few
    elif drop == OLDEST:
        few, many = NUMBERS[-3:], NUMBERS[-8:]
    elif drop == NEWEST:
        few = away.receive("dev-1")[0]  # what one has no room for the other has: it is counted as it is read
        assert few[:3] == NUMBERS[:3]
        assert away.receive("other")[0] == many
        return
    assert away.receive("dev-1")[0] == few
    assert away.receive("other")[0] == many


def test_policies_that_come_and_go_hold_at_once():
    away = Away(Bounds(8, 0, REJECT))
    queues, sessions = away.shard.manager.queues, away.shard.manager.sessions
    few = policy("few", "", queued_messages_max=5)
    fewer = policy("fewer", "", queued_messages_max=2, is_operator=True)
    found = []
    for change in (
        lambda: queues.set_policy(few),
        lambda: queues.set_policy(fewer),
        lambda: queues.clear_policy(few),
    ):
        change()
        sessions.follow_policies()
        found.append(away.sessions.find("dev", away.clock.ms).bounds.messages_max)
    queues.clear_policy(fewer)
    sessions.follow_policies()
    assert [*found, away.sessions.find("dev", away.clock.ms).bounds.messages_max] == [5, 2, 2, 8]


def test_log_keeps_what_the_widest_of_its_readers_may_still_get(monkeypatch):
    monkeypatch.setattr(limits, "SESSION_TRIM_SLACK_MESSAGES", 0)
    away = Away(Bounds(8, 0, OLDEST), ("dev-1", "other"))
    away.shard.manager.queues.set_policy(policy("few", "^dev-", queued_messages_max=3))
    away.shard.manager.sessions.follow_policies()
    bodies = [str(number).encode() for number in range(30)]
    away.publish(bodies)
    assert away.receive("other")[0] == bodies[-8:]
    assert away.receive("dev-1")[0] == bodies[-3:]
