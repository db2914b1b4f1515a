import pytest

from storage import errors


def test_each_error_is_a_storage_error_with_a_reason():
    raised = [
        errors.StoreFenced("another writer"),
        errors.StoreUnavailable("no answer"),
        errors.StoreFull("no room"),
        errors.FormatTooNew("version 9"),
        errors.CorruptRecord("active", "count", "truncated"),
    ]
    for error in raised:
        assert isinstance(error, errors.StorageError)
        assert error.reason == str(error)


@pytest.mark.parametrize(
    ("detail", "text"), [("", "corrupt done record: end"), ("2 bytes", "corrupt done record: end: 2 bytes")]
)
def test_corrupt_record_names_record_and_field(detail, text):
    assert str(errors.CorruptRecord("done", "end", detail)) == text
