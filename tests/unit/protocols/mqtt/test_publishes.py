"""Publish runs: what is gathered, and the shapes that are remembered."""

import itertools
from typing import Any

from config import limits
from protocols.mqtt import packets as p
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.events import PublishRun
from protocols.mqtt.offer import Offer
from protocols.mqtt.properties import Properties, encode_properties
from tests.unit.protocols.mqtt.live import flat, live


def publish(version: int, topic: str, payload: bytes, packet_id: int = 0, **more: Any) -> bytes:
    qos = 1 if packet_id else 0
    return encode_packet(p.Publish(topic, payload, qos=qos, packet_id=packet_id, **more), version)


def runs(connection: MqttConnection, *wire: bytes) -> list[PublishRun]:
    return connection.receive(b"".join(wire), 1.0)


def test_publishes_of_equal_size_make_a_run_with_a_stride() -> None:
    for version in (4, 5):
        single = publish(version, "t", b"xx", 1)
        (run,) = runs(live(version), *(publish(version, "t", b"%02d" % i, i) for i in range(1, 100)))
        assert (run.count, run.stride_bytes, run.packet_ids) == (99, len(single), list(range(1, 100)))
        assert run.payloads == [b"%02d" % i for i in range(1, 100)]
        assert run.payloads is run.payloads
        assert (len(run.wire), run.packet_id_offset) == (99 * len(single), 5)


def test_publishes_of_different_sizes_make_a_run_without_a_stride() -> None:
    sizes = [1, 1, 5, 5, 5, 0, 200, 1]
    wire = [publish(4, "t", b"x" * size) for size in sizes]
    (run,) = runs(live(4), *wire)
    assert (run.count, run.stride_bytes, run.wire) == (len(sizes), 0, b"".join(wire))
    assert [len(payload) for payload in run.payloads] == sizes


def test_run_at_qos_0_keeps_its_wire_bytes() -> None:
    wire = [publish(5, "t", b"ab")] * 3
    (run,) = runs(live(5), *wire)
    assert run.wire == b"".join(wire)
    assert run.packet_ids == []


def test_different_topic_flags_or_properties_end_a_run() -> None:
    pair = Properties(user_properties=[("k", "v")])
    wire = [
        publish(5, "a", b"1"),
        publish(5, "b", b"1"),
        publish(5, "b", b"1", retain=True),
        publish(5, "b", b"1", 1),
        publish(5, "b", b"1", 2, dup=True),
        publish(5, "b", b"1", 3, properties=pair),
    ]
    found = runs(live(5), *wire)
    assert [run.count for run in found] == [1] * 6
    assert found[2].shape.retain
    assert found[4].shape.dup
    assert found[5].shape.properties == encode_properties(pair, 3)
    assert (found[5].shape.topic, found[5].shape.topic_bytes, found[5].shape.qos) == ("b", b"b", 1)


def test_payload_that_looks_like_a_packet_stays_a_payload() -> None:
    inner = publish(4, "t", b"abc")
    (run,) = runs(live(4), *(publish(4, "t", inner) for _ in range(40)))
    assert run.payloads == [inner] * 40


def test_repeated_shape_keeps_its_context() -> None:
    connection = live(4)
    first, second = runs(connection, publish(4, "a", b"1"), publish(4, "b", b"1"))
    first.shape.context = "route"
    again, _, last = runs(connection, publish(4, "a", b"22"), publish(4, "b", b"1"), publish(4, "a", b"1"))
    assert again.shape is first.shape is last.shape
    assert again.shape.context == "route"
    assert second.shape.context is None


def test_shape_cache_is_bounded() -> None:
    connection = live(4)
    count = limits.MQTT_SHAPES_PER_CONNECTION_MAX
    found = runs(connection, *(publish(4, f"t/{i}", b"") for i in range(count + 1)))
    assert len(found) == count + 1
    (again,) = runs(connection, publish(4, "t/0", b""))
    assert again.shape is not found[0].shape
    (last,) = runs(connection, publish(4, f"t/{count}", b""))
    assert last.shape is found[count].shape


def test_large_shapes_make_runs_but_are_not_cached() -> None:
    connection = live(4)
    topic = "x" * (limits.MQTT_SHAPE_BYTES_MAX + 1)
    (run,) = runs(connection, *(publish(4, topic, b"x" * size) for size in (1, 1, 2)))
    assert run.count == 3
    _, again = runs(connection, publish(4, "other", b""), publish(4, topic, b"x"))
    assert again.shape is not run.shape


def test_error_after_a_run_is_reported_after_the_run() -> None:
    run, lost = runs(live(5), publish(5, "t", b"1"), publish(5, "t", b"22"), bytes.fromhex("3003 000123"))
    assert run.payloads == [b"1", b"22"]
    assert type(lost).__name__ == "ConnectionLost"


def test_packet_id_0_inside_a_run_closes_after_the_packets_before() -> None:
    wire = b"".join(publish(4, "t", b"x", i) for i in (1, 2, 3, 4)).replace(b"t\0\3", b"t\0\0")
    found = live(4).receive(wire, 1.0)
    assert [event[:2] for event in flat(found)[:2]] == [("publish", "t")] * 2
    assert (len(flat(found)), found[-1].reason_code) == (3, 0x82)


def test_cut_run_without_a_stride_keeps_ids_and_payloads() -> None:
    (run,) = runs(live(4), *(publish(4, "t", b"x" * i, i) for i in (1, 2, 3)))
    part = run.cut(2)
    assert (part.count, part.packet_ids, part.payloads) == (2, [1, 2], [b"x", b"xx"])
    assert (part.wire, part.stride_bytes) == (b"", 0)


def test_lone_publishes_of_any_size_are_what_they_are_one_by_one() -> None:
    """As a device sends them that waits for each PUBACK, over the borders of the remaining length."""
    sizes = [5, 5, 0, 1, 117, 118, 119, 120, 121, 500, 3, 16_370, 16_371, 16_372, 16_400, 7, 7]
    for version in (4, 5):
        for properties in (Properties(), Properties(content_type="x", user_properties=[("k", "v")])):
            kept = properties if version == 5 else Properties()
            alone, parsed = live(version), live(version)
            for number, size in enumerate(sizes, 1):
                wire = publish(version, "a/topic", b"%d" % (number % 10) * size, number, properties=kept)
                found = flat(alone.receive(wire, 1.0))
                halves = parsed.receive(wire[:3], 1.0) + parsed.receive(wire[3:], 1.0)
                assert found == flat(halves)
                assert found[0][-1] == b"%d" % (number % 10) * size


def test_publishes_to_topics_that_take_turns_are_what_they_are_one_by_one() -> None:
    """As somebody sends them who commands many devices, over the borders of the remaining length."""
    sizes = [5, 5, 0, 117, 120, 500, 3, 16_370, 16_371, 16_372, 16_400, 7, 7]
    topics = ["a", "a", "a/longer/topic", "b", "c", "a/longer/topic", "b", "b", "c"]
    for version in (4, 5):
        for properties in (Properties(), Properties(content_type="x", user_properties=[("k", "v")])):
            kept = properties if version == 5 else Properties()
            together, parsed = live(version), live(version)
            for turn in range(4):
                wires = [
                    publish(version, topic, b"%d" % (number % 10) * size, number, properties=kept)
                    for number, (size, topic) in enumerate(zip(sizes * 9, topics * 13, strict=True), 1)
                ]
                wires[5] = publish(version, "a/longer/topic", b"at QoS 0")
                if turn == 3 and version == 5:  # another property block than the topic is known with
                    wires[7] = publish(5, "b", b"z", 8, properties=Properties(content_type="y"))
                together_found = flat(together.receive(b"".join(wires), 1.0))
                assert together_found == flat([run for wire in wires for run in parsed.receive(wire, 1.0)])
                for connection in (together, parsed):
                    connection.send_puback_run(list(range(1, len(wires))))


def test_publishes_to_topics_that_take_turns_keep_to_the_receive_maximum() -> None:
    connection = live(5, offer=Offer(receive_maximum=6))
    topics = [publish(5, topic, b"x", number) for number, topic in enumerate("abcdef", 1)]
    assert len(runs(connection, *topics)) == 6
    connection.send_puback_run([1, 2, 3])
    *taken, lost = connection.receive(b"".join(topics[:4]), 1.0)
    assert [run.packet_ids for run in taken] == [[1], [2], [3]]
    assert lost.reason_code == 0x93


def test_packet_id_0_among_topics_that_take_turns_ends_the_connection_there() -> None:
    connection = live(4)
    runs(connection, *(publish(4, topic, b"x", 1) for topic in "abcd"))
    wrong = bytearray(publish(4, "c", b"x", 1))
    wrong[5:7] = b"\0\0"
    *taken, lost = runs(connection, publish(4, "a", b"x", 1), publish(4, "b", b"x", 2), bytes(wrong))
    assert [run.shape.topic for run in taken] == ["a", "b"]
    assert "packet identifier" in lost.reason  # type: ignore[attr-defined]


def test_lone_publish_that_differs_otherwise_is_told_apart() -> None:
    for version in (4, 5):
        connection = live(version)
        connection.receive(publish(version, "a/topic", b"12", 1), 1.0)
        for topic, payload in (
            ("a/topik", b"123"),
            ("a/topic", b"1234"),
            ("a/topi", b"c12345"),
            ("a", b"/topic"),
        ):
            ((_, got_topic, *_, got_payload),) = flat(
                connection.receive(publish(version, topic, payload, 2), 1.0)
            )
            assert (got_topic, got_payload) == (topic, payload)


def test_lone_publish_beyond_the_packet_size_is_refused() -> None:
    connection = live(4, offer=Offer(packet_bytes_max=1_024))
    connection.receive(publish(4, "t", b"1", 1), 1.0)
    (lost,) = connection.receive(publish(4, "t", b"1" * 1_100, 2), 1.0)
    assert lost.reason_code == 0x95


def test_publishes_of_varied_sizes_are_what_they_are_one_by_one() -> None:
    """As a device sends them that does not wait for each PUBACK, over the borders of the remaining length."""
    sizes = [5, 7, 0, 117, 120, 118, 500, 3, 16_370, 16_371, 16_372, 16_400, 7, 7, 9, 8]
    for version, qos in itertools.product((4, 5), (0, 1, 2)):
        for properties in (Properties(), Properties(content_type="x", user_properties=[("k", "v")])):
            kept = properties if version == 5 else Properties()
            wires = [
                encode_packet(
                    p.Publish("a", b"x" * size, qos=qos, packet_id=number if qos else 0, properties=kept),
                    version,
                )
                for number, size in enumerate(sizes, 1)
            ]
            together, single = live(version), live(version)
            for _ in range(1 if qos == 2 else 2):  # of a shape that is not known, and of one that is
                found = together.receive(b"".join(wires), 1.0)
                assert flat(found) == flat([event for wire in wires for event in single.receive(wire, 1.0)])
                assert b"".join(run.wire for run in found) == b"".join(wires)


def test_places_of_a_run_of_varied_sizes_are_those_of_its_packets() -> None:
    for version in (4, 5):
        wire = [
            publish(version, "topic", b"%d" % number * size, number) for number, size in ((1, 3), (2, 200))
        ]
        connection = live(version)
        for _ in range(2):
            (run,) = runs(connection, *wire)
            for (at, begin, end), number, size in zip(run.places, (1, 2), (3, 200), strict=True):
                assert run.wire[at : at + 2] == bytes((0, number))
                assert run.wire[begin:end] == b"%d" % number * size


def test_many_of_one_size_behind_varied_ones_are_a_run_with_a_stride() -> None:
    for version in (4, 5):
        sizes = [1, 2, 3] + [4] * 1_000
        found = runs(live(version), *(publish(version, "t", b"x" * s, i) for i, s in enumerate(sizes, 1)))
        assert [run.stride_bytes > 0 for run in found] == [False, True]
        assert [payload for run in found for payload in run.payloads] == [b"x" * size for size in sizes]


def test_a_varied_run_ends_before_a_packet_that_is_wrong_or_cut_short() -> None:
    good = [publish(5, "t", b"x" * size, 1 + size) for size in (3, 1, 2)]
    for bad in (b"\x32\x85\x00\x00\x01t\x00\x01\x00", b"\x32\x03\x00\x01t", b"\x32\x05\x00\x01t\x00\x00\x00"):
        connection = live(5)
        runs(connection, *good)
        (run, lost) = runs(connection, *good, bad)
        assert run.payloads == [b"xxx", b"x", b"xx"]
        assert type(lost).__name__ == "ConnectionLost"
    connection = live(5)
    (run,) = runs(connection, *good, good[0][:-1])
    assert run.count == 3
    (run,) = runs(connection, good[0][-1:])
    assert run.payloads == [b"xxx"]
