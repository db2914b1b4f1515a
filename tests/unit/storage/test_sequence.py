import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord, StorageError
from storage.sequence import BLOCK_SIZE, SeqBlock, SequenceAllocator, decode_block, encode_block
from tests.unit.storage.record_checks import check_strict, unhex

FIRST = unhex("00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00")
SECOND = unhex("00 00 00 00 00 00 10 00 00 00 00 00 00 00 10 00")
KEY = b"\x01\x07"


def test_blocks_match_the_documented_vectors():
    allocator = SequenceAllocator(KEY)
    assert allocator.allocate(4_086) == (0, (KEY, FIRST))
    assert allocator.allocate(25) == (4_086, (KEY, SECOND))
    assert allocator.next_value == 4_111
    assert allocator.allocate(1) == (4_111, None)


def test_restart_continues_after_the_stored_block():
    allocator = SequenceAllocator(KEY, decode_block(FIRST))
    assert allocator.next_value == 4_096
    assert allocator.allocate(1) == (4_096, (KEY, SECOND))


def test_exactly_exhausted_block_needs_no_put():
    allocator = SequenceAllocator(KEY)
    allocator.allocate(1)
    assert allocator.allocate(4_095) == (1, None)
    assert allocator.allocate(1) == (4_096, (KEY, SECOND))


def test_oversized_allocation_makes_an_oversized_block():
    allocator = SequenceAllocator(KEY)
    allocator.allocate(4_000)
    first, put = allocator.allocate(10_000)
    assert first == 4_000
    assert put is not None
    assert decode_block(put[1]) == SeqBlock(4_096, 9_904)
    assert allocator.allocate(1)[0] == 14_000


@pytest.mark.parametrize("count", [0, -1])
def test_allocating_nothing_is_refused(count):
    with pytest.raises(ValueError, match="cannot allocate"):
        SequenceAllocator(KEY).allocate(count)


def test_exhausted_sequence_is_refused_and_stays():
    allocator = SequenceAllocator(KEY, SeqBlock(2**64 - 5_000, 4_096))
    assert allocator.next_value == 2**64 - 904
    with pytest.raises(StorageError, match="exhausted"):
        allocator.allocate(1)
    assert allocator.next_value == 2**64 - 904


@given(st.integers(0, 2**63), st.integers(0, 2**62))
def test_block_round_trips(base, size):
    value = encode_block(SeqBlock(base, size))
    assert decode_block(value) == SeqBlock(base, size)
    check_strict(decode_block, value)


def test_block_beyond_the_last_number_is_corrupt():
    with pytest.raises(CorruptRecord):
        decode_block(b"\xff" * 16)


@given(st.lists(st.integers(1, 6_000), max_size=12), st.randoms(use_true_random=False))
def test_no_number_is_used_twice_over_crashes(counts: list[int], rng: random.Random):
    stored: bytes | None = None  # what the store holds durably
    end_of_durable = 0  # numbers below were used by records that are durable
    allocator = SequenceAllocator(KEY)
    for count in counts:
        first, put = allocator.allocate(count)
        assert first >= end_of_durable
        if rng.random() < 0.3:  # crash before the batch is durable: the put and the records are lost together
            allocator = SequenceAllocator(KEY, None if stored is None else decode_block(stored))
            assert allocator.next_value >= end_of_durable
            continue
        if put is not None:
            stored = put[1]
        end_of_durable = first + count
        if rng.random() < 0.3:  # crash after it
            allocator = SequenceAllocator(KEY, decode_block(stored))
            assert allocator.next_value - end_of_durable < BLOCK_SIZE
