"""The bytes of a backup's files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.backup import archive
from storage.backup.archive import BackupDamaged, Index
from storage.errors import FormatTooNew

ROWS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=50)), max_size=20)


def index_of(*parts: archive.PartFile) -> Index:
    return Index(
        made_by="SluiceMQ",
        made_at="2026-01-01T00:00:00.000Z",
        sequence=7,
        journal_sequence=3,
        database_id="00ff",
        rows=sum(part.rows for part in parts),
        files=parts,
    )


@given(ROWS)
def test_rows_come_back_from_a_part(rows: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(map(archive.encode_row, rows))
    assert list(archive.decode_rows("p", data)) == rows


@given(ROWS.filter(bool), st.data())
def test_part_that_was_cut_short_within_a_row_is_refused(
    rows: list[tuple[bytes, bytes]], draw: st.DataObject
) -> None:
    last = archive.encode_row(rows[-1])
    data = b"".join(map(archive.encode_row, rows))[: -draw.draw(st.integers(1, len(last) - 1))]
    with pytest.raises(BackupDamaged, match="p: ends within a row"):
        list(archive.decode_rows("p", data))


def test_index_comes_back_with_its_files() -> None:
    index = index_of(archive.part_of("rows-000001", b"x", 1), archive.part_of("rows-000002", b"yy", 2))
    assert archive.decode_index(archive.encode_index(index)) == index
    assert index.bytes == 3


@pytest.mark.parametrize(
    "data",
    [None, b"", b"[]", b"{}", b'{"checksum": "0"}', archive.encode_index(index_of()).replace(b"7", b"8")],
)
def test_index_that_is_missing_or_changed_is_refused_by_name(data: bytes | None) -> None:
    with pytest.raises(BackupDamaged, match="backup.json"):
        archive.decode_index(data)


def test_index_of_a_newer_version_is_left_alone() -> None:
    with pytest.raises(FormatTooNew):
        archive.decode_index(archive.encode_index(index_of()).replace(b'"format": 1', b'"format": 3'))


@pytest.mark.parametrize(("data", "problem"), [(None, "missing"), (b"ab", "bytes"), (b"abd", "checksum")])
def test_part_that_differs_from_the_index_is_refused_by_name(data: bytes | None, problem: str) -> None:
    with pytest.raises(BackupDamaged, match=f"rows-000001: .*{problem}"):
        archive.check_part(archive.part_of("rows-000001", b"abc", 1), data)
