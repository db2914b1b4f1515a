"""Deliveries taken many at a time are what they are one by one, however the bytes come in."""

import struct
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge import wire
from spark_bridge.link import Link
from spark_bridge.runs import RunReader


class Reader(RunReader):
    """Without a socket."""

    def __init__(self):
        self.runs = deque()
        self.deliveries = deque()
        self.learned = 0
        self._pattern = None
        self._patience = 1
        self._ignored = 0
        self._address = (b"", "", "")
        self._content = None
        self._in = bytearray()

    def delivered(self, content):
        self.learned += 1
        super().delivered(content)

    def feed(self, data):
        self._in += data
        Link._digest(self)


def delivery(tag, offset, time_ms, body, *, key="s", properties=(), headers=(), time_first=True):
    numbers = [("x-stream-timestamp", time_ms), ("x-stream-offset", offset)]
    table = dict(headers) | dict(numbers if time_first else reversed(numbers))
    method = wire.short("ctag") + struct.pack(">QB", tag, 0) + wire.short("") + wire.short(key)
    values = wire.encode_properties({"headers": table, **dict(properties)})
    parts = [wire.method(1, 60, 60, method), wire.content_header(1, len(body), values)]
    parts += [wire.frame(wire.BODY, 1, body[start : start + 8]) for start in range(0, len(body), 8)]
    return b"".join(parts)


def rows(reader):
    return [
        (run.routing_key, *row, run.properties["headers"].get("own"))
        for run in reader.runs
        for row in zip(run.offsets, run.times_ms, run.message_ids, run.bodies, strict=True)
    ]


messages = st.lists(
    st.tuples(
        st.sampled_from(["s", "t"]),
        st.integers(0, 2**56),
        st.integers(0, 2**50),
        st.sampled_from([None, "", "a", "b", "Ω", "x-stream-offset", "aa"]),
        st.sampled_from([b"", b"x", b"y", b"\xce" * 3, b"long enough for two"]),
        st.sampled_from([None, "1", "x-stream-offsetl"]),
    ),
    max_size=30,
).map(lambda found: [message for message in found for _ in range(3)])


@given(messages, st.booleans(), st.integers(1, 400))
def test_nothing_is_read_otherwise_than_alone(wanted, time_first, piece_bytes):
    data = b"".join(
        delivery(
            tag,
            offset,
            time_ms,
            body,
            key=key,
            properties={} if message_id is None else {"message_id": message_id},
            headers={} if own is None else {"own": own},
            time_first=time_first,
        )
        for tag, (key, offset, time_ms, message_id, body, own) in enumerate(wanted, 1)
    )
    reader = Reader()
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])
    assert rows(reader) == wanted
    assert [run.tag for run in reader.runs][-1:] == [len(wanted)][: len(wanted)]


@pytest.mark.parametrize("name", ["", "id-{:04}"])
def test_what_is_alike_is_read_at_once(name):
    reader = Reader()
    properties = [{"message_id": name.format(number)} if name else {} for number in range(1_000)]
    reader.feed(b"".join(delivery(n + 1, n, 7, b"x%04d" % n, properties=properties[n]) for n in range(1_000)))
    assert reader.learned == 1
    assert [row[1] for row in rows(reader)] == list(range(1_000))
    assert rows(reader)[-1] == ("s", 999, 7, name.format(999) or None, b"x0999", None)


def test_what_differs_each_time_is_not_learned_each_time():
    reader = Reader()

    for number in range(500):
        reader.feed(delivery(number + 1, number, 7, b"x", key=f"{number}"))

    assert reader.learned == 500
    assert reader._patience == 64
