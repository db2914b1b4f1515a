"""Offsets taken out of order, against a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from queue_manager.journal import Journal
from queue_manager.taken import Taken
from storage.records import taken_ahead

SPAN = 3 * taken_ahead.CHUNK_OFFSETS
OFFSETS = st.integers(0, SPAN - 1) | st.integers(4_080, 4_110)
STEPS = st.lists(
    st.tuples(st.just("add"), st.lists(OFFSETS, max_size=20))
    | st.tuples(st.just("range"), st.tuples(OFFSETS, st.sampled_from([1, 5, 8, 100, 4_096, 9_000])))
    | st.tuples(st.sampled_from(["crash", "flush"]), st.none()),
    max_size=30,
)


@given(start=st.sampled_from([0, 3, 4_095, 5_000]), steps=STEPS)
def test_it_is_a_set(start: int, steps: list) -> None:
    taken = Taken(start)
    model = set(range(start))
    stored: dict[bytes, bytes] = {}
    kept = (start, set(model))
    for kind, what in steps:
        if kind == "add":
            offsets = [offset for offset in what if not taken.contains(offset)]
            taken.add(dict.fromkeys(offsets))
            model.update(offsets)
        elif kind == "range":
            first, count = what
            taken.add_range(first, first + count)
            model.update(range(first, first + count))
        else:
            if kind == "flush":
                journal = Journal()
                taken.flush("q", journal)
                stored.update(journal.puts)
                for key in journal.deletes:
                    stored.pop(key, None)
                kept = (taken.position, set(model))
            else:
                taken = Taken(kept[0])
                model = set(kept[1])
                for key, value in stored.items():
                    assert taken_ahead.parse_key(key).queue_id == "q"
                    taken.restore(taken_ahead.parse_key(key).chunk, taken_ahead.decode(value))
        while taken.position in model:
            raise AssertionError("the position is taken")
        beyond = {offset for offset in model if offset >= taken.position}
        assert taken.count == len(beyond)
        assert set(range(taken.position)) <= model
        for offset in (0, 1, 4_095, 4_096, 5_001, 8_192, 11_000, taken.position, taken.position + 1):
            assert taken.contains(offset) == (offset in model)
            free = offset
            while free in model:
                free += 1
            assert taken.next_free(offset) == free
            assert taken.count_below(offset) == sum(taken.position <= o < offset for o in model)
        ranges = taken.ranges()
        assert sum(ranges.ends) - sum(ranges.starts) == len(beyond)
        assert all(ranges.contains(offset) for offset in list(beyond)[:50])
    journal = Journal()
    taken.move(3 * SPAN)
    taken.flush("q", journal)
    for key in journal.deletes:
        stored.pop(key, None)
    assert not journal.puts
    assert not stored, "records are left behind"
