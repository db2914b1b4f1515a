"""Messages of a list, read many at a time or field by field: the same rows."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from spark_bridge import wire
from spark_bridge.link import Content
from spark_bridge.listed import KNOWN_MAX, ListLink

TEXT = st.text(max_size=6)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXT,
        "content_encoding": TEXT,
        "headers": st.dictionaries(TEXT, TEXT | st.integers(0, 9), max_size=2),
        "delivery_mode": st.just(2),
        "priority": st.integers(0, 9),
        "correlation_id": TEXT,
        "reply_to": TEXT,
        "expiration": TEXT,
        "message_id": TEXT,
        "type": TEXT,
    },
)
TOLD = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["ready", "failed"]),
        "routing-key": TEXT,
        "offset": st.integers(-1, 2**40),
        "attempts": st.integers(0, 5),
        "timestamp": st.integers(0, 2**42),
        "id": TEXT,
    },
    optional={"exchange": TEXT, "time": st.integers(1, 2**42), "consumer": TEXT},
)
ORDER = ("state", "routing-key", "exchange", "offset", "attempts", "timestamp", "id", "time", "consumer")
ROWS = st.lists(st.tuples(PROPERTIES, TOLD, st.binary(max_size=5)), min_size=1, max_size=4)
METHOD = (
    struct.pack(">HH", 60, 60) + wire.short("tag") + struct.pack(">QB", 1, 0) + b"\0" + wire.short("reply")
)


class Unconnected(ListLink):
    """One that is fed by hand."""

    def _connect(self):
        pass


def fed(*parts):
    """A link that was given these bytes."""
    link = Unconnected(None)
    for part in parts:
        link._in += part
        link._digest()
    return link


def header_of(properties, told, body):
    entries = {f"x-browse-{name}": told[name] for name in ORDER if name in told}
    headers = {**properties.get("headers", {}), **entries}
    return wire.encode_properties({**properties, "headers": headers})


def frames(properties, told, body):
    raw = header_of(properties, told, body)
    parts = [wire.frame(wire.METHOD, 1, METHOD), wire.content_header(1, len(body), raw)]
    return b"".join([*parts, wire.frame(wire.BODY, 1, body) if body else b""])


@given(ROWS)
def test_rows_are_what_their_fields_say(rows):
    found = fed(b"".join(frames(*row) for row in rows)).take_rows()
    slow = Unconnected(None)
    for properties, told, body in rows:
        content = Content((60, 60), METHOD)
        content.header = struct.pack(">HHQ", 60, 0, len(body)) + header_of(properties, told, body)
        content.parts.append(body)
        slow.delivered(content)
    assert found == slow.take_rows()
    assert [(row.body, row.offset) for row in found] == [(body, told["offset"]) for _, told, body in rows]


TOLD_ONCE = {"state": "ready", "routing-key": "q", "offset": 3, "attempts": 0, "timestamp": 5, "id": "q:3"}


def test_a_message_that_comes_in_two_parts_is_one_row():
    data = frames({}, TOLD_ONCE, b"body")
    for cut in range(1, len(data)):
        assert [row.offset for row in fed(data + data[:cut], data[cut:]).rows] == [3, 3], cut


def test_what_was_learned_is_bounded():
    rows = [frames({"headers": {"n": number}}, TOLD_ONCE, b"x") for number in range(KNOWN_MAX + 5)]
    link = fed(b"".join(rows))
    assert [row.headers for row in link.rows] == [[("n", str(number))] for number in range(KNOWN_MAX + 5)]
    assert 0 < len(link._known) <= KNOWN_MAX
