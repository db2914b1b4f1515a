"""Filling a SlateDB WriteBatch at a fraction of the binding's cost.

The generated binding copies arguments byte by byte in Python: 54 us for a put of 200 B, 30 ms for 200 KB.
The same exported C functions are called here in one of two ways:

- by a loop in C (`storage/native/fill.c`), where it was compiled: 0.3 us for a put of 100 B;
- through cffi (ABI mode, nothing is compiled): about 2 us. Almost all of that is call overhead, so a run of
  puts goes through three `map` objects and no bytecode of its own.

What remains at 1 KB and above is the library's own copy (2.6 ns a byte). Both lean on the C ABI of one exact
release, so they are used only when that release is installed and `enable_fast_batch` has seen a batch come
back whole. Otherwise the binding's own methods are used: slower, with the same result.
SLUICEMQ_FAST_BATCH=cffi leaves out the first way, SLUICEMQ_FAST_BATCH=off both.
"""

import asyncio
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any, Final, Protocol

import cffi
from slatedb.uniffi import DbBuilder, ObjectStore, Settings, WriteBatch
from slatedb.uniffi._slatedb_uniffi import slatedb as generated

from config import limits
from storage.batch import WriteOps
from storage.errors import StorageError

SLATEDB_VERSION: Final = "0.17.0"
SWITCH: Final = "SLUICEMQ_FAST_BATCH"

_DECLARATIONS: Final = """
typedef struct { uint64_t capacity; uint64_t len; uint8_t *data; } RustBuffer;
typedef struct { int32_t len; const uint8_t *data; } ForeignBytes;
typedef struct { int8_t code; RustBuffer error_buf; } RustCallStatus;
RustBuffer ffi_slatedb_uniffi_rustbuffer_alloc(uint64_t size, RustCallStatus *status);
RustBuffer ffi_slatedb_uniffi_rustbuffer_from_bytes(ForeignBytes bytes, RustCallStatus *status);
void ffi_slatedb_uniffi_rustbuffer_free(RustBuffer buffer, RustCallStatus *status);
uint64_t uniffi_slatedb_uniffi_fn_clone_writebatch(uint64_t batch, RustCallStatus *status);
void uniffi_slatedb_uniffi_fn_method_writebatch_put(
    uint64_t batch, RustBuffer key, RustBuffer value, RustCallStatus *status);
void uniffi_slatedb_uniffi_fn_method_writebatch_delete(
    uint64_t batch, RustBuffer key, RustCallStatus *status);
"""
# in the order of `use` in fill.c
_CALLED_FROM_C: Final = (
    "ffi_slatedb_uniffi_rustbuffer_alloc",
    "ffi_slatedb_uniffi_rustbuffer_free",
    "uniffi_slatedb_uniffi_fn_clone_writebatch",
    "uniffi_slatedb_uniffi_fn_method_writebatch_put",
    "uniffi_slatedb_uniffi_fn_method_writebatch_delete",
)
_ROW_BYTES: Final = 16  # sizeof(ForeignBytes) on every 64-bit target: i32, 4 bytes of padding, pointer
_RUN_MIN: Final = 8  # fewer puts are quicker one by one
_CHUNK_OPS: Final = 128  # operations whose bytes are joined at a time: stays within the processor's cache

_JOINED_BYTES_MAX: Final = 384 * limits.KIB  # one more copy of bigger values costs more than it saves

_pack_length = struct.Struct(">i").pack


def _compiled_module() -> Any:
    """Return the module that `fill.c` was compiled to, None if it was not."""
    try:
        from storage.native import _fill
    except ImportError:
        return None
    return _fill


_fill: Any = _compiled_module()


class BatchFiller(Protocol):
    """A way to append operations to a batch."""

    def fill(self, batch: WriteBatch, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Append the operations to `batch`; raises StorageError if the library refuses one."""


class CompiledFiller:
    """The functions behind WriteBatch, called by the loop in C.

    Making one raises AttributeError or OSError if it was not compiled or the library is not as expected.
    """

    def __init__(self) -> None:
        if _fill is None:
            raise OSError("storage/native/fill.c is not compiled")
        ffi, library = _library()
        _fill.use(
            *(int(ffi.cast("uintptr_t", ffi.addressof(library, name))) for name in _CALLED_FROM_C),
            limits.VALUE_PART_BYTES,
        )
        self._fill = _fill.fill

    def fill(self, batch: WriteBatch, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Append the operations to `batch`; raises StorageError if the library refuses one."""
        refused = self._fill(batch._handle, puts, deletes)
        if refused is not None:
            raise _refusal(*refused)


class CffiFiller:
    """The functions behind WriteBatch, called through cffi.

    Making one raises AttributeError or OSError if the library is not as expected.
    """

    __slots__ = ("_alloc", "_clone", "_delete", "_ffi", "_free", "_from_bytes", "_memmove", "_put")

    def __init__(self) -> None:
        ffi, library = _library()
        self._ffi = ffi
        self._memmove = ffi.memmove
        self._alloc = library.ffi_slatedb_uniffi_rustbuffer_alloc
        self._from_bytes = library.ffi_slatedb_uniffi_rustbuffer_from_bytes
        self._free = library.ffi_slatedb_uniffi_rustbuffer_free
        self._clone = library.uniffi_slatedb_uniffi_fn_clone_writebatch
        self._put = library.uniffi_slatedb_uniffi_fn_method_writebatch_put
        self._delete = library.uniffi_slatedb_uniffi_fn_method_writebatch_delete

    def fill(self, batch: WriteBatch, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        """Append the operations to `batch`; raises StorageError if the library refuses one."""
        status = self._ffi.new("RustCallStatus *")
        handle = batch._handle
        if len(puts) < _RUN_MIN:
            self._put_singly(handle, puts, status)
        else:
            for begin in range(0, len(puts), _CHUNK_OPS):
                self._put_run(handle, puts[begin : begin + _CHUNK_OPS], status)
        for begin in range(0, len(deletes), _CHUNK_OPS):
            self._delete_run(handle, deletes[begin : begin + _CHUNK_OPS], status)
        # success leaves the status alone, so one look at the end sees any failure
        if status.code:
            raise self._taken_error(status)

    def _put_singly(self, handle: int, puts: list[tuple[bytes, bytes]], status: Any) -> None:
        alloc, memmove, clone, put = self._alloc, self._memmove, self._clone, self._put
        for key, value in puts:
            lowered = _pack_length(len(key)) + key
            size = len(lowered)
            key_buffer = alloc(size, status)
            memmove(key_buffer.data, lowered, size)
            key_buffer.len = size
            size = len(value) + 4
            value_buffer = alloc(size, status)
            memmove(value_buffer.data, _pack_length(len(value)), 4)
            self._copy(value_buffer.data + 4, value)
            value_buffer.len = size
            put(clone(handle, status), key_buffer, value_buffer, status)

    def _copy(self, target: Any, value: bytes) -> None:
        """Copy a value, a large one in parts: other threads have their turn between them."""
        if len(value) <= limits.VALUE_PART_BYTES:
            self._memmove(target, value, len(value))
            return
        whole = memoryview(value)
        for start in range(0, len(value), limits.VALUE_PART_BYTES):
            part = whole[start : start + limits.VALUE_PART_BYTES]
            self._memmove(target + start, part, len(part))

    def _put_run(self, handle: int, puts: list[tuple[bytes, bytes]], status: Any) -> None:
        fields = [field for pair in puts for field in pair]
        if sum(map(len, fields)) > _JOINED_BYTES_MAX:
            self._put_singly(handle, puts, status)
            return
        joined, rows = self._lower(fields)
        buffers: Iterator[Any] = map(self._from_bytes, rows, repeat(status))
        handles = map(self._clone, repeat(handle, len(puts)), repeat(status))
        # each call draws its key and then its value from the one iterator
        deque(map(self._put, handles, buffers, buffers, repeat(status)), maxlen=0)
        del joined

    def _delete_run(self, handle: int, keys: list[bytes], status: Any) -> None:
        joined, rows = self._lower(keys)
        buffers: Iterator[Any] = map(self._from_bytes, rows, repeat(status))
        handles = map(self._clone, repeat(handle, len(keys)), repeat(status))
        deque(map(self._delete, handles, buffers, repeat(status)), maxlen=0)
        del joined

    def _lower(self, fields: Sequence[bytes]) -> tuple[bytes, Any]:
        """Write every field in UniFFI's form (i32BE length, bytes) into one buffer; gives also an array of
        ForeignBytes into it. The caller keeps the buffer alive while it uses the array.
        """
        ffi = self._ffi
        count = len(fields)
        lengths = list(map(len, fields))
        parts: list[Any] = [None] * (2 * count)
        parts[0::2] = map(_pack_length, lengths)
        parts[1::2] = fields
        joined = b"".join(parts)
        address = int(ffi.cast("uintptr_t", ffi.from_buffer(joined)))
        sizes = [length + 4 for length in lengths]
        words = [0] * (2 * count)
        words[0::2] = sizes  # the i32 and its padding, little-endian
        words[1::2] = list(accumulate(sizes[:-1], initial=address))
        return joined, ffi.from_buffer("ForeignBytes[]", struct.pack(f"<{2 * count}Q", *words))

    def _taken_error(self, status: Any) -> StorageError:
        buffer = status.error_buf
        raw = bytes(self._ffi.buffer(buffer.data, buffer.len)) if buffer.len else b""
        self._free(buffer, self._ffi.new("RustCallStatus *"))
        return _refusal(status.code, raw)


def _library() -> tuple[Any, Any]:
    """Return cffi's interface to the library of the binding: the FFI, and the functions."""
    ffi: Any = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    # the binding has this file loaded already: the same code and heap, not a second copy
    library = ffi.dlopen(str(Path(generated.__file__).with_name("libslatedb_uniffi.so")))
    if ffi.sizeof("ForeignBytes") != _ROW_BYTES:
        raise OSError("not a 64-bit target")
    return ffi, library


def _refusal(code: int, message: bytes) -> StorageError:
    # an error of the library: i32 variant, i32 length, text; a panic: text
    text = (message[8:] if code == 1 else message).decode(errors="replace")
    return StorageError(f"SlateDB refused an operation of a batch: {text}")


_filler: BatchFiller | None = None
_status = "off: not tried yet"


def fill_batch(batch: WriteBatch, ops: WriteOps) -> None:
    """Append everything in `ops` to `batch`. Raises StorageError if SlateDB refuses an operation."""
    if _filler is not None:
        _filler.fill(batch, ops.puts, ops.deletes)
        return
    try:
        for key, value in ops.puts:
            batch.put(key, value)
        for key in ops.deletes:
            batch.delete(key)
    except generated.Error as error:
        raise StorageError(f"SlateDB refused an operation of a batch: {error}") from error


def fast_batch_status() -> str:
    """Return `compiled`, or `cffi: ` or `off: ` and the reason. The caller logs it once at start."""
    return _status


def is_fast_batch_on() -> bool:
    """Tell whether the library's C functions are called in place of the binding's methods."""
    return _filler is not None


async def enable_fast_batch() -> str:
    """Use the fastest way from now on that is allowed and proves itself on a scratch database.

    Returns the status. Never raises for a reason that lies in the installation.
    """
    global _filler, _status
    _filler, _status = await _fastest()
    return _status


async def _fastest() -> tuple[BatchFiller | None, str]:
    switch = _switch()
    if switch == "off":
        return None, f"off: {SWITCH}=off"
    try:
        installed = metadata.version("slatedb")
    except metadata.PackageNotFoundError:
        installed = "of no known release"
    if installed != SLATEDB_VERSION:
        return None, f"off: slatedb {installed} is installed; the C ABI of {SLATEDB_VERSION} is known"
    reason = f"{SWITCH}=cffi"
    if switch != "cffi":
        filler, reason = await _proved(CompiledFiller)
        if filler is not None:
            return filler, "compiled"
    filler, problem = await _proved(CffiFiller)
    return filler, f"off: {problem}" if filler is None else f"cffi: {reason}"


async def _proved(make: Callable[[], BatchFiller]) -> tuple[BatchFiller | None, str]:
    """Return a filler that proved itself; or None, and why there is none."""
    try:
        filler = make()
        async with asyncio.timeout(limits.STORE_OPEN_TIMEOUT_S):
            await _prove(filler)
    except Exception as error:  # whatever is wrong with a fast way, a slower one is right
        return None, str(error)
    return filler, ""


async def ensure_fast_batch() -> None:
    """Do the same unless this process has done so already: one proof is enough."""
    if _filler is None or _switch() == "off":
        await enable_fast_batch()


def _switch() -> str:
    return os.environ.get(SWITCH, "").lower()


async def _prove(filler: BatchFiller) -> None:
    """Raise OSError unless batches filled by `filler` read back as written, from memory."""
    builder = DbBuilder("proof", ObjectStore.resolve("memory:///"))
    builder.with_settings(Settings.default())
    database = await builder.build()
    try:
        puts = [(b"k%03d" % n, bytes([n % 256]) * (n * 37)) for n in range(_CHUNK_OPS + 3)]
        batch = WriteBatch()
        filler.fill(batch, puts[:3], [])  # one by one
        filler.fill(batch, puts[3:], [])  # as runs
        await database.write(batch)
        batch = WriteBatch()
        filler.fill(batch, [], [puts[0][0], puts[50][0]])
        await database.write(batch)
        for index, (key, value) in enumerate(puts):
            if await database.get(key) != (None if index in (0, 50) else value):
                raise OSError("a scratch batch did not read back as written")
        try:
            filler.fill(WriteBatch(), [(b"", b"")], [])
        except StorageError:
            pass
        else:
            raise OSError("an empty key was not refused")
    finally:
        await database.shutdown()
