"""The exceptions of storage. Callers outside this folder need to know no other exception of it."""


class StorageError(Exception):
    """Storage could not do what was asked; `reason` says why in words for an operator."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreFenced(StorageError):
    """Another process opened the same database. Final: this process must stop taking messages."""


class StoreInUse(StorageError):
    """Another process, which `reason` names, has the storage open; it was left alone."""


class StoreUnavailable(StorageError):
    """The object store or disk does not answer now; a retry may help.

    Whether the failed call took effect is unknown.
    """


class StoreFull(StorageError):
    """No room left for new data (ENOSPC, quota). A retry helps only after somebody made room."""


class CorruptRecord(StorageError):
    """A stored key or value does not follow its layout.

    `record_type` names the record as its module does ("payload", "active", ...), `field` the part that is
    wrong.
    """

    def __init__(self, record_type: str, field: str, detail: str = "") -> None:
        super().__init__(f"corrupt {record_type} record: {field}" + (f": {detail}" if detail else ""))
        self.record_type = record_type
        self.field = field


class NotOpened(StorageError):
    """An encrypted block was changed, lies at another's place, or is none where there has to be one."""


class FormatTooNew(StorageError):
    """The data was written by a newer version of this program; it must not be touched by this one."""

    def __init__(self, found: str) -> None:
        """`found` says what is newer than this program knows."""
        super().__init__(f"{found} (written by a newer release)")
