"""Publishes: the three ways of decoding agree, and the caches are bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from protocols.amqp091.events import PublishRun, VariedPublishRun
from protocols.amqp091.publishes import PublishReader, parse_address
from protocols.errors import ProtocolError
from tests.unit.protocols.amqp091.driver import feed, flat, publish, running
from tests.vectors import amqp


def test_equal_publishes_make_one_run_with_one_shape():
    conn = running()
    first = feed(conn, amqp.HELLO_TO_Q * 30)
    second = feed(conn, amqp.HELLO_TO_Q * 30)
    assert len(first) == len(second) == 1
    assert first[0].bodies == [b"hello"] * 30
    assert first[0].shape is second[0].shape
    shape = first[0].shape
    assert (shape.address.exchange, shape.address.routing_key, shape.address.mandatory) == ("", "q", False)
    assert shape.properties == b"\x10\x00\x02"


def test_publishes_of_different_sizes_make_one_run():
    conn = running()
    data = b"".join(publish(1, "q", b"x" * size, delivery_mode=2) for size in (5, 5, 5, 6, 0, 9000, 7, 7))
    (run,) = feed(conn, data)
    assert [len(body) for body in run.bodies] == [5, 5, 5, 6, 0, 9000, 7, 7]


def test_shapes_with_different_properties_share_the_address():
    conn = running()
    runs = feed(conn, b"".join(publish(1, "q", b"x", message_id=f"m{at}") for at in range(5)))
    assert len(runs) == 5
    assert len({id(run.shape.address) for run in runs}) == 1
    runs[0].shape.address.context = "routes"
    (again,) = feed(conn, publish(1, "q", b"y", message_id="m99"))
    assert again.shape.address.context == "routes"


def test_other_frames_in_between_end_the_run():
    conn = running(channels=2)
    other = publish(2, "q", b"hello", delivery_mode=2)
    one = amqp.HELLO_TO_Q
    events = feed(conn, one * 4 + amqp.ACK_7 + one * 4 + other * 4 + one)
    assert [type(event).__name__ for event in events] == [
        "PublishRun",
        "SettleRun",
        "PublishRun",
        "PublishRun",
        "PublishRun",
    ]
    assert [len(run.bodies) for run in events if isinstance(run, PublishRun)] == [4, 4, 4, 1]
    assert [run.channel for run in events if isinstance(run, PublishRun)] == [1, 1, 2, 1]


def test_publishes_to_a_closed_channel_are_discarded_then_refused():
    conn = running()
    feed(conn, amqp.HELLO_TO_Q * 5)
    conn.fail_channel(1, 404, "no exchange")
    assert feed(conn, amqp.HELLO_TO_Q * 5) == []
    (closed,) = feed(conn, amqp.CHANNEL_1_CLOSE_OK)
    (lost,) = feed(conn, amqp.HELLO_TO_Q)
    assert lost.code == 504


def test_chunk_split_anywhere_gives_at_most_two_runs():
    data = amqp.HELLO_TO_Q * 12
    for cut in range(len(data)):
        conn = running()
        events = feed(conn, data[:cut]) + feed(conn, data[cut:])
        assert sum(len(run.bodies) for run in events) == 12
        assert len(events) <= 2


def test_mandatory_flag_is_in_the_shape():
    conn = running()
    (run,) = feed(conn, amqp.PUBLISH_Q_MANDATORY + amqp.HEADER_0)
    assert run.shape.address.mandatory
    assert run.bodies == [b""]


def test_shape_caches_are_bounded():
    conn = running()
    reader = conn._publishes
    total = 2 * limits.AMQP_SHAPES_PER_CONNECTION_MAX + 10
    for at in range(total):
        feed(conn, publish(1, f"q{at}", b"x", delivery_mode=2))
        assert len(reader._addresses) <= limits.AMQP_SHAPES_PER_CONNECTION_MAX
    for at in range(total):
        feed(conn, publish(1, "q", b"x", message_id=str(at)))
        held = sum(len(address.shapes) for address in reader._addresses.values())
        assert held <= limits.AMQP_SHAPES_PER_CONNECTION_MAX


def varied_publishes(first: int, count: int) -> bytes:
    return b"".join(publish(1, "q", b"x", message_id=f"m{first + at}") for at in range(count))


def test_unrepeated_properties_make_one_run_and_are_not_cached():
    conn = running()
    feed(conn, varied_publishes(0, limits.AMQP_UNSEEN_SHAPES_MAX))
    (run,) = feed(conn, varied_publishes(100, 50))
    assert isinstance(run, VariedPublishRun)
    assert len(run.bodies) == len(run.properties) == len(run.modes) == 50
    assert len(run.address.shapes) == limits.AMQP_UNSEEN_SHAPES_MAX
    (again,) = feed(conn, varied_publishes(200, 50))
    assert again.address is run.address


def test_repeated_properties_are_cached_again():
    conn = running()
    feed(conn, varied_publishes(0, 2 * limits.AMQP_UNSEEN_SHAPES_MAX))
    same = publish(1, "q", b"x", message_id="same")
    first, run = feed(conn, same * 20)
    assert (type(first), len(first.bodies)) == (VariedPublishRun, 1)
    assert (type(run), len(run.bodies)) == (PublishRun, 19)
    (other,) = feed(conn, varied_publishes(100, 1))
    assert isinstance(other, PublishRun), "counted from the start again"


def test_varied_run_has_one_channel_and_one_address():
    conn = running(channels=2)
    feed(conn, varied_publishes(0, 2 * limits.AMQP_UNSEEN_SHAPES_MAX))
    data = [publish(1 + at // 3, "q", b"x", message_id=f"n{at}") for at in range(6)]
    assert [(run.channel, len(run.bodies)) for run in feed(conn, b"".join(data))] == [(1, 3), (2, 3)]


def test_malformed_properties_in_a_varied_run_are_refused():
    conn = running()
    feed(conn, varied_publishes(0, 2 * limits.AMQP_UNSEEN_SHAPES_MAX))
    good = publish(1, "q", b"x", message_id="m100")
    bad = publish(1, "q", b"x", message_id="m101").replace(b"\x04m101", b"\x05m101")
    run, lost = feed(conn, good + bad)
    assert run.bodies == [b"x"]
    assert lost.code == 502


def test_large_properties_are_not_cached():
    conn = running()
    headers = {"h": "x" * limits.AMQP_SHAPE_BYTES_MAX}
    (run,) = feed(conn, publish(1, "q", b"x", headers=headers))
    assert run.shape.address.shapes == {}


@pytest.mark.parametrize("payload", [b"", amqp.PUBLISH_Q[7:-2], amqp.PUBLISH_Q[7:-1] + b"\0"])
def test_malformed_publish_method_is_refused(payload):
    with pytest.raises(ProtocolError) as caught:
        parse_address(payload)
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (502, 60, 40)


def test_reader_without_a_publish_reads_nothing():
    assert PublishReader(4088, 4088).take(amqp.HELLO_TO_Q, 0) == 0


messages = st.builds(
    publish,
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(["q", "q", "other"]),
    st.sampled_from([b"hello", b"world", b"hello!", b"", b"x" * 5000, b"\xce" * 20]),
    mandatory=st.sampled_from([False, False, True]),
    message_id=st.sampled_from([None, None, "a", "b"]),
)
others = st.sampled_from([amqp.ACK_7, amqp.ACK_7 * 3, amqp.ACK_7_MULTIPLE, amqp.HEARTBEAT, amqp.NACK_7])
runs = st.tuples(messages | others, st.integers(1, 20)).map(lambda pair: pair[0] * pair[1])
numbers = iter(range(1 << 62))
varied = st.builds(
    lambda count, channel, key: b"".join(
        publish(channel, key, b"x" * (at % 3), message_id=f"m{next(numbers)}") for at in range(count)
    ),
    st.integers(1, 30),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(["q", "q", "other"]),
)


@given(st.lists(runs | varied, min_size=1, max_size=8), st.integers(1, 400))
def test_fast_and_split_decoding_agree(parts, piece_bytes):
    data = b"".join(parts)
    whole = flat(feed(running(channels=2), data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublishReader, "_take_content", lambda *_: 0)
        assert flat(feed(running(channels=2), data)) == whole
    cut = running(channels=2)
    pieces = []
    for start in range(0, len(data), piece_bytes):
        pieces += flat(feed(cut, data[start : start + piece_bytes]))
    assert pieces == whole
