"""Which cursors are written when, against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from config import limits
from queue_manager.shard.commit import Commit
from queue_manager.shard.context import StateWrites


class FakeCursor:
    """A cursor as far as its writing is concerned: notes each, and whether it was whole."""

    def __init__(self) -> None:
        self.written: list[bool] = []

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        self.written.append(not is_part)

    def take_written(self) -> list[bool]:
        written, self.written = self.written, []
        return written


CURSORS = [FakeCursor() for _ in range(4)]


class Publisher:
    """Waits for a commit."""

    def committed(self, tokens: list[int]) -> None:
        pass


def commit_for(waiter_count: int) -> Commit:
    commit = Commit()
    for token in range(waiter_count):
        commit.wait(Publisher(), token)
    return commit


MADE_DUE = -1
TIMES = st.integers(0, 20)
STEPS = st.lists(
    st.tuples(st.just("add"), st.sampled_from(CURSORS), TIMES)
    | st.tuples(st.just("forget"), st.sampled_from(CURSORS), st.just(0))
    | st.tuples(st.just("make due"), st.none(), st.just(0))
    | st.tuples(st.sampled_from(["take", "take, waited for"]), st.none(), TIMES),
    max_size=30,
)


@given(STEPS)
def test_a_cursor_is_written_once_when_it_is_due(steps: list) -> None:
    writes = StateWrites()
    model: dict[FakeCursor, int] = {}
    for what, cursor, time_ms in steps:
        if what == "add":
            writes.add(cursor, time_ms)
            model[cursor] = time_ms
        elif what == "forget":
            writes.forget(cursor)
            model.pop(cursor, None)
        elif what == "make due":
            writes.make_due()
            model = dict.fromkeys(model, MADE_DUE)
        else:
            is_waited_for = what != "take"
            writes.write_due(commit_for(is_waited_for), time_ms)
            time_ms = max(MADE_DUE, time_ms - limits.STATE_GRACE_MS * is_waited_for)
            due = {cursor: due_ms == MADE_DUE for cursor, due_ms in model.items() if due_ms <= time_ms}
            assert {cursor: cursor.take_written() for cursor in CURSORS} == {
                cursor: [due[cursor]] if cursor in due else [] for cursor in CURSORS
            }
            for cursor in due:
                del model[cursor]
            assert writes.due_ms is None or writes.due_ms > time_ms, "it would be asked in vain"
        assert bool(writes) == bool(model)
        assert (writes.due_ms is None) == (not model)
        assert writes.due_ms is None or writes.due_ms <= min(model.values())
