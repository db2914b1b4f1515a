"""`docs/record-layout.md` says of each record what the table of records says."""

from storage.records import RECORDS
from tests.unit.documentation.record_layout_page import PAGE, generated, written_into


def test_page_has_the_records_as_the_table_has_them() -> None:
    page = PAGE.read_text("utf-8")
    assert written_into(page) == page, "python -m tests.unit.documentation.record_layout_page writes it"


def test_every_record_stands_on_the_page_and_says_what_it_is() -> None:
    lines = [line for line in generated().splitlines() if line.startswith("- **")]
    assert sorted(line[4:6] for line in lines) == sorted(f"{number:02x}" for number in RECORDS)
    assert not [line for line in lines if line.endswith("`. .")]
