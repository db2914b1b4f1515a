"""broker.mqtt.consuming.retained_sending: what new subscriptions are sent, in steps that hold up nobody."""

from types import SimpleNamespace

import pytest

from broker.mqtt.consuming.retained_sending import RetainedSending, RetainedTurns
from config import limits


class Loop:
    """Calls when it is told to."""

    def __init__(self):
        self.calls = []

    def call_soon(self, call):
        self.calls.append(call)

    def turn(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    def run(self):
        count = 0
        while self.calls:
            self.turn()
            count += 1
            assert count < 10_000
        return count


class Client:
    """Notes what it is sent, and holds what comes meanwhile."""

    def __init__(self, turns):
        self.sent = []
        self.held = None
        self.flush_count = 0
        self.sending = RetainedSending(turns, self)

    def hold(self):
        self.held = []

    def release(self):
        part, self.held = self.held[:10], self.held[10:]
        self.sent += part
        if self.held:
            return False
        self.held = None
        return True

    def live(self, message):
        (self.sent if self.held is None else self.held).append(message)

    def guard_retained(self, call):
        self.flush_count += 1
        try:
            call()
        except RuntimeError:
            return False
        return True

    def subscribe(self, found, stop_at=None):
        def send(message):
            if message.body == stop_at:
                return False
            if message.body == b"bug":
                raise RuntimeError
            self.sent.append(message.body)
            return True

        self.sending.add(iter(found), send, lambda: self.sent.append("done"))


def messages(count, size=0):
    return [SimpleNamespace(body=b"%d" % n if not size else bytes(size)) for n in range(count)]


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def turns(loop):
    return RetainedTurns(loop)


def test_a_little_is_sent_at_once_and_nothing_is_held(turns):
    client = Client(turns)
    client.subscribe(messages(3))
    client.live("live")
    assert client.sent == [b"0", b"1", b"2", "done", "live"]


def test_much_is_sent_in_turns_and_what_comes_meanwhile_behind_it(loop, turns):
    client = Client(turns)
    count = 2_000
    client.subscribe(messages(count))
    client.subscribe(messages(1))
    assert len(client.sent) == limits.RETAINED_COST_PER_TURN_MAX // limits.RETAINED_MESSAGE_COST
    for number in range(25):
        client.live(f"live {number}")
    turn_count = loop.run()
    assert turn_count >= count * limits.RETAINED_MESSAGE_COST // limits.RETAINED_COST_PER_TURN_MAX
    retained = [b"%d" % n for n in range(count)]
    assert client.sent == [*retained, "done", b"0", "done", *(f"live {number}" for number in range(25))]
    client.live("directly")
    assert client.sent[-1] == "directly"


def test_hundreds_of_filters_that_match_nothing_take_turns(loop, turns):
    client = Client(turns)
    for _ in range(300):
        client.subscribe([None] * 100)
    count = loop.run()
    assert count >= 300 * 100 * limits.RETAINED_TOPICS_PER_PAUSE // limits.RETAINED_COST_PER_TURN_MAX
    assert client.sent == ["done"] * 300


def test_large_bodies_count_by_their_bytes(turns):
    client = Client(turns)
    client.subscribe(messages(100, 1 << 20))
    assert len(client.sent) == 2


def test_who_wants_little_does_not_wait_until_much_is_sent_to_another(loop, turns):
    greedy, modest = Client(turns), Client(turns)
    greedy.subscribe(messages(5_000))
    modest.subscribe(messages(2))
    assert modest.sent == []
    for _ in range(3):
        loop.turn()
    assert modest.sent == [b"0", b"1", "done"]
    loop.run()
    assert len(greedy.sent) == 5_001


def test_many_clients_share_the_turn(loop, turns):
    clients = [Client(turns) for _ in range(100)]
    for client in clients:
        client.subscribe(messages(20))
    before = sum(len(client.sent) for client in clients)
    assert before <= limits.RETAINED_COST_PER_TURN_MAX // limits.RETAINED_MESSAGE_COST + 20
    loop.run()
    assert all(len(client.sent) == 21 for client in clients)


def test_a_subscription_that_is_over_is_sent_no_more_and_others_go_on(loop, turns):
    client = Client(turns)
    client.subscribe(messages(5_000), stop_at=b"1000")
    client.subscribe(messages(1))
    loop.run()
    assert len(client.sent) == 1_000 + 3


def test_a_client_that_is_gone_is_forgotten(loop, turns):
    client = Client(turns)
    client.subscribe(messages(5_000))
    count = len(client.sent)
    client.sending.end()
    loop.run()
    assert len(client.sent) == count


def test_a_failure_ends_that_client_alone(loop, turns):
    client, other = Client(turns), Client(turns)
    client.subscribe([*messages(1_000), SimpleNamespace(body=b"bug")])
    other.subscribe(messages(1))
    loop.run()
    assert len(client.sent) == 1_000
    assert other.sent == [b"0", "done"]
