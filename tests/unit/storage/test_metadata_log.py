from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import metadata_log
from storage.batch import WriteOps
from storage.errors import CorruptRecord
from storage.metadata_log import MetadataLog, SegmentMeta
from storage.records import metadata
from storage.sequence import SeqBlock, decode_block
from tests.memory_store import MemoryStore
from tests.unit.storage.record_checks import T0, unhex

K = b"opendata-queue/i1/messages/metadata/0"
ENTRY = unhex(
    "02 00 01 10 00 00 00 00 00 00 02 00 00 00 7b 7d02 10 00 00 00 00 00 00 07 00 00 00 7b 22 70 22 3a 31 7d"
)
META_KEY = unhex("03 01 00 00 00 00 30 00 00 00 01")
HOUR_MS = 3_600_000


def append(log, ops, entries, now_ms):
    """Append one entry per (log ID, value) in one batch, as a commit does; give the first sequence."""
    first, puts = log.allocate(len(entries), now_ms)
    for sequence, (log_id, value) in enumerate(entries, first):
        listing = log.listing(log_id)
        puts += [] if listing is None else [listing]
        puts.append((log.entry_key(log_id, sequence), value))
    ops.puts.extend(puts)
    return first


def test_first_append_matches_the_documented_vector():
    log = MetadataLog("i1")
    ops = WriteOps()
    value = metadata.encode([(4_097, b"{}"), (4_098, b'{"p":1}')])
    assert append(log, ops, [("0", value)], T0) == 0
    assert ops.puts == [
        (unhex("03 01 00 00 00 00 20"), unhex("00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00")),
        (META_KEY, unhex("00 00 00 00 00 00 00 00 00 00 01 9b 76 da a8 00")),
        (unhex("03 01 00 00 00 01 40") + K, b""),
        (unhex("03 01 00 00 00 01 10") + K + unhex("00 00"), ENTRY),
    ]
    assert ops.deletes == []


def test_later_keys_match_the_documented_vectors():
    log = MetadataLog("i1", segments=[SegmentMeta(1, 0, T0)], stored_block=SeqBlock(0, 5_000))
    assert log.entry_key("0", 300) == unhex("03 01 00 00 00 01 10") + K + unhex("00 11 2c")
    two = MetadataLog.recover(
        "i1",
        [
            (META_KEY, unhex("00 00 00 00 00 00 00 00 00 00 01 9b 76 da a8 00")),
            (
                unhex("03 01 00 00 00 00 30 00 00 00 02"),
                unhex("00 00 00 00 00 00 13 88 00 00 01 9b 77 11 96 80"),
            ),
        ],
        SeqBlock(0, 8_192),
    )
    assert two.segments == [SegmentMeta(1, 0, T0), SegmentMeta(2, 5_000, T0 + HOUR_MS)]
    assert two.entry_key("0", 5_005) == unhex("03 01 00 00 00 02 10") + K + unhex("00 05")
    assert two.entry_key("0", 300) == unhex("03 01 00 00 00 01 10") + K + unhex("00 11 2c")
    assert metadata_log.encode_segment_meta(two.segments[1]) == unhex(
        "00 00 00 00 00 00 13 88 00 00 01 9b 77 11 96 80"
    )


def test_second_append_puts_only_the_entry():
    log = MetadataLog()
    append(log, WriteOps(), [("q1", b"a")], T0)
    ops = WriteOps()
    assert append(log, ops, [("q1", b"b")], T0 + HOUR_MS) == 1
    assert ops.puts == [(log.entry_key("q1", 1), b"b")]
    ops = WriteOps()
    assert append(log, ops, [("q2", b"c"), ("q1", b"d")], T0) == 2
    assert [key[6] for key, _ in ops.puts] == [0x40, 0x10, 0x10]
    assert log.next_sequence == 4


def test_instance_is_part_of_the_key():
    assert metadata_log.log_key("node-2", "q7") == b"opendata-queue/node-2/messages/metadata/q7"
    assert metadata_log.parse_log_key(metadata_log.log_key("node-2", "q7")) == ("node-2", "q7")


@pytest.mark.parametrize("name", ["", "a/b", "é", "x" * 65, "a b", "a\n"])
def test_invalid_names_in_a_log_key_are_refused(name):
    with pytest.raises(ValueError):
        metadata_log.log_key("i1", name)
    with pytest.raises(ValueError):
        MetadataLog(name)


@pytest.mark.parametrize(
    "raw", [b"", b"opendata-queue/i1/messages/metadata/", b"opendata-queue/i1/messages/metadata/a/b", b"\xff"]
)
def test_malformed_log_keys_are_refused(raw):
    with pytest.raises(CorruptRecord):
        metadata_log.parse_log_key(raw)


def test_listing_key_round_trips_and_refuses_damage():
    key = metadata_log.listing_key(3, K)
    assert metadata_log.parse_listing_key(key) == (3, K)
    low, high = metadata_log.listing_bounds(3)
    assert low < key < high
    for damaged in (key[:5], metadata_log.SEQ_BLOCK_KEY, b"\x01" + key[1:]):
        with pytest.raises(CorruptRecord):
            metadata_log.parse_listing_key(damaged)


def test_malformed_segment_record_is_refused():
    value = metadata_log.encode_segment_meta(SegmentMeta(1, 0, T0))
    assert metadata_log.decode_segment_meta(META_KEY, value) == SegmentMeta(1, 0, T0)
    for length in range(len(value)):
        with pytest.raises(CorruptRecord):
            metadata_log.decode_segment_meta(META_KEY, value[:length])
    for length in range(len(META_KEY)):
        with pytest.raises(CorruptRecord):
            metadata_log.decode_segment_meta(META_KEY[:length], value)
    low, high = metadata_log.segment_meta_bounds()
    assert low == META_KEY
    assert high > META_KEY


@pytest.mark.parametrize(
    "segments",
    [
        [SegmentMeta(1, 10, T0), SegmentMeta(2, 5, T0)],
        [SegmentMeta(1, 5, T0), SegmentMeta(2, 5, T0)],
        [SegmentMeta(1, 5_000, T0)],
    ],
)
def test_segments_that_contradict_each_other_are_corrupt(segments):
    with pytest.raises(CorruptRecord):
        MetadataLog(segments=segments, stored_block=SeqBlock(0, 4_096))


def test_scan_bounds_are_exact():
    log = MetadataLog(segments=[SegmentMeta(1, 0, T0)], stored_block=SeqBlock(0, 8_192))
    (bounds,) = log.scan_bounds("q1", 10, 4_096)
    wanted = [n for n in (0, 9, 10, 15, 300, 4_095, 4_096) if 10 <= n < 4_096]
    keys = {n: log.entry_key("q1", n) for n in (0, 9, 10, 15, 300, 4_095, 4_096)}
    assert [n for n, key in keys.items() if bounds.start <= key < bounds.end] == wanted
    assert [bounds.sequence(keys[n]) for n in wanted] == wanted
    with pytest.raises(CorruptRecord):
        bounds.sequence(keys[15] + b"\x00")
    assert log.scan_bounds("q1", 10, 10) == []
    assert MetadataLog().scan_bounds("q1") == []


def test_scan_bounds_name_only_the_segments_needed():
    segments = [SegmentMeta(1, 5, T0), SegmentMeta(2, 10, T0), SegmentMeta(4, 20, T0)]
    log = MetadataLog(segments=segments, stored_block=SeqBlock(0, 4_096))

    def numbers(*args):
        return [bounds.segment.segment_id for bounds in log.scan_bounds("q1", *args)]

    assert numbers() == [1, 2, 4]
    assert numbers(10) == [2, 4]
    assert numbers(9, 11) == [1, 2]
    assert numbers(10, 20) == [2]
    assert numbers(25, 30) == [4]
    assert numbers(0, 5) == []


async def scan_log(store, log, log_id, *args):
    found = []
    for bounds in log.scan_bounds(log_id, *args):
        rows = await store.scan(bounds.start, bounds.end, limit=10_000)
        found += [(bounds.sequence(key), value) for key, value in rows]
    return found


async def recover(store):
    block = await store.get(metadata_log.SEQ_BLOCK_KEY)
    segments = await store.scan(*metadata_log.segment_meta_bounds(), limit=1_000)
    return MetadataLog.recover("i1", segments, None if block is None else decode_block(block))


async def begin_segment(store, log):
    """Have what comes next be in another segment, as a program that ends segments does."""
    if log.segments:
        segment = SegmentMeta(log.segments[-1].segment_id + 1, log.next_sequence, T0)
        key = metadata_log.segment_meta_key(segment.segment_id)
        await store.write(WriteOps([(key, metadata_log.encode_segment_meta(segment))]))


@given(
    st.lists(st.lists(st.sampled_from(["q1", "q2", "q10"]), min_size=1, max_size=4), max_size=15), st.data()
)
async def test_logs_read_back_across_segments_and_restarts(batches, data):
    store = MemoryStore()
    log = MetadataLog()
    expected: dict[str, list[Any]] = {"q1": [], "q2": [], "q10": []}
    for number, log_ids in enumerate(batches):
        ops = WriteOps()
        entries = [(log_id, b"%d/%d" % (number, index) + b"." * 9) for index, log_id in enumerate(log_ids)]
        first = append(log, ops, entries, T0 + number)
        assert len({key for key, _ in ops.puts}) == len(ops.puts)
        await store.write(ops)
        for sequence, (log_id, value) in enumerate(entries, first):
            expected[log_id].append((sequence, value))
        if data.draw(st.booleans()):
            store = store.crash()
            log = await recover(store)
            if data.draw(st.booleans()):
                await begin_segment(store, log)
                log = await recover(store)
    for log_id, entries in expected.items():
        assert await scan_log(store, log, log_id) == entries
        low = data.draw(st.integers(0, 10))
        high = data.draw(st.integers(0, 50_000))
        assert await scan_log(store, log, log_id, low, high) == [e for e in entries if low <= e[0] < high]


async def test_recovered_log_goes_on_behind_its_block_and_lists_once_more():
    store = MemoryStore()
    ops = WriteOps()
    append(MetadataLog(), ops, [("q1", b"a")], T0)
    await store.write(ops)
    log = await recover(store)
    assert log.next_sequence == 4_096
    assert log.listing("q1") == (metadata_log.listing_key(1, metadata_log.log_key("i1", "q1")), b"")
    assert log.listing("q1") is None
    ops = WriteOps()
    assert append(await recover(store), ops, [("q1", b"b")], T0) == 4_096
    assert [key[6] for key, _ in ops.puts] == [0x20, 0x40, 0x10]
