"""Offsets claimed out of order, against a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from queue_manager.log.claimed import ClaimedBitmap
from queue_manager.shard.commit import Commit
from storage.records import claimed_bitmap
from storage.records.special_codecs import CHUNK_OFFSETS

SPAN = 3 * CHUNK_OFFSETS
OFFSETS = st.integers(0, SPAN - 1) | st.integers(4_080, 4_110)
STEPS = st.lists(
    st.tuples(st.just("add"), st.lists(OFFSETS, max_size=20))
    | st.tuples(st.just("range"), st.tuples(OFFSETS, st.sampled_from([1, 5, 8, 100, 4_096, 9_000])))
    | st.tuples(st.sampled_from(["crash", "flush"]), st.none()),
    max_size=30,
)


@given(start=st.sampled_from([0, 3, 4_095, 5_000]), steps=STEPS)
def test_it_is_a_set(start: int, steps: list) -> None:
    bitmap = ClaimedBitmap(start)
    model = set(range(start))
    stored: dict[bytes, bytes] = {}
    kept = (start, set(model))
    for kind, what in steps:
        if kind == "add":
            offsets = [offset for offset in what if not bitmap.contains(offset)]
            bitmap.add(dict.fromkeys(offsets))
            model.update(offsets)
        elif kind == "range":
            first, count = what
            bitmap.add_range(first, first + count)
            model.update(range(first, first + count))
        else:
            if kind == "flush":
                commit = Commit()
                bitmap.flush("q", commit)
                stored.update(commit.puts)
                for key in commit.deletes:
                    stored.pop(key, None)
                kept = (bitmap.position, set(model))
            else:
                bitmap = ClaimedBitmap(kept[0])
                model = set(kept[1])
                for key, value in stored.items():
                    assert claimed_bitmap.parse_key(key).queue_id == "q"
                    bitmap.restore(claimed_bitmap.parse_key(key).chunk, claimed_bitmap.decode(value))
        while bitmap.position in model:
            raise AssertionError("the position is claimed")
        beyond = {offset for offset in model if offset >= bitmap.position}
        assert bitmap.count == len(beyond)
        assert set(range(bitmap.position)) <= model
        for offset in (0, 1, 4_095, 4_096, 5_001, 8_192, 11_000, bitmap.position, bitmap.position + 1):
            assert bitmap.contains(offset) == (offset in model)
            free = offset
            while free in model:
                free += 1
            assert bitmap.next_free(offset) == free
            assert bitmap.count_below(offset) == sum(bitmap.position <= o < offset for o in model)
        ranges = bitmap.ranges()
        assert sum(ranges.ends) - sum(ranges.starts) == len(beyond)
        assert all(ranges.contains(offset) for offset in list(beyond)[:50])
    commit = Commit()
    bitmap.move(3 * SPAN)
    bitmap.flush("q", commit)
    for key in commit.deletes:
        stored.pop(key, None)
    assert not commit.puts
    assert not stored, "records are left behind"
