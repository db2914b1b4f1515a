import pytest
from slatedb.uniffi import CloseReason, Error, InternalError

from storage.errors import StorageError, StoreFenced, StoreFull, StoreUnavailable
from storage.slate_errors import SLATE_ERRORS, translate


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (Error.Closed(CloseReason.FENCED, "detected newer client"), StoreFenced, "another process"),
        (Error.Closed(CloseReason.PANIC, "background task panicked"), StorageError, r"closed \(panic\)"),
        (Error.Closed(CloseReason.UNKNOWN, "?"), StorageError, r"closed \(unknown\)"),
        (Error.Closed(CloseReason.CLEAN, "db is closed"), StorageError, r"closed \(clean\)"),
        (Error.Closed(CloseReason.PANIC, "No space left on device (os error 28)"), StoreFull, "No space"),
        (Error.Unavailable("connection refused"), StoreUnavailable, "connection refused"),
        (Error.Unavailable("No space left on device"), StoreFull, "No space"),
        (Error.Data("checksum mismatch"), StorageError, "checksum"),
        (Error.Invalid("empty key"), StorageError, "empty key"),
        (Error.Internal("Disk quota exceeded"), StoreFull, "quota"),
        (InternalError("Unknown rust panic"), StorageError, "rust panic"),
    ],
)
def test_each_slatedb_error_becomes_its_storage_error(error, kind, words):
    assert isinstance(error, SLATE_ERRORS)
    translated = translate(error, "writing")
    assert type(translated) is kind
    assert translated.reason.startswith("writing: ")
    with pytest.raises(kind, match=words):
        raise translated
