"""What was appended is what is written, however it is cut into entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from queue_manager.log.open_entries import OpenEntries
from storage.envelope import EnvelopeTemplate
from storage.records import metadata
from tests.unit.storage.envelopes import encode_run

TEMPLATES = [
    EnvelopeTemplate("a"),
    EnvelopeTemplate("a"),
    EnvelopeTemplate("a", priority=3),
    EnvelopeTemplate("bb"),
]
NOW_MS = 1_767_225_600_000

runs = st.tuples(
    st.sampled_from(TEMPLATES),
    st.integers(1, 12),  # messages
    st.integers(0, 1),  # message IDs left out before them
    st.integers(0, 1),  # ms that passed before them
    st.sampled_from(["alike", "varied", "alike, then a new entry"]),
)


@given(st.lists(runs, max_size=12), st.integers(1, 6), st.integers(60, 400))
def test_entries_hold_every_message_in_order_within_their_bounds(
    parts: list[tuple[EnvelopeTemplate, int, int, int, str]], count_max: int, bytes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LOG_ENTRY_MESSAGES_MAX", count_max)
        patch.setattr(limits, "LOG_ENTRY_BYTES_MAX", bytes_max)
        entries = OpenEntries()
        wanted: list[tuple[int, bytes]] = []
        message_id, offset, now_ms = 7, 0, NOW_MS
        for template, count, left_out, passed_ms, how in parts:
            message_id += left_out
            now_ms += passed_ms
            ids = range(message_id, message_id + count)
            wanted += zip(ids, encode_run(template, offset, now_ms, count), strict=True)
            if how == "varied":
                entries.add_varied([template] * count, message_id, offset, now_ms)
            else:
                entries.add(template, message_id, offset, now_ms, count)
            message_id += count
            offset += count
            if how == "alike, then a new entry":
                entries.close(offset)
        rows = entries.take(offset)
    found: list[tuple[int, bytes]] = []
    for first_offset, value in rows:
        messages = metadata.decode(value)
        assert first_offset == len(found)
        assert 1 <= len(messages) <= count_max
        assert sum(len(envelope) for _, envelope in messages[:-1]) < bytes_max
        found += messages
    assert found == wanted


def test_publishes_alike_of_one_time_make_one_run_whoever_published_them() -> None:
    entries = OpenEntries()
    for offset in range(50):
        entries.add(EnvelopeTemplate("orders"), 100 + offset, offset, NOW_MS, 1)
    [(first_offset, value)] = entries.take(50)
    wanted = encode_run(EnvelopeTemplate("orders"), 0, NOW_MS, 50)
    assert first_offset == 0
    assert metadata.decode(value) == list(zip(range(100, 150), wanted, strict=True))
