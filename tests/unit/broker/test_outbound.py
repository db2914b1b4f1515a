"""broker.mqtt.settling.outbound: what a client that acknowledges late, or takes only small packets, costs."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.settling.outgoing import Outgoing
from broker.mqtt.topology.subscription import Subscription
from broker.process.counters import Counters
from config import limits
from config.settings import Settings
from protocols.mqtt import constants as c
from protocols.mqtt.client import PacketReader
from protocols.mqtt.events import AckRun, PublishRun, PublishShape
from protocols.mqtt.hot import encode_publish
from queue_manager.claims.claim import IN_FLIGHT, SETTLED_MESSAGE, STALE, Claim
from queue_manager.quota_accounts import NO_SHARE
from tests.unit.protocols.mqtt.live import live as let_in


class Client:
    """As much of an MqttClient as its sending half asks for."""

    def __init__(self, receive_maximum=10, packet_bytes_max=100, **settings):
        self.connection = SimpleNamespace(
            protocol_version=c.MQTT_5, client_maximum_packet_size=packet_bytes_max, output=[], closed=False
        )
        self.transport = SimpleNamespace(
            output=SimpleNamespace(buffered_bytes=lambda: 0, held_by=""),
            share=NO_SHARE,
            want_flush=lambda: None,
            flush=self.connection.output.clear,
            guard=lambda call: call(),
            peer="",
        )
        self.unsendable: list[Any] = []
        self.returned: list[Any] = []
        settling = SimpleNamespace(
            reject=lambda claims, now_ms: self.unsendable.extend(claims),
            unclaim=lambda claims, now_ms: self.returned.extend(claims),
        )
        self.hub = SimpleNamespace(
            counters=Counters(),
            client=SimpleNamespace(settling=settling),
            clock=SimpleNamespace(now_ms=lambda: 0),
            settings=Settings(mqtt=settings),
            before_write=lambda call: self.at_end.append(call),
        )
        self.at_end: list[Callable[[], None]] = []
        self.core, self.clock = self.hub.client, self.hub.clock
        self.client_id = "c"
        self.outbound = Outbound(self)
        self.outbound.limit(receive_maximum, 0)

    def end_turn(self):
        for call in self.at_end:
            call()
        self.at_end.clear()

    def sent(self):
        """Packet identifiers and payloads, in order; the topic is one letter, and there are no properties."""
        return [
            (body[3] << 8 | body[4], body[6:])
            for first, body in PacketReader().feed(b"".join(self.connection.output))
        ]

    def sent_count(self):
        return len(self.connection.output)


def make_claim(state=IN_FLIGHT):
    return Claim(SETTLED_MESSAGE, 0, None, 1, state, None, 0)


def lone(payload):
    wire = encode_publish(c.MQTT_5, b"t", 1, False, False, 9, b"", payload)
    offset = len(wire) - len(payload)
    return PublishShape(0x32, "t", b""), wire, offset - 3, offset


def outgoing(payloads, claims=None, **options):
    return Outgoing(b"t", 1, False, b"", payloads, claims, **options)


@pytest.fixture
def client():
    return Client()


def test_what_is_too_large_for_the_client_does_not_hold_up_what_follows(client):
    claims = [make_claim() for _ in range(21)]
    client.outbound.send_claimed(outgoing([b"x" * 1_000] * 20 + [b"small"], claims))
    assert client.unsendable == claims[:20]
    assert client.sent_count() == 1
    assert client.outbound.window.in_use == set(client.outbound.claims)


def test_a_claim_settled_by_hand_fails_too_when_the_client_cannot_take_its_message(client):
    claim = make_claim()
    client.outbound.send_claimed(outgoing([b"x" * 1_000], [claim], by_ack=False))
    assert client.unsendable == [claim]


def test_the_acknowledgement_of_what_is_settled_by_hand_settles_nothing(client):
    client.outbound.send_claimed(outgoing([b"x"], [make_claim()], by_ack=False))
    assert client.outbound.finished([1]) == []
    assert client.outbound.window.free() == 10


def test_acknowledging_what_has_lost_its_lease_settles_nothing_and_frees_its_place(client):
    claims = [make_claim() for _ in range(10)]
    client.outbound.send_claimed(outgoing([b"%d" % n for n in range(10)], claims))
    for claim in claims[:5]:
        claim.state = STALE
    client.outbound.forget_ended()
    assert client.outbound.window.free() == 0
    assert client.outbound.finished([4, 5, 6]) == claims[5:6]
    assert client.outbound.window.free() == 3


def test_claims_that_have_no_place_go_back_and_do_not_wait(client):
    claims = [make_claim() for _ in range(13)]
    client.outbound.send_claimed(outgoing([b"x"] * 13, claims))
    assert client.returned == claims[10:]
    assert client.outbound.is_waiting is False
    assert list(client.outbound.claims.values()) == claims[:10]


def test_claims_are_sent_to_places_that_are_free_for_them_though_messages_wait(client):
    """It is the turn of a queue, then."""
    client.outbound.send(outgoing([b"x"] * 13))
    client.outbound.window.release([1])
    claim = make_claim()
    client.outbound.send_claimed(outgoing([b"claimed"], [claim]))
    assert client.outbound.claims == {11: claim}
    assert client.outbound.is_waiting


def test_waiting_messages_are_bounded_by_their_size():
    client = Client(packet_bytes_max=20_000, max_unsent_bytes="64KiB")
    for _ in range(100):
        if client.outbound._has_room(1):
            client.outbound.send(outgoing([b"x" * 8_192]))
    assert client.hub.counters.dropped_slow_consumer == 100 - 10 - 9


def test_a_client_for_whom_nothing_waits_any_more_is_as_before(client):
    client.outbound.send(outgoing([b"x"] * 12))
    assert client.outbound.is_waiting
    assert not client.outbound.take_lone_ack(1)
    client.outbound.on_acks(AckRun(c.PUBACK, [1, 2], c.SUCCESS))
    assert not client.outbound.is_waiting
    assert client.outbound.take_lone_ack(3)
    assert client.outbound.window.free() == 1


def live(body, qos=0):
    shape = PublishShape(qos, "t", b"")
    return PublishRun(shape, 1, [], [body], body, 0, 0, 0)


def test_what_comes_while_older_messages_are_sent_in_steps_waits_behind_them(client, monkeypatch):
    monkeypatch.setattr(limits, "HELD_RUNS_RELEASED_MAX", 2)
    output, outbound = client.connection.output, client.outbound
    subscription = Subscription(outbound, "t", 0)
    outbound.pass_on(live(b"1"))
    outbound.hold()
    for body in (b"2", b"3", b"4"):
        outbound.pass_on(live(body))
    outbound.forward(live(b"5"), subscription)
    assert output == [b"1"]
    assert not outbound.release()
    outbound.pass_on(live(b"6"))
    assert output == [b"1", b"2", b"3"]
    assert not outbound.release()
    assert outbound.release()
    outbound.pass_on(live(b"7"))
    assert b"".join(output).replace(b"\x30\x05\x00\x01t\x00", b"") == b"1234567"


def test_a_client_is_held_no_more_than_it_may_leave_unread():
    client = Client(packet_bytes_max=10_000, max_unsent_bytes=limits.SUBSCRIBER_BUFFER_BYTES_MIN)
    client.outbound.hold()
    for _ in range(200):
        client.outbound.pass_on(live(bytes(1_000)))
    assert client.hub.counters.dropped_slow_consumer > 100
    while not client.outbound.release():
        pass
    assert client.sent_count() + client.hub.counters.dropped_slow_consumer == 200


@pytest.mark.parametrize("qos", [0, 1])
def test_publishes_that_have_no_wire_of_their_own_are_passed_on(client, qos):
    """Those of a run that were published one by one, as not all of them were taken."""
    shape = PublishShape(0x30 | qos << 1, "t", b"")
    ids = [7] if qos else []
    client.outbound.pass_on(PublishRun(shape, 1, ids, [b"body"]))
    client.outbound.pass_on(PublishRun(shape, 1, [], [b"body"]))
    assert [packet.endswith(b"body") for packet in client.connection.output] == [True, True]


def test_lone_publishes_of_a_turn_are_sent_together_at_its_end():
    client = Client(packet_bytes_max=1 << 28)
    for payload in (b"a", b"bb", b""):
        client.outbound.pass_on_lone(lone(payload))
    assert client.sent_count() == 0
    client.end_turn()
    assert client.sent_count() == 1
    assert client.sent() == [(1, b"a"), (2, b"bb"), (3, b"")]
    assert client.outbound.window.in_use == {1, 2, 3}


def test_what_is_sent_after_lone_publishes_comes_behind_them(client):
    shape, wire, at, offset = lone(b"run")
    run = PublishRun(shape, 1, [9], None, wire, len(wire), at, offset)
    client.outbound.pass_on_lone(lone(b"1"))
    client.outbound.send(outgoing([b"2"]))
    client.outbound.pass_on_lone(lone(b"3"))
    client.outbound.pass_on(run)
    client.outbound.pass_on_lone(lone(b"4"))
    client.outbound.send_claimed(outgoing([b"5"], [make_claim()]))
    client.end_turn()
    assert [payload for _, payload in client.sent()] == [b"1", b"2", b"3", b"run", b"4", b"5"]


def test_lone_publishes_beyond_the_receive_maximum_wait_in_order(client):
    client.outbound.send(outgoing([b"x"] * 8))
    for number in range(5):
        client.outbound.pass_on_lone(lone(b"%d" % number))
    client.end_turn()
    assert [payload for _, payload in client.sent()][8:] == [b"0", b"1"]
    client.outbound.pass_on_lone(lone(b"5"))
    client.end_turn()
    client.outbound.finished([1, 2, 3, 4])
    assert [payload for _, payload in client.sent()][10:] == [b"2", b"3", b"4", b"5"]


def test_a_lone_publish_too_large_for_the_client_is_passed_over(client):
    for payload in (b"a", b"x" * 1_000, b"b"):
        client.outbound.pass_on_lone(lone(payload))
    client.end_turn()
    assert [payload for _, payload in client.sent()] == [b"a", b"b"]
    assert client.hub.counters.dropped_too_large == 1


def test_no_lone_publish_is_sent_after_the_end(client):
    client.outbound.pass_on_lone(lone(b"a"))
    client.connection.closed = True
    client.end_turn()
    assert client.sent_count() == 0


def test_many_lone_publishes_are_sent_before_the_turn_ends():
    client = Client(receive_maximum=1_000, packet_bytes_max=1 << 28)
    for _ in range(limits.LONE_PUBLISHES_GATHERED_MAX):
        client.outbound.pass_on_lone(lone(b"a"))
    assert len(client.sent()) == limits.LONE_PUBLISHES_GATHERED_MAX


def test_small_messages_for_a_client_that_reads_nothing_are_dropped():
    client = Client(receive_maximum=65_535, packet_bytes_max=1 << 28, max_unsent_bytes=1 << 16)
    client.transport.output.buffered_bytes = lambda: 1 << 17
    for _ in range(10):
        for _ in range(200):
            client.outbound.pass_on_lone(lone(b"x" * 100))
        client.end_turn()
    assert client.hub.counters.dropped_slow_consumer == 2_000 - len(client.sent())
    assert len(b"".join(client.connection.output)) <= limits.ROOM_CHECK_BYTES


def test_a_lone_acknowledgement_frees_a_place_only_where_that_is_all_it_does(client):
    client.outbound.pass_on_lone(lone(b"a"))
    client.end_turn()
    assert client.outbound.take_lone_ack(1)
    assert client.outbound.window.free() == 10
    client.outbound.send_claimed(outgoing([b"x"], [make_claim()]))
    assert not client.outbound.take_lone_ack(2)


def test_a_run_of_varied_sizes_is_passed_on_with_packet_identifiers_of_the_subscriber():
    client = Client(packet_bytes_max=1 << 28)
    wires = [encode_publish(c.MQTT_5, b"t", 1, False, False, 900, b"", b"x" * size) for size in (1, 300, 0)]
    connection = let_in(c.MQTT_5)
    (run,) = connection.receive(b"".join(wires), 0.0)
    for _ in range(2):
        client.outbound.pass_on(run)
    assert client.sent() == [(1, b"x"), (2, b"x" * 300), (3, b""), (4, b"x"), (5, b"x" * 300), (6, b"")]
