"""Telling a whole SlateDB table or WAL object from one that a power cut left half written.

Both have one form (SlateDB's SST, versions 1 and 2): blocks, filter, index, description, then the
description's offset (u64BE) and the version (u16BE). Blocks, index and description each end with a CRC-32
(u32BE); index and description are FlatBuffers, of which the few fields needed here are read directly.
"""

import struct
import zlib
from pathlib import Path
from typing import Final

SST_VERSION_MAX: Final = 2

_FOOTER: Final = struct.Struct(">QH")
_CHECKSUM_BYTES: Final = 4
_INFO_INDEX_OFFSET: Final = 1  # fields of the description, by their place in its schema
_INFO_INDEX_BYTES: Final = 2
_INFO_FILTER_OFFSET: Final = 3
_INFO_FILTER_BYTES: Final = 4
_INDEX_BLOCKS: Final = 0
_BLOCK_OFFSET: Final = 0

_u16 = struct.Struct("<H").unpack_from
_i32 = struct.Struct("<i").unpack_from
_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from


class NewerFormat(Exception):
    """The file says that a newer SlateDB wrote it, so nothing can be said about it."""


def table_problem(path: Path, *, every_block: bool) -> str:
    """Return the problem of the table at `path`, "" if it is whole; `every_block` reads and checks all of it.

    Raises NewerFormat, and OSError if it cannot be read. An empty file is a problem here, though an empty WAL
    object is a valid one (a fence).
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _FOOTER.size:
            return f"{size} bytes long"
        file.seek(size - _FOOTER.size)
        info_offset, version = _FOOTER.unpack(file.read())
        if version == 0 or info_offset >= size - _FOOTER.size:
            return "its end is missing"
        file.seek(info_offset)
        info = file.read(size - _FOOTER.size - info_offset)
        if not _checksum_matches(info):
            return "its end is missing"
        if version > SST_VERSION_MAX:
            raise NewerFormat(f"{path.name} has format version {version}")
        try:
            return _body_problem(path, info, info_offset, every_block)
        except (struct.error, IndexError):
            return "its index cannot be read"


def _body_problem(path: Path, info: bytes, info_offset: int, every_block: bool) -> str:
    root = _u32(info, 0)[0]
    index_offset = _u64_field(info, root, _INFO_INDEX_OFFSET)
    index_bytes = _u64_field(info, root, _INFO_INDEX_BYTES)
    filter_offset = _u64_field(info, root, _INFO_FILTER_OFFSET)
    filter_bytes = _u64_field(info, root, _INFO_FILTER_BYTES)
    if index_offset + index_bytes > info_offset or filter_offset + filter_bytes > info_offset:
        return "its index lies outside"
    with path.open("rb") as file:
        file.seek(index_offset)
        index = file.read(index_bytes)
        if not _checksum_matches(index):
            return "its index is damaged"
        if not every_block:
            return ""
        begins = _block_offsets(index)
        blocks_end = min(filter_offset, index_offset) if filter_bytes else index_offset
        for begin, end in zip(begins, [*begins[1:], blocks_end], strict=True):
            file.seek(begin)
            if not _checksum_matches(file.read(end - begin)):
                return f"the block at {begin} is damaged"
    return ""


def _block_offsets(index: bytes) -> list[int]:
    root = _u32(index, 0)[0]
    field = _field(index, root, _INDEX_BLOCKS)
    if field == 0:
        return []
    vector = field + _u32(index, field)[0]
    count = _u32(index, vector)[0]
    slots = range(vector + 4, vector + 4 + 4 * count, 4)
    return [_u64_field(index, slot + _u32(index, slot)[0], _BLOCK_OFFSET) for slot in slots]


def _field(data: bytes, table: int, number: int) -> int:
    """Return where field `number` of the FlatBuffers table at `table` lies; 0 if it is absent."""
    vtable = table - _i32(data, table)[0]
    slot = 4 + 2 * number
    if slot >= _u16(data, vtable)[0]:
        return 0
    offset: int = _u16(data, vtable + slot)[0]
    return table + offset if offset else 0


def _u64_field(data: bytes, table: int, number: int) -> int:
    place = _field(data, table, number)
    return int(_u64(data, place)[0]) if place else 0


def _checksum_matches(part: bytes) -> bool:
    if len(part) <= _CHECKSUM_BYTES:
        return False
    stored = int.from_bytes(part[-_CHECKSUM_BYTES:], "big")
    return zlib.crc32(part[:-_CHECKSUM_BYTES]) == stored
