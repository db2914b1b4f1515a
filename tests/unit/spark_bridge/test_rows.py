"""Rows to frames, read back by another AMQP implementation."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from spark_bridge import wire
from spark_bridge.columns import check_columns
from spark_bridge.errors import SluiceError
from spark_bridge.options import write_settings
from spark_bridge.rows import RowEncoder


class Column:
    """As pyarrow's."""

    def __init__(self, values):
        self.values = values
        self.null_count = values.count(None)

    def to_pylist(self):
        return self.values


class Batch:
    """As pyarrow's."""

    def __init__(self, *columns):
        self.columns = columns

    def column(self, index):
        return Column(list(self.columns[index]))


def encoded(columns, *values, tag=None, limit=100, **options):
    """(publish, properties, body) of each row."""
    settings = write_settings({"queue": "q", **options})
    encoder = RowEncoder(settings, check_columns(columns, settings), limit, tag or {})
    batch = Batch(*values)
    found = []
    for row in encoder.encode(batch, encoder.payloads(batch)):
        rest, content = row, b""
        publish = head = None
        while rest:
            used, channel, part = frame.unmarshal(rest)
            assert channel == 1
            rest = rest[used:]
            if isinstance(part, commands.Basic.Publish):
                publish = part
            elif isinstance(part, header.ContentHeader):
                head = part
            else:
                assert isinstance(part, body.ContentBody)
                content += part.value
        assert head.body_size == len(content)
        found.append((publish, head.properties, content))
    return found


PAYLOAD = ("payload", "binary")


def test_rows_with_only_a_body():
    first, large, empty = encoded([PAYLOAD], [b"x", b"y" * 250, b""], tag={"x-stage-part": 3})
    assert (first[0].exchange, first[0].routing_key, first[0].mandatory) == ("", "q", True)
    assert first[1].headers == {"x-stage-part": 3}
    assert first[1].delivery_mode == 2
    assert [row[2] for row in (first, large, empty)] == [b"x", b"y" * 250, b""]


def test_every_property():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = encoded(
        [
            PAYLOAD,
            ("headers", "map<string,string>"),
            ("priority", "int"),
            ("timestamp", "timestamp"),
            ("message_id", "string"),
            ("routing_key", "string"),
            ("content_type", "string"),
            ("expiration", "bigint"),
            ("correlation_id", "string"),
        ],
        [b"x", b"y"],
        [[("a", "1")], None],
        [5, None],
        [at, None],
        ["m", None],
        ["eu", None],
        ["t", None],
        [60, None],
        ["c", None],
        tag={"x-stage-part": 3},
    )
    full, bare = rows
    assert full[0].routing_key == "$queue/q/eu"
    assert bare[0].routing_key == "q"
    properties = full[1]
    assert properties.headers == {"a": "1", "x-stage-part": 3}
    assert (properties.priority, properties.timestamp, properties.message_id) == (5, at, "m")
    assert (properties.content_type, properties.expiration, properties.correlation_id) == ("t", "60", "c")
    assert bare[1].headers == {"x-stage-part": 3}
    assert bare[1].message_id is None


def test_exchanges_and_keys_by_row_and_by_option():
    columns = [PAYLOAD, ("exchange", "string"), ("routing_key", "string")]
    values = [b"x"], ["e"], ["k"]
    given = {"queue": "", "delivery": "at-least-once"}
    ((publish, _, _),) = encoded(columns, *values, **given)
    assert (publish.exchange, publish.routing_key) == ("e", "k")
    ((publish, _, _),) = encoded(columns, *values, **given, exchange="f", routingKey="l", mandatory="false")
    assert (publish.exchange, publish.routing_key, publish.mandatory) == ("f", "l", False)


def test_idempotent_rows_carry_their_id():
    ((_, properties, _),) = encoded([PAYLOAD, ("message_id", "string")], [b"x"], ["m"], delivery="idempotent")
    assert properties.headers == {"x-deduplication-id": "m"}
    with pytest.raises(SluiceError, match="message_id is null or empty"):
        encoded([PAYLOAD, ("message_id", "string")], [b"x"], [""], delivery="idempotent")


def test_delays_and_times_are_headers_beside_those_of_the_row():
    at = datetime(2026, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)
    rows = encoded(
        [PAYLOAD, ("delay", "int"), ("deliver_at", "timestamp"), ("headers", "map<string,string>")],
        [b"x", b"y", b"z"],
        [5, None, 0],
        [None, at, None],
        [[("a", "1")], None, None],
        tag={"x-stage-part": 3},
    )
    tag = {"x-stage-part": 3}
    assert [row[1].headers for row in rows] == [
        {"a": "1", "x-delay": 5, **tag},
        {"deliver-at": 1_767_225_600_001, **tag},
        {"x-delay": 0, **tag},
    ]


@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        ([PAYLOAD], ([b"x", None],), "payload is null in 1 rows"),
        ([PAYLOAD, ("priority", "int")], ([b"x"], [300]), "priority is 0 to 255"),
        ([PAYLOAD, ("message_id", "string")], ([b"x"], ["m" * 300]), "column message_id: .* AMQP takes 255"),
        ([PAYLOAD, ("routing_key", "string")], ([b"x"], ["k" * 300]), "column routing_key .* AMQP takes 255"),
        (
            [PAYLOAD, ("timestamp", "timestamp")],
            ([b"x"], [datetime(1960, 1, 1, tzinfo=UTC)]),
            "column timestamp is 1970 or later",
        ),
        ([PAYLOAD, ("delay", "int")], ([b"x"], [-1]), "column delay is 0 or more"),
        (
            [PAYLOAD, ("deliver_at", "timestamp")],
            ([b"x"], [datetime(1960, 1, 1, tzinfo=UTC)]),
            "column deliver_at is 1970 or later",
        ),
    ],
)
def test_values_that_are_refused(columns, values, reason):
    with pytest.raises(SluiceError, match=reason):
        encoded(columns, *values)


fields = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=10),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("key", ["$commit", "eu/$nack", "$queue/b1/$ack"])
def test_key_that_would_settle_messages_is_refused(key):
    with pytest.raises(SluiceError, match="settles messages"):
        encoded([PAYLOAD, ("routing_key", "string")], [b"x"], [key])


@given(st.dictionaries(st.text(max_size=10), fields, max_size=4))
def test_tables_there_and_back(values):
    assert wire.Reader(wire.table(values)).table() == values


@given(st.binary(max_size=30))
def test_random_properties_end_in_a_wire_error(data):
    try:
        wire.decode_properties(data, 0)
    except (wire.WireError, OverflowError, ValueError, OSError):
        pass
