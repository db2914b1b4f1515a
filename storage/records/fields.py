"""Typed fields of keys and values, and the records made of them.

The fields of a key or value are those of a `NamedTuple` whose annotations are the types below; `key_of` and
`value_of` make the `Codec` of it, which packs neighbouring numbers with one `struct`. Integers in keys are
big-endian, so that keys sort by them, those in values little-endian.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Annotated, Any, Final, Generic, NamedTuple, ParamSpec, TypeVar, get_type_hints

from storage.encoding import Reader, encode_array, encode_terminated, encode_utf8, encode_var_bytes
from storage.errors import CorruptRecord, FormatTooNew
from storage.layout import VERSION
from storage.typed_values import encode_table, read_table

T = TypeVar("T")
P = ParamSpec("P")
KeyParts = ParamSpec("KeyParts")
Key = TypeVar("Key")
ValueParts = ParamSpec("ValueParts")
Value = TypeVar("Value")


class Field(Generic[T]):
    """How one field is written (`encode`), and read from where a reader stands (`read`, with its name)."""

    __slots__ = ("encode", "read")

    def __init__(self, encode: Callable[[T], bytes], read: Callable[[Reader, str], T]) -> None:
        self.encode = encode
        self.read = read


class Packed(Field[T]):
    """A field of fixed width, by its `struct` code.

    A number that is read and is over `largest` is corrupt; one over `newest`, or with bits beside those of
    `known`, was written by a newer release.
    """

    __slots__ = ("code", "known", "largest", "newest")

    def __init__(
        self,
        code: str,
        read: Callable[[Reader, str], T],
        *,
        largest: int | None = None,
        newest: int | None = None,
        known: int | None = None,
    ) -> None:
        super().__init__(struct.Struct("<" + code).pack, read)
        self.code = code
        self.largest = largest
        self.newest = newest
        self.known = known

    @property
    def is_checked(self) -> bool:
        """Whether not all values of the width are allowed."""
        return (self.largest, self.newest, self.known) != (None, None, None)

    def check(self, record_type: str, name: str, value: int) -> None:
        """Raise CorruptRecord or FormatTooNew for a number that is not allowed."""
        if self.largest is not None and value > self.largest:
            raise CorruptRecord(record_type, name, str(value))
        if self.newest is not None and value > self.newest:
            raise FormatTooNew(f"{record_type}: {name} {value}")
        if self.known is not None and value & ~self.known:
            raise FormatTooNew(f"{record_type}: {name} {value:#04x}")


class Flag(Field[bool]):
    """A bit of a byte of flags, in which the flags stand that follow each other."""

    __slots__ = ("bit",)

    def __init__(self, bit: int) -> None:
        super().__init__(
            lambda is_set: bytes((bit * is_set,)), lambda reader, name: bool(reader.u8(name) & bit)
        )
        self.bit = bit


def group(codec: "Codec[..., T]") -> Field[T]:
    """Make one field of the fields of a `NamedTuple`."""
    encode: Callable[..., bytes] = codec.encode

    def encode_parts(parts: Any) -> bytes:
        return encode(*parts)

    return Field(encode_parts, lambda reader, name: codec.read(reader))


def array(elements: Field[T]) -> Field[tuple[T, ...]]:
    """Make an array: u16 count, then the elements."""
    return Field(
        lambda values: encode_array(map(elements.encode, values)),
        lambda reader, name: tuple([elements.read(reader, name) for _ in range(reader.u16(name))]),
    )


def optional(field: Field[T]) -> Field[T | None]:
    """Make the last field of a value, which ends before it if it is None."""
    return Field(
        lambda value: b"" if value is None else field.encode(value),
        lambda reader, name: None if reader.at_end() else field.read(reader, name),
    )


def added(field: Field[T], before: T) -> Field[T]:
    """Make the last field of a value; those of earlier versions end before it, and have `before`."""
    return Field(field.encode, lambda reader, name: before if reader.at_end() else field.read(reader, name))


def checked_text(check: Callable[[str], str]) -> Field[str]:
    """Make a text that is the rest of a key; `check` gives it back, or raises ValueError."""

    def read(reader: Reader, name: str) -> str:
        try:
            return check(reader.rest_text(name))
        except ValueError as error:
            raise CorruptRecord(reader.record_type, name, str(error)) from error

    return Field(lambda value: check(value).encode(), read)


def _encode_terminated(text: str) -> bytes:
    return encode_terminated(text.encode())


Ranges = Sequence[tuple[int, int]]
"""As records hold them: u32 count ‖ count × (start u64 ‖ end u64), half-open, in order."""

_COUNT: Final = struct.Struct("<I")
_PAIR: Final = struct.Struct("<QQ")


def encode_ranges(ranges: Ranges) -> bytes:
    return _COUNT.pack(len(ranges)) + b"".join([_PAIR.pack(start, end) for start, end in ranges])


def read_ranges(reader: Reader, field: str) -> Ranges:
    """Read ranges. Raises CorruptRecord also for ranges that are empty, touch or are out of order."""
    ranges: list[tuple[int, int]] = []
    last = -1
    for _ in range(reader.u32(field)):
        start, end = reader.u64(field), reader.u64(field)
        if not last < start < end:
            raise CorruptRecord(reader.record_type, field, f"[{start}, {end}) is out of order")
        ranges.append((start, end))
        last = end
    return ranges


u8: Final = Packed("B", Reader.u8)
u16: Final = Packed("H", Reader.u16)
u32: Final = Packed("I", Reader.u32)
u64: Final = Packed("Q", Reader.u64)
i64: Final = Packed("q", Reader.i64)
utf8: Final[Field[str]] = Field(encode_utf8, Reader.utf8)
terminated: Final[Field[str]] = Field(_encode_terminated, Reader.terminated_text)
text_rest: Final[Field[str]] = Field(str.encode, Reader.rest_text)
bytes_rest: Final[Field[bytes]] = Field(bytes, lambda reader, name: reader.rest())
ranges: Final = Field(encode_ranges, read_ranges)
table: Final[Field[Mapping[str, object]]] = Field(encode_table, lambda reader, name: read_table(reader))

U8 = Annotated[int, u8]
U16 = Annotated[int, u16]
U32 = Annotated[int, u32]
U64 = Annotated[int, u64]
I64 = Annotated[int, i64]
Utf8 = Annotated[str, utf8]
VarBytes = Annotated[bytes, Field(encode_var_bytes, Reader.var_bytes)]
TerminatedText = Annotated[str, terminated]
"""In keys, before other fields."""
TextRest = Annotated[str, text_rest]
"""Without a length or terminator: the last field."""
Digest = Annotated[bytes, Packed("8s", lambda reader, name: reader.take(8, name))]
BytesRest = Annotated[bytes, bytes_rest]


class Codec(Generic[P, T]):
    """How fields become the bytes of a value (`encode`), and are read from them (`read`)."""

    __slots__ = ("encode", "read")

    def __init__(self, encode: Callable[P, bytes], read: Callable[[Reader], T]) -> None:
        self.encode = encode
        self.read = read

    def decode(self, record_type: str, data: bytes) -> T:
        """Decode all of `data`; `record_type` is named if it is corrupt."""
        reader = Reader(record_type, data)
        found = self.read(reader)
        reader.finish()
        return found


class KeyCodec(Codec[P, T]):
    """The same of the part of a key behind its prefix.

    `behind(prefix)` gives what encodes a whole key, `of_fields` what the first fields alone, text before
    numbers.
    """

    __slots__ = ("behind", "of_fields")

    def __init__(
        self,
        encode: Callable[P, bytes],
        read: Callable[[Reader], T],
        behind: Callable[[bytes], Callable[P, bytes]] | None = None,
        of_fields: Sequence[Callable[[Any], bytes]] = (_encode_terminated,),
    ) -> None:
        super().__init__(encode, read)
        self.behind = self._prepend if behind is None else behind
        self.of_fields = of_fields

    def _prepend(self, prefix: bytes) -> Callable[P, bytes]:
        encode = self.encode
        return lambda *parts, **named: prefix + encode(*parts, **named)


class _Run(NamedTuple):
    """Fields written and read together: neighbours of fixed width, flags, or any other field alone."""

    field_count: int
    encode: Callable[..., bytes]
    read: Callable[[Reader], Sequence[Any]]
    code: str = ""  # of those of fixed width, with the byte order


_Named = tuple[str, Field[Any]]


def _packed_run(fields: Sequence[_Named], order: str) -> _Run:
    codes = [field.code for _, field in fields if isinstance(field, Packed)]
    packed = struct.Struct(order + "".join(codes))
    checked = [
        (index, name, field)
        for index, (name, field) in enumerate(fields)
        if isinstance(field, Packed) and field.is_checked
    ]

    def read(reader: Reader) -> Sequence[Any]:
        start = reader.skip(packed.size)
        if reader.position > len(reader.data):
            left = len(reader.data) - start
            sizes = accumulate([struct.calcsize(order + code) for code in codes])
            cut = next(index for index, size in enumerate(sizes) if size > left)
            raise CorruptRecord(reader.record_type, fields[cut][0], "truncated")
        values = packed.unpack_from(reader.data, start)
        for index, name, field in checked:
            field.check(reader.record_type, name, values[index])
        return values

    def encode(*values: Any) -> bytes:
        for index, name, field in checked:
            if field.largest is not None and values[index] > field.largest:
                raise ValueError(f"{name} is at most {field.largest}, not {values[index]}")
        return packed.pack(*values)

    return _Run(len(fields), encode if checked else packed.pack, read, "" if checked else packed.format)


def _flags_run(fields: Sequence[_Named], order: str) -> _Run:
    bits = [field.bit for _, field in fields if isinstance(field, Flag)]
    known = Packed("B", Reader.u8, known=sum(bits))

    def encode(*values: bool) -> bytes:
        return bytes((sum(bit for bit, value in zip(bits, values, strict=True) if value),))

    def read(reader: Reader) -> Sequence[bool]:
        flags = reader.u8("flags")
        known.check(reader.record_type, "flags", flags)
        return [bool(flags & bit) for bit in bits]

    return _Run(len(bits), encode, read)


def _single_run(fields: Sequence[_Named], order: str) -> _Run:
    ((name, field),) = fields
    return _Run(1, field.encode, lambda reader: (field.read(reader, name),))


def _runs_of(fields: Sequence[_Named], order: str) -> list[_Run]:
    runs: list[_Run] = []
    for (_, make), members in groupby(enumerate(fields), lambda each: _kind_of_run(*each)):
        runs.append(make([field for _, field in members], order))
    return runs


def _kind_of_run(index: int, named: _Named) -> tuple[int, Callable[[Sequence[_Named], str], _Run]]:
    """Return what neighbours of one run have in common."""
    if isinstance(named[1], Packed):
        return -1, _packed_run
    return (-1, _flags_run) if isinstance(named[1], Flag) else (index, _single_run)


def _encoder(runs: Sequence[_Run], prefix: bytes = b"") -> Callable[..., bytes]:
    """Make one function that writes all runs behind a prefix; what is written for every message is short."""
    if not runs:
        return lambda: prefix
    first = runs[0].encode
    if len(runs) == 1 and runs[0].code and prefix:
        return partial(struct.Struct(">H" + runs[0].code[1:]).pack, int.from_bytes(prefix, "big"))
    if len(runs) == 1:
        return (lambda value: prefix + first(value)) if prefix else first
    if len(runs) == 2 and runs[0].field_count == 1:
        second = runs[1].encode
        return lambda value, *others: prefix + first(value) + second(*others)
    ends = list(accumulate([run.field_count for run in runs]))
    slices = [(slice(end - run.field_count, end), run.encode) for end, run in zip(ends, runs, strict=True)]
    return lambda *values: prefix + b"".join([encode(*values[part]) for part, encode in slices])


def _reader(runs: Sequence[_Run], make: Callable[[Sequence[Any]], T]) -> Callable[[Reader], T]:
    if len(runs) == 1:
        read_all = runs[0].read
        return lambda reader: make(read_all(reader))
    reads = [run.read for run in runs]

    def read(reader: Reader) -> T:
        values: list[Any] = []
        for read_run in reads:
            values += read_run(reader)
        return make(values)

    return read


def _fields(cls: Any) -> list[_Named]:
    hints = get_type_hints(cls, include_extras=True)
    return [(name, hints[name].__metadata__[0]) for name in cls._fields]


def value_of(cls: Callable[P, T], encode_by: Callable[P, bytes] | None = None) -> Codec[P, T]:
    """Make the codec of the fields of a `NamedTuple`; those left out of `encode` have their defaults.

    `encode_by` gives the same bytes, for values that are written with every message.
    """
    of_class: Any = cls
    fields = _fields(cls)
    runs = _runs_of(fields, "<")
    if encode_by is not None:
        return Codec(encode_by, _reader(runs, of_class._make))
    encode = _encoder(runs)
    defaults = tuple(of_class._field_defaults.values())
    required = len(fields) - len(defaults)

    if defaults:
        encode = partial(_encode_with_defaults, encode, defaults, required)
    return Codec(encode, _reader(runs, of_class._make))


def _encode_with_defaults(
    encode: Callable[..., bytes], defaults: Sequence[Any], required: int, *values: Any
) -> bytes:
    return encode(*values, *defaults[len(values) - required :])


def value(name: str, field: Field[T]) -> Codec[[T], T]:
    """Make the codec of a single field, which stands for itself."""
    runs = _runs_of([(name, field)], "<")
    return Codec(_encoder(runs), _reader(runs, itemgetter(0)))


def key_of(cls: Callable[P, T]) -> KeyCodec[P, T]:
    """Make the codec of a key, as `value_of`."""
    of_class: Any = cls
    return _key_codec(_fields(cls), of_class._make)


def key(name: str, field: Field[T]) -> KeyCodec[[T], T]:
    """Make the codec of a key with a single field, as `value`."""
    return _key_codec([(name, field)], itemgetter(0))


def no_key() -> KeyCodec[[], None]:
    """Make the codec of the key of a record there is one of."""
    return _key_codec([], lambda values: None)


def _key_codec(fields: Sequence[_Named], make: Callable[[Sequence[Any]], Any]) -> KeyCodec[Any, Any]:
    runs = _runs_of(fields, ">")
    of_fields = [_runs_of([field], ">")[0].encode for field in fields]
    return KeyCodec(_encoder(runs), _reader(runs, make), partial(_encoder, runs), of_fields)


class Record(Generic[KeyParts, Key, ValueParts, Value]):
    """A kind of record: its name, its number (the second byte of its keys), what its keys and values hold.

    `key` and `encode` take the fields of a key and a value, and give its bytes.
    """

    __slots__ = ("_key", "_value", "encode", "key", "name", "number", "_prefix")

    def __init__(
        self, name: str, number: int, key: KeyCodec[KeyParts, Key], value: Codec[ValueParts, Value]
    ) -> None:
        self.name = name
        self.number = number
        self._prefix = bytes((VERSION, number))
        self._key = key
        self._value = value
        self.key: Callable[KeyParts, bytes] = key.behind(self._prefix)
        self.encode: Callable[ValueParts, bytes] = value.encode

    def prefix(self, *leading: str | int) -> bytes:
        """Return the beginning of all keys with these first fields; without any, of the keys of all
        records.
        """
        encoded = [encode(part) for encode, part in zip(self._key.of_fields, leading, strict=False)]
        return self._prefix + b"".join(encoded)

    def parse_key(self, raw: bytes) -> Key:
        """Return the fields of a key. Raises CorruptRecord, or FormatTooNew for what this program does not
        know.
        """
        if not raw.startswith(self._prefix):
            raise CorruptRecord(self.name, "key", f"does not begin with {self._prefix.hex(' ')}")
        return self._key.decode(self.name, raw[2:])

    def decode(self, value: bytes) -> Value:
        """Return the fields of a value; raises as `parse_key`."""
        return self._value.decode(self.name, value)


def queue_id_of(key: bytes) -> str:
    """Return the queue ID in a key that begins with one. Raises CorruptRecord."""
    return Reader("record", key[2:]).terminated_text("queue_id")
