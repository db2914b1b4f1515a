"""How values go over a link: as msgpack has them, with marks for what that does not know.

None, bool, int, float, str, bytes, list and dict are msgpack's own. A tuple, a set, an error and a value of a
declared type are an array whose first item is a mark, an extension that says which. Nothing is made of what
comes but these and the declared types, each by the function that was declared for it.

Both ends may be of different releases. So each tells the other, when they greet, its table: the declared
types with their fields by name, in the order in which they go.

- A field may be added, with a default: that is what the value of a release without it is given. A field that
  the reader does not have is left out.
- Names and meanings stay, of types and of fields. A field without a default stays, too.
- What else is new, a type, a member of an enumeration, a call or an argument of one, goes over a link only
  where the version of that (`link_greeting`) says that the other end knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

from msgpack import ExtType, Packer, Unpacker, unpackb

from broker.workers.link_frames import HEAD, HEAD_BYTES
from config import limits
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError

Table: TypeAlias = Mapping[str, Sequence[str]]
"""The types that one end declares, by their names, with their fields."""

Told = dict[str, Any]
"""The fields of a value by name."""


class NotCarried(QueueManagerError):
    """A call cannot go to another worker, or what it came to cannot come back: the reason says what of it."""


class Unreadable(Exception):
    """What came over a link is not what goes over links."""


class Unknown(Unreadable):
    """What came over a link is whole, and has something in it that this release does not know."""


# kinds of extensions: marks, then whole values
_TUPLE, _SET, _FROZENSET, _VALUE, _ERROR = range(1, 6)
_INT, _TIME, _DECIMAL, _BYTEARRAY, _UUID = range(16, 21)

_NESTING: Final = frozenset((dict, list, tuple, set, frozenset))
_LOOKED_INTO: Final = _NESTING | {bytearray}
_TOO_DEEP: Final = f"more than {limits.LINK_VALUE_DEPTH_MAX} values are inside each other"
_KEPT_BUFFER_BYTES: Final = 1 << 20
_NUMBER_BYTES_MAX: Final = 16  # of the first field of a frame, and what msgpack has before it


@dataclass(frozen=True, slots=True)
class Carried:
    """A type whose values go over links, as `name`; `names` are its fields.

    `tell` gives the fields of a value in that order. `make` makes a value of fields by name, and raises any
    error where it cannot; `make_alike`, if there is one, of all of them in that order. `open_fields` have
    what clients gave, which is bounded in depth, and where a bytearray may be.
    """

    name: str
    kind: type
    names: tuple[str, ...]
    tell: Callable[[Any], Iterable[Any]]
    make: Callable[[Told], Any]
    make_alike: Callable[[list[Any]], Any] | None = None
    open_fields: tuple[str, ...] = ()


def carried(name: str, kind: Any, *open_fields: str) -> Carried:
    """Declare a dataclass, a NamedTuple, an enumeration."""
    if issubclass(kind, Enum):
        return Carried(name, kind, ("member",), lambda it: (it.name,), lambda told: kind[told["member"]])
    if hasattr(kind, "_fields"):
        return Carried(name, kind, kind._fields, iter, lambda told: kind(**told), kind._make, open_fields)
    names = tuple(each.name for each in fields(kind) if each.init)
    return with_fields(name, kind, names, *open_fields)


def with_fields(name: str, kind: type[Any], names: tuple[str, ...], *open_fields: str) -> Carried:
    """Declare a type whose attributes of these names are what it is made with."""
    get = attrgetter(*names)
    tell = get if len(names) > 1 else lambda it: (get(it),)
    return Carried(name, kind, names, tell, lambda told: kind(**told), None, open_fields)


def scalar(name: str, kind: type[Any], plain: type) -> Carried:
    """Declare a type whose values are also plain ones."""
    return Carried(name, kind, ("value",), lambda it: (plain(it),), lambda told: kind(told["value"]))


def defaults_of(kind: Any) -> dict[str, object]:
    """Return the defaults of a dataclass' or NamedTuple's fields; those without one are not among them."""
    if hasattr(kind, "_fields"):
        return dict(kind._field_defaults)
    return {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(kind)
        if each.init and (each.default is not MISSING or each.default_factory is not MISSING)
    }


class _Mark:
    """What the first item of an array is read as. `make` makes a value of the array."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[list[Any]], Any]) -> None:
        self.make = make


_MARKS: Final = {
    _TUPLE: _Mark(lambda items: tuple(items[1:])),
    _SET: _Mark(lambda items: set(items[1:])),
    _FROZENSET: _Mark(lambda items: frozenset(items[1:])),
}
_TUPLE_MARK: Final = ExtType(_TUPLE, b"")
_SET_MARK: Final = ExtType(_SET, b"")
_FROZENSET_MARK: Final = ExtType(_FROZENSET, b"")

_WHOLE: Final[dict[int, Callable[[bytes], Any]]] = {
    _INT: lambda raw: int.from_bytes(raw, "little", signed=True),
    _TIME: lambda raw: datetime.fromisoformat(raw.decode()),
    _DECIMAL: lambda raw: Decimal(raw.decode()),
    _BYTEARRAY: bytearray,
    _UUID: lambda raw: UUID(bytes=raw),
}
_TELLERS: Final[dict[type, Callable[[Any], Any]]] = {
    tuple: lambda it: [_TUPLE_MARK, *it],
    set: lambda it: [_SET_MARK, *it],
    frozenset: lambda it: [_FROZENSET_MARK, *it],
    int: lambda it: ExtType(_INT, it.to_bytes(it.bit_length() // 8 + 1, "little", signed=True)),
    datetime: lambda it: ExtType(_TIME, it.isoformat().encode()),
    Decimal: lambda it: ExtType(_DECIMAL, str(it).encode()),
    UUID: lambda it: ExtType(_UUID, it.bytes),
}


class Codec:
    """Writes frames of values; its readers read them. `carried` are the types that go over links, `errors`
    the errors, with what they keep beside their reason.

    An error of another class goes as the nearest one above it that is among them; one that the reader does
    not know is read so, too.
    """

    def __init__(self, carried: Iterable[Carried], errors: Mapping[type[Exception], tuple[str, ...]]) -> None:
        self.carried = {each.name: each for each in carried}
        self.errors = errors
        self.table: Table = {name: list(each.names) for name, each in self.carried.items()}
        self._tellers = _TELLERS | {
            each.kind: _teller(each, index) for index, each in enumerate(self.carried.values())
        }
        self._packer = self._new_packer()

    def frame(self, kind: int, *told: Any) -> bytes:
        """Return a frame with these fields. Raises NotCarried."""
        try:
            raw: bytes = self._packer.pack(list(told))
        except NotCarried:
            raise
        except (ValueError, OverflowError) as error:  # as what is larger than msgpack can say
            raise NotCarried(f"this cannot go to another worker: {error}") from None
        length = HEAD_BYTES + len(raw)
        if length > _KEPT_BUFFER_BYTES:
            self._packer = self._new_packer()
            if length > limits.LINK_FRAME_BYTES_MAX:
                most = limits.LINK_FRAME_BYTES_MAX
                raise NotCarried(f"{length} bytes cannot go to another worker: {most} at most")
        return HEAD.pack(length, kind) + raw

    def reader(self, table: Table) -> Reader:
        """Return what reads the frames of an end that told this table."""
        return Reader(self, table)

    def _new_packer(self) -> Packer:
        return Packer(
            default=self._tell, strict_types=True, unicode_errors="surrogatepass", buf_size=_KEPT_BUFFER_BYTES
        )

    def _tell(self, value: Any) -> Any:
        """Return what msgpack knows for what it does not."""
        tell = self._tellers.get(type(value))
        if tell is not None:
            return tell(value)
        if isinstance(value, QueueManagerError | StorageError):
            return self._tell_error(value)
        raise NotCarried(f"a value of type {type(value).__qualname__} cannot go to another worker")

    def _tell_error(self, error: QueueManagerError | StorageError) -> list[Any]:
        known = [kind for kind in type(error).__mro__ if kind in self.errors]
        kept = vars(error)
        told = {name: kept[name] for name in ("reason", *self.errors[known[0]]) if name in kept}
        told = _of_client(told, limits.LINK_VALUE_DEPTH_MAX + 1)
        return [ExtType(_ERROR, " ".join(kind.__name__ for kind in known).encode()), told]


class Reader:
    """Reads frames of values that came over one link; `table` is what the other end told of its types."""

    def __init__(self, codec: Codec, table: Table) -> None:
        self._errors = codec.errors
        self._error_kinds = {kind.__name__: kind for kind in codec.errors}
        self._marks = {
            _index(index): _mark_of(codec.carried.get(name), name, tuple(names))
            for index, (name, names) in enumerate(table.items())
        }
        self._open: list[None] = []  # the marks whose arrays are not at their end
        self._hooks = self._reading()

    def fields(self, data: bytes, at: int, end: int) -> list[Any]:
        """Return the fields of the frame at a place, as they were given to `Codec.frame`. Raises
        Unreadable.
        """
        ext_hook, list_hook = self._hooks
        try:
            told = unpackb(
                data[at + HEAD_BYTES : end],
                ext_hook=ext_hook,
                list_hook=list_hook,
                strict_map_key=False,
                timestamp=3,  # a datetime, and no type of msgpack's
                unicode_errors="surrogatepass",
            )
            if self._open or type(told) is not list:
                raise Unreadable("marks without their arrays")
        except Unreadable:
            raise
        except Exception as error:  # whatever it is that msgpack, or a type, finds wrong
            raise Unreadable(f"{type(error).__name__}: {error}") from None
        finally:
            self._open.clear()
        return told

    def _reading(self) -> tuple[Callable[[int, bytes], Any], Callable[[list[Any]], Any]]:
        """Return what msgpack calls for each extension, and at the end of each array."""
        opened, values, marks, tuple_mark = self._open, self._marks, _MARKS, _MARKS[_TUPLE]

        def ext_hook(code: int, raw: bytes) -> Any:
            mark = values.get(raw) if code == _VALUE else marks.get(code)
            if mark is None:
                if (whole := _WHOLE.get(code)) is not None:
                    return whole(raw)
                if code != _ERROR:
                    raise Unreadable(f"an extension {code}, {raw[:20]!r}")
                mark = self._error_mark(raw)
            opened.append(None)
            return mark

        def list_hook(items: list[Any]) -> Any:
            if items:
                mark = items[0]
                if mark is tuple_mark:
                    opened.pop()
                    del items[0]
                    return tuple(items)
                if type(mark) is _Mark:
                    opened.pop()
                    return mark.make(items)
            return items

        return ext_hook, list_hook

    def _error_mark(self, raw: bytes) -> _Mark:
        names = raw.decode().split()
        known = [self._error_kinds[name] for name in names if name in self._error_kinds]
        if not known:
            return _unknown(f"the error {names[:1]}")
        kind = known[0]

        def make(items: list[Any]) -> Exception:
            _, told = items
            _check_depth(told.values())
            error = kind.__new__(kind)
            reason = str(told["reason"])
            Exception.__init__(error, reason)
            vars(error).update({name: told.get(name) for name in self._errors[kind]}, reason=reason)
            return error

        return _Mark(make)


def _index(index: int) -> bytes:
    return index.to_bytes(2, "little")


def _teller(each: Carried, index: int) -> Callable[[Any], list[Any]]:
    mark, tell = ExtType(_VALUE, _index(index)), each.tell
    if not each.open_fields:
        return lambda value: [mark, *tell(value)]
    places = [each.names.index(name) + 1 for name in each.open_fields]

    def told(value: Any) -> list[Any]:
        items = [mark, *tell(value)]
        for place in places:
            items[place] = _of_client(items[place], limits.LINK_VALUE_DEPTH_MAX)
        return items

    return told


def _mark_of(each: Carried | None, name: str, told_names: tuple[str, ...]) -> _Mark:
    """Return what values of a type are read with, of which the other end has these fields."""
    if each is None:
        return _unknown(f"the type {name}")
    kept, make, make_alike = frozenset(each.names), each.make, each.make_alike
    if told_names != each.names:
        make_alike = None
    open_fields, count = each.open_fields, len(told_names)
    are_all_kept = kept.issuperset(told_names)

    def made(items: list[Any]) -> Any:
        del items[0]
        if len(items) != count:
            raise Unreadable(f"{len(items)} fields of {name}, not {count}")
        try:
            if make_alike is not None and not open_fields:
                return make_alike(items)
            told = dict(zip(told_names, items, strict=False))
            if not are_all_kept:
                told = {key: value for key, value in told.items() if key in kept}
            if open_fields:
                _check_depth([told.get(each) for each in open_fields])
            return make(told)
        except Unreadable:
            raise
        except Exception as error:  # a field is missing, or is not what it may be here
            raise Unknown(f"{name}: {error}") from None

    return _Mark(made)


def _unknown(what: str) -> _Mark:
    def make(items: list[Any]) -> NoReturn:
        raise Unknown(f"{what} is not known here")

    return _Mark(make)


def _of_client(value: Any, depth: int) -> Any:
    """Return what a client gave as it goes: msgpack writes a bytearray as bytes, so that is marked before.

    Raises NotCarried if more than so many containers are inside each other; those in a value of a declared
    type are counted by themselves.
    """
    kind = type(value)
    if kind is bytearray:
        return ExtType(_BYTEARRAY, bytes(value))
    if kind not in _NESTING:
        return value
    if not depth:
        raise NotCarried(f"this cannot go to another worker: {_TOO_DEEP}")
    inner = value.values() if kind is dict else value
    if _LOOKED_INTO.isdisjoint(map(type, inner)):
        return value
    bound = [_of_client(each, depth - 1) for each in inner]
    return dict(zip(value, bound, strict=True)) if kind is dict else kind(bound)


def _check_depth(values: Collection[Any]) -> None:
    """Raise Unreadable for what is deeper than `_of_client` lets go."""
    if _are_deeper(values, limits.LINK_VALUE_DEPTH_MAX):
        raise Unreadable(_TOO_DEEP)


def _are_deeper(values: Collection[Any], depth: int) -> bool:
    if _NESTING.isdisjoint(map(type, values)):
        return False
    if not depth:
        return True
    return any(
        _are_deeper(one.values() if type(one) is dict else one, depth - 1)
        for one in values
        if type(one) in _NESTING
    )


def number_of(data: bytes, at: int, end: int) -> int | None:
    """Return the first field of a frame whose others cannot be read, if that is a number."""
    reading = Unpacker()
    reading.feed(data[at + HEAD_BYTES : min(end, at + HEAD_BYTES + _NUMBER_BYTES_MAX)])
    try:
        reading.read_array_header()
        number = reading.unpack()
    except Exception:  # whatever is wrong with it
        return None
    return number if type(number) is int else None
