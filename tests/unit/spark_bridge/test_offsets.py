"""Where queries begin, and what a batch of them is made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.errors import DataLost, OptionError, SluiceError
from spark_bridge.offsets import Range, StreamEnds, kept, limited, ranges, starting_offsets
from spark_bridge.options import read_settings

counts = st.integers(0, 10_000)


class Broker:
    """As OffsetReader, with streams of given ends."""

    def __init__(self, **ends):
        self.streams = {name: StreamEnds(*both) for name, both in ends.items()}
        self.anchors = {}

    def ends(self, queue):
        return self.streams[queue]

    def at(self, queue, time_ms):
        return min(self.streams[queue].next, time_ms)

    def anchor(self, queue, group, start):
        return self.anchors.setdefault((queue, group), start)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {"a": 3, "b": 0}),
        ({"startingOffsets": '{"a": 5}'}, {"a": 5, "b": 0}),
        ({"startingOffsets": '{"a": 99}'}, {"a": 9, "b": 0}),
        ({"startingOffsets": "latest", "group": "g"}, {"a": "next", "b": "next"}),
        ({"startingOffsets": '{"b": 1}', "group": "g"}, {"a": "first", "b": 1}),
        ({"startingTimestamp": "4"}, {"a": 4, "b": 2}),
        ({"startingTimestamp": "1970-01-01T01:00:00.005+01:00", "group": "g"}, {"a": 5, "b": 2}),
    ],
)
def test_where_a_query_begins(options, wanted):
    settings = read_settings({"queue": "a, b", **options}, streaming=True)
    assert starting_offsets(settings, Broker(a=(3, 9), b=(0, 2))) == wanted


@pytest.mark.parametrize(
    ("options", "streaming", "reason"),
    [
        ({}, True, "option queue names"),
        ({"queue": "a,a"}, True, "several different"),
        ({"queue": "a", "startingOffsets": "latest"}, True, "latest needs option group"),
        ({"queue": "a", "startingOffsets": "latest"}, False, "would read nothing"),
        ({"queue": "a", "startingOffsets": '{"a": -1}'}, True, "option startingOffsets is"),
        ({"queue": "a", "startingOffsets": "[1]"}, True, "option startingOffsets is"),
        ({"queue": "a", "startingOffsets": '{"b": 1}'}, True, "names 'b'"),
        ({"queue": "a", "endingOffsets": "latest"}, True, "endingOffsets is for batch"),
        ({"queue": "a", "endingTimestamp": "1"}, True, "endingTimestamp is for batch"),
        ({"queue": "a", "startingTimestamp": "2026-01-01T00:00:00"}, True, "with its zone"),
        ({"queue": "a", "startingTimestamp": "-1"}, True, "startingTimestamp is ms"),
        ({"queue": "a", "startingTimestamp": "1", "startingOffsets": "earliest"}, True, "exclude each other"),
        ({"queue": "a", "group": "g"}, False, "group is for streaming"),
        ({"queue": "a", "offsetsPerPartition": "0"}, False, "offsetsPerPartition is a whole number"),
        ({"queue": "a", "delivery": "exactly-once"}, False, "unknown option delivery"),
        ({"queue": "a", "state": "failed"}, True, "state is for batch"),
    ],
)
def test_options_that_are_refused(options, streaming, reason):
    with pytest.raises(OptionError, match=reason):
        read_settings(options, streaming=streaming)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(counts, counts), min_size=1), st.integers(1, 500))
def test_ranges_cover_everything_once(streams, size):
    start = {name: low for name, (low, _) in streams.items()}
    end = {name: low + count for name, (low, count) in streams.items()}
    found = ranges(start, end, size)
    for name in streams:
        mine = [part for part in found if part.queue == name]
        assert [part.start for part in mine[1:]] == [part.end for part in mine[:-1]]
        assert sum(part.end - part.start for part in mine) == end[name] - start[name]
        assert all(0 < part.end - part.start <= size for part in mine)
        assert all(part.end % size == 0 for part in mine[:-1])


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(counts, counts), min_size=1), st.integers(1, 20_000))
def test_a_limit_is_kept_and_everything_comes_in_the_end(streams, most):
    start = {name: low for name, (low, _) in streams.items()}
    end = {name: low + count for name, (low, count) in streams.items()}
    upto = limited(start, end, most)
    assert all(start[name] <= upto[name] <= end[name] for name in streams)
    total = sum(upto[name] - start[name] for name in streams)
    assert total <= most + len(streams)
    assert total or start == end


def test_backwards_is_an_error():
    with pytest.raises(SluiceError, match="made anew"):
        ranges({"a": 5}, {"a": 4}, 10)
    with pytest.raises(SluiceError, match="made anew"):
        kept(Range("a", 0, 9), StreamEnds(0, 8), fail_on_data_loss=False)


def test_what_is_gone():
    wanted = Range("a", 10, 20)
    assert kept(wanted, StreamEnds(10, 20), fail_on_data_loss=True) == wanted
    with pytest.raises(DataLost, match="offsets 10 to 14"):
        kept(wanted, StreamEnds(15, 20), fail_on_data_loss=True)
    assert kept(wanted, StreamEnds(15, 20), fail_on_data_loss=False) == Range("a", 15, 20)
    assert kept(wanted, StreamEnds(20, 20), fail_on_data_loss=False) is None
