"""The files of a backup: rows in parts, and an index that says what belongs to it.

part   row*; row = key length u32BE ‖ value length u32BE ‖ key ‖ value, keys rising over all parts
index  JSON: the fields of `Index`, and in `checksum` the SHA-256 of the same JSON without it
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from storage.errors import FormatTooNew, StorageError
from storage.layout import INDEX_NAME

FORMAT: Final = 2
"""2: of a broker with several shards. A backup of one shard is still of 1."""

_HEAD: Final = struct.Struct(">II")

Row = tuple[bytes, bytes]


class BackupDamaged(StorageError):
    """A file of a backup is missing or not what was written; `file` names it."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"{file}: {problem}")
        self.file = file


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A file with rows."""

    name: str
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The index of a backup. `sequence` is SlateDB's number of the last write in it, `journal_sequence` the
    journal's, and `database_id` the number that database and journal bear; the last two are None where there
    was no journal. `made_at`: when the cut was made, ISO 8601. `shards`: so many belong together, this being
    the first, and each other a backup of its own in `shard-K` beside it.
    """

    format: int = 1
    made_by: str
    made_at: str
    sequence: int
    journal_sequence: int | None
    database_id: str | None
    rows: int
    files: tuple[PartFile, ...]
    shards: int = 1

    @property
    def bytes(self) -> int:
        """Of all files but the index."""
        return sum(file.bytes for file in self.files)


def part_name(number: int) -> str:
    """Return the name of the part of this number, from 1."""
    return f"rows-{number:06d}"


def part_of(name: str, data: bytes, rows: int) -> PartFile:
    """Return the entry of the index for a part."""
    return PartFile(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


def check_part(file: PartFile, data: bytes | None) -> bytes:
    """Return the part's bytes as given. Raises BackupDamaged."""
    if data is None:
        raise BackupDamaged(file.name, "is missing")
    if len(data) != file.bytes:
        raise BackupDamaged(file.name, f"has {len(data)} bytes, not {file.bytes}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise BackupDamaged(file.name, "its checksum is wrong")
    return data


def encode_row(row: Row) -> bytes:
    key, value = row
    return _HEAD.pack(len(key), len(value)) + key + value


def decode_rows(name: str, data: bytes) -> Iterator[Row]:
    """Decode the rows of a part. Raises BackupDamaged."""
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise BackupDamaged(name, "ends within a row")
        key_bytes, value_bytes = _HEAD.unpack_from(data, at)
        begin = at + _HEAD.size
        at = begin + key_bytes + value_bytes
        if at > len(data):
            raise BackupDamaged(name, "ends within a row")
        yield data[begin : begin + key_bytes], data[begin + key_bytes : at]


def encode_index(index: Index) -> bytes:
    document = asdict(index)
    if index.shards == 1:
        del document["shards"]
    return _text({**document, "checksum": _checksum(document)})


def decode_index(data: bytes | None) -> Index:
    """Decode an index. Raises BackupDamaged, and FormatTooNew for what a newer version wrote."""
    if data is None:
        raise BackupDamaged(INDEX_NAME, "is missing: this is no backup, or one that was not finished")
    try:
        document = json.loads(data)
        checksum = document.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BackupDamaged(INDEX_NAME, "is no index of a backup") from None
    found = document.get("format")
    if isinstance(found, int) and found > FORMAT:
        raise FormatTooNew(f"{INDEX_NAME}: format {found}; this program reads up to {FORMAT}")
    if checksum != _checksum(document):
        raise BackupDamaged(INDEX_NAME, "its checksum is wrong")
    if {*document, "shards"} != {field.name for field in fields(Index)}:
        raise BackupDamaged(INDEX_NAME, "has other fields than an index")
    files = tuple(PartFile(**file) for file in document.pop("files"))
    return Index(**document, files=files)


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"
