"""broker.mqtt.native: lone publishes taken in C, and what of it is in Python too."""

import gc
import random
import weakref
from typing import Any

import pytest

from broker.mqtt import native
from config import limits
from protocols.mqtt.constants import MQTT_3_1_1, MQTT_5
from protocols.mqtt.events import PublishShape
from protocols.mqtt.hot import encode_publish
from protocols.mqtt.offer import DEFAULT_OFFER
from protocols.mqtt.publishes import PublishDecoder
from queue_manager.quota_accounts import NO_SHARE, Account, Share
from queue_manager.validity import Version

compiled = pytest.mark.skipif(native.Door is None, reason="broker/mqtt/native/lone.c is not compiled")


class Subscriber:
    def __init__(self):
        self._gathered: list[Any] = []
        self.first: list[Any] = []

    def pass_on_lone(self, lone):
        self.first.append(lone)
        self._gathered.append(lone)


class Client:
    """The transport of a client that published, and its connection, and its door."""

    def __init__(
        self, version=MQTT_3_1_1, properties=b"", topic=b"a/b", chunk_bytes_max=4096, gathered_max=3
    ):
        self._last_received = 0.0
        self.now = 1.0
        self.handed_on: list[bytes] = []
        self.written: list[bytes] = []
        self.failures: list[Exception] = []
        self.subscriber: Any = Subscriber()
        self.targets, self.version = Version(), Version()
        self.share = Share(Account("", "", {}), Account("", "", {}))
        self.decoder = PublishDecoder(version, DEFAULT_OFFER)
        self.first = encode_publish(version, topic, 1, False, False, 1, properties, b"payload")
        self.decoder.take(self.first, 0, len(self.first))
        lone = self.decoder.take_single(self.first)
        assert lone is not None
        assert native.Door is not None
        self.shape, _, self.at, payload_at = lone
        write, tail = self.written.append, self.first[self.at + 2 : payload_at]
        connection: Any = self
        self.door = native.Door(
            connection, connection, write, lambda: self.now, chunk_bytes_max, gathered_max
        )
        head_bytes = 2 if self.first[1] < 0x80 else 3
        self._expected = self.shape, self.first[head_bytes : self.at], tail
        self.expect()

    def expect(self, direct=None):
        direct = [self.subscriber] if direct is None else direct
        self.door.expect(*self._expected, direct, self.targets, self.version, self.share)

    def data_received(self, data):
        self.handed_on.append(data)

    def lone_failed(self, error):
        self.failures.append(error)

    def pause_writing(self):
        self.now = -1.0


def mutations(chance, chunk):
    """Chunks like that one: of other sizes and identifiers, cut, prolonged, with bytes changed."""
    yield chunk
    for _ in range(400):
        data = bytearray(chunk)
        for _ in range(chance.choice((0, 1, 1, 2))):
            data[chance.randrange(chance.choice((len(data), min(len(data), 12))))] = chance.choice(
                (0, 1, 2, 0x32, 0x7F, 0x80, 0xFF, len(data) - 2 & 0xFF)
            )
        end = chance.choice((len(data), len(data), chance.randrange(len(data) + 1)))
        more = chance.randbytes(chance.choice((0, 0, 1, 130)))
        yield bytes(data[:end]) + more


@compiled
@pytest.mark.parametrize(
    ("version", "properties"),
    [(MQTT_3_1_1, b""), (MQTT_5, b""), (MQTT_5, b"\x01\x01")],
    ids=["3.1.1", "5", "properties"],
)
def test_a_door_takes_exactly_what_the_decoder_takes_for_a_lone_publish(version, properties):
    chance = random.Random(7)
    for size in (0, 1, 60, 110, 119, 120, 121, 130, 300, 3_900):
        client = Client(version, properties)
        for topic in (b"a/b", b"a/c", b"a", b""):
            packet_id = chance.choice((0, 1, 0x100, 0xFFFF))
            chunk = encode_publish(
                version, topic, 1, False, False, packet_id, properties, chance.randbytes(size)
            )
            for data in mutations(chance, chunk):
                lone = client.decoder.take_single(data) if len(data) <= 4096 else None
                client.expect()
                client.handed_on.clear()
                client.written.clear()
                client.subscriber._gathered.clear()
                client.subscriber.first.clear()
                client.door.data_received(data)
                if lone is None:
                    assert (client.handed_on, client.written, client.subscriber.first) == ([data], [], [])
                    assert not client.door.is_open
                else:
                    at = lone[2]
                    assert (client.handed_on, client.subscriber.first) == ([], [lone])
                    assert client.written == [b"\x40\x02" + data[at : at + 2]]
                    assert client.door.is_open


@compiled
def test_publishes_are_gathered_and_the_subscriber_is_told_of_the_first_and_the_last():
    client = Client(gathered_max=4)
    for _ in range(4):
        client.door.data_received(client.first)
    assert (len(client.subscriber._gathered), len(client.subscriber.first)) == (4, 2)
    assert client._last_received == 1.0


@compiled
@pytest.mark.parametrize("what", ["targets", "version", "share", "close", "other chunk", "never expected"])
def test_a_door_hands_on_what_comes_when_it_is_not_to_take_it(what):
    client = Client()
    if what == "share":
        client.share.is_paced = True
    elif what == "close":
        client.door.close()
    elif what == "other chunk":
        client.door.data_received(b"\xc0\x00")
        client.handed_on.clear()
    elif what == "never expected":
        door: Any = client
        client.door = native.Door(door, door, client.written.append, lambda: 1.0, 4096, 3)
    else:
        getattr(client, what).expire()
    client.door.data_received(client.first)
    assert (client.handed_on, client.written) == ([client.first], [])
    client.share.is_paced = False
    client.targets, client.version = Version(), Version()
    client.expect()
    client.door.data_received(client.first)
    assert len(client.handed_on) == 1


@compiled
def test_what_is_no_bytes_object_or_too_large_is_handed_on():
    client = Client(chunk_bytes_max=20)
    client.door.data_received(bytearray(client.first))
    client.expect()
    client.door.data_received(encode_publish(MQTT_3_1_1, b"a/b", 1, False, False, 1, b"", bytes(30)))
    assert len(client.handed_on) == 2
    client = Client(topic=b"t" * 30, chunk_bytes_max=20)
    assert not client.door.is_open


@compiled
def test_a_bug_of_a_subscriber_is_told_and_closes_the_door():
    client = Client()

    def broken(lone):
        raise ZeroDivisionError

    client.subscriber.pass_on_lone = broken
    client.door.data_received(client.first)
    assert [type(error) for error in client.failures] == [ZeroDivisionError]
    assert (client.written, client.handed_on, client.door.is_open) == ([], [], False)


@compiled
def test_the_client_may_go_while_its_publish_is_passed_on():
    client = Client()
    client.subscriber.pass_on_lone = lambda lone: client.door.dissolve()
    client.expect([client.subscriber, client.subscriber])
    client.door.data_received(client.first)
    client.door.data_received(client.first)
    assert (client.written, client.handed_on, client.failures) == ([], [], [])
    client.expect()
    assert not client.door.is_open


@compiled
def test_a_door_has_everything_else_of_its_transport_and_ends_with_it():
    client = Client()
    door: Any = client.door
    door.pause_writing()
    assert client.now == -1.0
    gone = weakref.ref(client.subscriber)
    client.door.dissolve()
    with pytest.raises(AttributeError):
        door.pause_writing()
    client = Client()
    gone = weakref.ref(client.subscriber)
    del client  # a circle
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("joined", [native.joined, native.joined_in_python])
def test_gathered_publishes_are_joined_with_their_identifiers(joined):
    chance = random.Random(3)
    gathered: list[Any] = []
    expected = b""
    ids = [chance.randrange(1, 65_536) for _ in range(limits.LONE_PUBLISHES_GATHERED_MAX)]
    for number, packet_id in enumerate(ids):
        topic, payload = b"t" * chance.randrange(1, 40), chance.randbytes(chance.randrange(300))
        wire = encode_publish(MQTT_3_1_1, topic, 1, False, False, number + 1, b"", payload)
        at = len(wire) - len(payload) - 2
        gathered.append((PublishShape(0x32, "t", b""), wire, at, at + 2))
        expected += encode_publish(MQTT_3_1_1, topic, 1, False, False, packet_id, b"", payload)
    assert joined(gathered, ids) == expected
    assert joined([], []) == b""


@compiled
@pytest.mark.parametrize(
    ("gathered", "ids"),
    [
        ([], [1]),
        ([(None, b"1234", 3, 0)], [1]),
        ([(None, b"1234", -1, 0)], [1]),
        ([(None, b"", 0, 0)], [1]),
        ([(None, "1234", 0, 0)], [1]),
        ([(None, b"1234", "0", 0)], [1]),
        ([(None, b"1234", 0, 0)], ["1"]),
        ([(None,)], [1]),
        ([None], [1]),
    ],
)
def test_what_cannot_be_joined_is_refused(gathered, ids):
    joined: Any = native.joined
    with pytest.raises((ValueError, TypeError, IndexError, SystemError)):
        joined(gathered, ids)


def test_nobody_is_paced_without_a_quota():
    assert NO_SHARE.is_paced is False  # a door looks for exactly that
