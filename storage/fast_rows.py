"""Reading rows at a fraction of the binding's cost, and large values in parts.

The binding builds a record with five fields for every row, 7 us each. Here the answer of one `next_batch`
call is copied once and cut into (key, value) pairs, well under 1 us each. Same guard as
`storage.fast_batch`: private names of one exact release, used only where that module found everything right.
"""

import ctypes
import struct
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

from slatedb.uniffi import Db, DbIterator
from slatedb.uniffi._slatedb_uniffi import slatedb as generated

from config import limits
from storage import fast_batch

_length = struct.Struct(">i").unpack_from


async def next_rows(rows: DbIterator, count: int) -> list[tuple[bytes, bytes]]:
    """Return up to `count` further rows of `rows`; fewer mean that the scan is at its end.

    Raises what the binding raises.
    """
    if not fast_batch.is_fast_batch_on():
        return [(row.key, row.value) for row in await rows.next_batch(count)]
    library: Any = generated._UniffiLib
    answer: list[tuple[bytes, bytes]] = await generated._uniffi_rust_call_async(
        library.uniffi_slatedb_uniffi_fn_method_dbiterator_next_batch(rows._uniffi_clone_handle(), count),
        library.ffi_slatedb_uniffi_rust_future_poll_rust_buffer,
        library.ffi_slatedb_uniffi_rust_future_complete_rust_buffer,
        library.ffi_slatedb_uniffi_rust_future_free_rust_buffer,
        _lift_rows,
        generated._UniffiFfiConverterTypeError,
    )
    return answer


async def pages_of(rows: DbIterator, first_rows: int) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Yield all rows of a scan, `first_rows` and then some hundred KiB at a time. Raises what the binding
    raises.
    """
    asked = first_rows
    while page := await next_rows(rows, asked):
        yield page
        row_bytes = sum([len(key) + len(value) for key, value in page]) // len(page) + 1
        asked = min(limits.STORE_SCAN_BYTES // row_bytes + 1, limits.STORE_SCAN_ROWS_MAX)


async def value_of(database: Db, key: bytes) -> bytes | None:
    """Return the value of `key`, None if it has none. Raises what the binding raises."""
    if not fast_batch.is_fast_batch_on():
        found: bytes | None = await database.get(key)
        return found
    library: Any = generated._UniffiLib
    value: bytes | None = await generated._uniffi_rust_call_async(
        library.uniffi_slatedb_uniffi_fn_method_db_get(
            database._uniffi_clone_handle(), generated._UniffiFfiConverterBytes.lower(key)
        ),
        library.ffi_slatedb_uniffi_rust_future_poll_rust_buffer,
        library.ffi_slatedb_uniffi_rust_future_complete_rust_buffer,
        library.ffi_slatedb_uniffi_rust_future_free_rust_buffer,
        _lift_value,
        generated._UniffiFfiConverterTypeError,
    )
    return value


def _lift_value(buffer: Any) -> bytes | None:
    """Read an optional value: u8, and if it is 1 i32BE length and bytes."""
    try:
        data = _view(buffer)
        return _copy(data[5:]) if data[0] else None
    finally:
        buffer.free()


def _lift_rows(buffer: Any) -> list[tuple[bytes, bytes]]:
    try:
        if buffer.len > limits.VALUE_PART_BYTES:
            return _decode_large(_view(buffer))
        data = ctypes.string_at(buffer.data, buffer.len)
    finally:
        buffer.free()
    return decode_rows(data)


def _view(buffer: Any) -> memoryview:
    """View the bytes of a buffer, uncopied, until it is freed."""
    address = ctypes.cast(buffer.data, ctypes.c_void_p).value
    return memoryview((ctypes.c_char * buffer.len).from_address(address)).cast("B")


def _copy(part: memoryview) -> bytes:
    """Copy the bytes of a view, in parts: other threads have their turn between them."""
    if len(part) <= limits.VALUE_PART_BYTES:
        return bytes(part)
    whole = BytesIO(bytes(len(part)))  # in the end the bytes themselves, not copied again
    for start in range(0, len(part), limits.VALUE_PART_BYTES):
        whole.write(part[start : start + limits.VALUE_PART_BYTES])
    return whole.getvalue()


def _decode_large(data: memoryview) -> list[tuple[bytes, bytes]]:
    """Decode as `decode_rows`, copying values in parts."""
    length = _length
    rows = []
    position = 4
    for _ in range(length(data, 0)[0]):
        key_begin = position + 4
        key_end = key_begin + length(data, position)[0]
        value_begin = key_end + 4
        value_end = value_begin + length(data, key_end)[0]
        rows.append((bytes(data[key_begin:key_end]), _copy(data[value_begin:value_end])))
        position = value_end + (25 if data[value_end + 16] else 17)
    if position != len(data):
        raise ValueError("a row batch has bytes left over")
    return rows


def decode_rows(data: bytes) -> list[tuple[bytes, bytes]]:
    """Decode the pairs of a serialised `sequence<KeyValue>`: i32BE count, then per row i32BE length and key,
    i32BE length and value, u64 sequence number, i64 creation time, u8 and if it is 1 an i64 expiry.
    """
    length = _length
    (count,) = length(data, 0)
    rows = _alike(data, count) if count > 1 else []
    if rows:
        return rows
    add = rows.append
    position = 4
    for _ in range(count):
        key_begin = position + 4
        key_end = key_begin + length(data, position)[0]
        value_begin = key_end + 4
        value_end = value_begin + length(data, key_end)[0]
        add((data[key_begin:key_end], data[value_begin:value_end]))
        position = value_end + (25 if data[value_end + 16] else 17)
    if position != len(data):
        raise ValueError("a row batch has bytes left over")
    return rows


def _alike(data: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """Decode the rows if their keys and values are of one size and nothing expires, as most often; else
    none.
    """
    key_bytes: int = _length(data, 4)[0]
    if not 0 <= key_bytes <= len(data) - 12:
        return []
    value_bytes: int = _length(data, 8 + key_bytes)[0]
    if value_bytes < 0 or len(data) != 4 + count * (key_bytes + value_bytes + 25):
        return []
    table = struct.iter_unpack(f">i{key_bytes}si{value_bytes}s16sB", memoryview(data)[4:])
    rows = [
        (key, value)
        for k, key, v, value, _, expires in table
        if k == key_bytes and v == value_bytes and not expires
    ]
    return rows if len(rows) == count else []
