"""AMQP property filter expressions (AMQP Filter Expressions 1.0, 4): field by field, no language.

A filter holds references for fields of one section; a message matches when every reference does:

- NULL matches whatever is there;
- a number matches a number of the same value, of any type;
- a text matches the same text; `&p:x` one that begins with `x`, `&s:x` one that ends with `x`, `&&x` is the
  text `&x`; a symbol is always meant as it stands;
- anything else matches what has its type and value, so a boolean is never a number.

A field that the message does not have is NULL, and matches only a NULL reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from config import limits
from queue_manager.filters.errors import PropertyFilterError
from queue_manager.filters.field_access import (
    APPLICATION_PREFIX,
    PROPERTIES_PREFIX,
    PROPERTY_FIELDS,
    Fields,
    MessageFilter,
)

PROPERTIES: Final = "properties"
APPLICATION_PROPERTIES: Final = "application-properties"
PROPERTIES_ARGUMENT: Final = "x-properties-filter"
APPLICATION_PROPERTIES_ARGUMENT: Final = "x-application-properties-filter"

Check: TypeAlias = Callable[[object], bool]


class Symbol(str):
    """A reference of AMQP 1.0's symbol type: compared like a text, without modifiers."""

    __slots__ = ()


_BINARY: Final = frozenset({bytes})
_ID: Final = frozenset({int, UUID, bytes, str})
_TEXT: Final = frozenset({str})
_SYMBOL: Final = frozenset({Symbol})
_INTEGER: Final = frozenset({int})  # ulong, uint, and timestamp in milliseconds

# AMQP 1.0, 3.2.4
_PROPERTY_TYPES: Final[dict[str, frozenset[type]]] = {
    **dict.fromkeys(PROPERTY_FIELDS, _TEXT),
    **dict.fromkeys(("message-id", "correlation-id"), _ID),
    **dict.fromkeys(("content-type", "content-encoding"), _SYMBOL),
    **dict.fromkeys(("absolute-expiry-time", "creation-time", "group-sequence"), _INTEGER),
    "user-id": _BINARY,
}
_TEXT_WHEN_LENIENT: Final = (_SYMBOL, _BINARY)
_SIMPLE: Final = frozenset({str, Symbol, bool, int, float, bytes, UUID})


class PropertyFilter:
    """References for the fields of one section; all must match.

    `section` is "properties" or "application-properties". References are None, str, Symbol, bool, int, float,
    bytes or UUID; for the properties section those that AMQP 1.0 gives the field (times are ints in ms), with
    `lenient` also a str where it wants a Symbol or the bytes of user-id. Raises PropertyFilterError for an
    unknown field, a wrong type, an unknown modifier, no or too many entries.
    """

    __slots__ = ("_checks", "equality", "names")

    needs_delivery_count: ClassVar[bool] = False
    needs_now: ClassVar[bool] = False

    def __init__(self, section: str, entries: Mapping[str, object], *, lenient: bool = False) -> None:
        if section not in (PROPERTIES, APPLICATION_PROPERTIES):
            raise PropertyFilterError(f"section {section!r} cannot be filtered by")
        if not 1 <= len(entries) <= limits.PROPERTY_FILTER_ENTRIES_MAX:
            raise PropertyFilterError(
                f"{section} has {len(entries)} entries, 1 to {limits.PROPERTY_FILTER_ENTRIES_MAX} are allowed"
            )
        prefix = PROPERTIES_PREFIX if section == PROPERTIES else APPLICATION_PREFIX
        checks: list[tuple[str, Check]] = []
        self.equality: tuple[str, str] | None = None
        for key, reference in entries.items():
            _check_type(section, key, reference, lenient)
            if reference is None:
                continue
            check, text = _compiled(key, reference)
            checks.append((prefix + key, check))
            if text is not None and self.equality is None:
                self.equality = (prefix + key, text)
        self._checks = tuple(checks)
        self.names = frozenset(field for field, _ in checks)

    def matches(self, fields: Fields, /) -> bool:
        """Return whether every reference matches."""
        get = fields.get
        for field, check in self._checks:  # noqa: SIM110 - a generator costs more than the checks
            if not check(get(field)):
                return False
        return True


def _check_type(section: str, key: object, reference: object, lenient: bool) -> None:
    if not isinstance(key, str):
        raise PropertyFilterError(f"a key is a text, not {type(key).__name__}", str(key))
    allowed = _SIMPLE
    if section == PROPERTIES:
        found = _PROPERTY_TYPES.get(key)
        if found is None:
            raise PropertyFilterError(f"no such property; there are {', '.join(PROPERTY_FIELDS)}", key)
        allowed = found | _TEXT if lenient and found in _TEXT_WHEN_LENIENT else found
    if reference is not None and type(reference) not in allowed:
        names = " or ".join(sorted(kind.__name__.lower() for kind in allowed))
        raise PropertyFilterError(f"the reference must be {names}, not {type(reference).__name__}", key)
    if isinstance(reference, str | bytes) and len(reference) > limits.SELECTOR_TEXT_CHARS_MAX:
        raise PropertyFilterError(f"the reference is longer than {limits.SELECTOR_TEXT_CHARS_MAX}", key)


def _compiled(key: str, reference: object) -> tuple[Check, str | None]:
    """Return the check of one reference, and the one text that passes it if there is just one."""
    if isinstance(reference, Symbol):
        return _equal_text(str(reference))
    if isinstance(reference, str):
        return _text_check(key, reference)
    if isinstance(reference, bool):
        return (lambda value: value is reference), None
    if isinstance(reference, int | float):
        return (lambda value: (type(value) is int or type(value) is float) and value == reference), None
    if isinstance(reference, bytes) and key == "user-id":
        try:
            return _equal_text(reference.decode())
        except UnicodeDecodeError:
            pass
    kind = type(reference)
    return (lambda value: type(value) is kind and value == reference), None


def _equal_text(text: str) -> tuple[Check, str]:
    return (lambda value: value == text), text


def _text_check(key: str, reference: str) -> tuple[Check, str | None]:
    if not reference.startswith("&"):
        return _equal_text(reference)
    modifier, rest = reference[:3], reference[3:]
    if modifier == "&p:":
        return (lambda value: type(value) is str and value.startswith(rest)), None
    if modifier == "&s:":
        return (lambda value: type(value) is str and value.endswith(rest)), None
    if reference.startswith("&&"):
        return _equal_text(reference[1:])
    raise PropertyFilterError("a text that begins with & must begin with &p:, &s: or &&", key)


class AllOf:
    """Matches what all of the filters, at least one, match (`amqp:all-filter`)."""

    __slots__ = ("_filters", "equality", "names", "needs_delivery_count", "needs_now")

    def __init__(self, filters: Sequence[MessageFilter]) -> None:
        self._filters = filters
        self.names = frozenset[str]().union(*(part.names for part in filters))
        self.needs_delivery_count = any(part.needs_delivery_count for part in filters)
        self.needs_now = any(part.needs_now for part in filters)
        self.equality = next((part.equality for part in filters if part.equality), None)

    def matches(self, fields: Fields, /) -> bool:
        """Return whether every filter matches."""
        return all(part.matches(fields) for part in self._filters)


def filters_from_arguments(arguments: Mapping[str, object]) -> MessageFilter | None:
    """Return the property filters among the arguments of an AMQP 0.9.1 `basic.consume`; None if there are
    none.

    AMQP 0.9.1 has fewer types than the references of `PropertyFilter`, so that a text does for a symbol and
    for user-id, and a timestamp for an int; `type` is accepted for subject. Raises PropertyFilterError.
    """
    filters: list[PropertyFilter] = []
    for argument, section in (
        (PROPERTIES_ARGUMENT, PROPERTIES),
        (APPLICATION_PROPERTIES_ARGUMENT, APPLICATION_PROPERTIES),
    ):
        table = arguments.get(argument)
        if table is None:
            continue
        if not isinstance(table, Mapping):
            raise PropertyFilterError(f"{argument} must be a table, not {type(table).__name__}")
        filters.append(_filter_from_table(section, table))
    return AllOf(filters) if len(filters) > 1 else (filters[0] if filters else None)


def _filter_from_table(section: str, table: Mapping[str, object]) -> PropertyFilter:
    entries: dict[str, object] = {}
    for name, value in table.items():
        key = "subject" if name == "type" and section == PROPERTIES else name
        if key in entries:
            raise PropertyFilterError("type and subject are the same property", key)
        if isinstance(value, bytearray):
            value = bytes(value)
        elif isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            value = int(aware.timestamp() * 1_000)
        entries[key] = value
    return PropertyFilter(section, entries, lenient=True)
