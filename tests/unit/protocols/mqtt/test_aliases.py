"""Topic aliases, section 3.3.2.3.4: what they stand for, and how publishes with them are told apart."""

import pytest

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt import packets as p
from protocols.mqtt.aliases import InboundAliases, OutboundAliases
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.events import PublishRun
from protocols.mqtt.properties import Properties
from tests.unit.protocols.mqtt.live import flat, live, sent


def publish(topic: str, alias: int, payload: bytes = b"x", **more: object) -> bytes:
    properties = Properties(topic_alias=alias, **more)
    return encode_packet(p.Publish(topic, payload, properties=properties), 5)


def topics(*wire: bytes) -> list[str]:
    return [event[1] for event in flat(live(5).receive(b"".join(wire), 1.0))]


def test_alias_stands_for_the_topic_it_last_came_with() -> None:
    """[MQTT-3.3.2-12]"""
    wire = [publish("a", 5), publish("", 5), publish("b", 5), publish("", 5), publish("a", 5), publish("", 5)]
    assert topics(*wire) == ["a", "a", "b", "b", "a", "a"]


def test_aliases_are_told_apart() -> None:
    wire = [publish("a", 1), publish("b", 2), publish("", 1), publish("", 2), publish("", 1)]
    assert topics(*wire) == ["a", "b", "a", "b", "a"]


def test_runs_of_an_alias_are_gathered_and_lose_the_property() -> None:
    connection = live(5)
    found = connection.receive(publish("a", 1, user_properties=[("k", "v")]) + publish("", 1) * 50, 1.0)
    first, run = found
    assert isinstance(run, PublishRun)
    assert (run.count, run.shape.topic, run.shape.properties, run.shape.alias) == (50, "a", b"", 1)
    assert first.shape.properties == b"\x26\x00\x01k\x00\x01v"


@pytest.mark.parametrize("alias", [0, limits.MQTT_TOPIC_ALIAS_MAXIMUM + 1])
def test_alias_outside_the_maximum_is_refused(alias: int) -> None:
    """[MQTT-3.3.2-8], [MQTT-3.3.2-9]"""
    connection = live(5)
    connection.receive(publish("a", alias), 1.0)
    assert sent(connection)[0].reason_code == c.TOPIC_ALIAS_INVALID


def test_topics_of_aliases_are_bounded_together() -> None:
    aliases = InboundAliases(65_535)
    size = 65_535
    for alias in range(1, limits.MQTT_TOPIC_ALIAS_BYTES_MAX // size + 1):
        aliases.note(alias, b"t" * size)
    with pytest.raises(ProtocolError) as refused:
        aliases.note(100, b"t" * size)
    assert refused.value.code == c.QUOTA_EXCEEDED


def test_first_topics_get_the_aliases_that_the_client_allows() -> None:
    aliases = OutboundAliases(2)
    assert [aliases.find(b"a"), aliases.next_free()] == [0, 1]
    aliases.take(b"a")
    aliases.take(b"b")
    assert [aliases.find(b"a"), aliases.find(b"b"), aliases.find(b"c"), aliases.next_free()] == [1, 2, 0, 0]
