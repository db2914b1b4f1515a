"""The properties of a message, whatever protocol it came by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from queue_manager.api import PROPERTY_KEYS

HeaderValue: TypeAlias = (
    "None | bool | int | float | Decimal | str | bytes | datetime | UUID"
    " | Sequence[HeaderValue] | Mapping[str, HeaderValue]"
)
"""A value with the type its publisher gave it; `datetime` with a time zone. Widths of numbers are the
protocol's own."""

HeaderMap: TypeAlias = Mapping[str, HeaderValue]

Header: TypeAlias = tuple[str, HeaderValue]

Identifier: TypeAlias = str | bytes | int | UUID
"""An identifier that names a message, or relates it to another: a text in AMQP 0.9.1, bytes in MQTT 5, any in
AMQP 1.0.
"""


class MessageProperties:
    """The properties that a publisher gives a message. None: it gave none.

    `headers` (AMQP headers, MQTT user properties, AMQP 1.0 application properties) keep order and duplicates;
    of several with one name the first counts, or the last if `last_header_counts`. `implied` names the fields
    that a protocol has no place for and that were read, by convention, from one of the headers, which is
    still there: who writes the headers leaves these fields out.

    `topic` is a topic or a routing key. `persistent` is delivery mode, durability or QoS. `ttl_ms` counts
    from the publish, `created_at_ms` is a time in ms since 1970. `subject` is AMQP 0.9.1's `type`.
    `payload_format` is MQTT's indicator: 0 bytes, 1 text. `response_topic` is the topic that `reply_to`
    stands for; "" if it stands for none, None if it may be taken for one. `is_encoded`: the body is sections
    of AMQP 1.0. `deaths` is a history of dead-lettering that is not among the headers, as `x-death` has it.
    """

    # defaults of the class: most messages have few of these, and many have properties of their own
    topic: str = ""
    persistent: bool | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    payload_format: int | None = None
    message_id: Identifier | None = None
    correlation_id: Identifier | None = None
    reply_to: str | None = None
    response_topic: str | None = None
    subject: str | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    created_at_ms: int | None = None
    user_id: str | bytes | None = None
    app_id: str | None = None
    group_id: HeaderValue = None
    group_sequence: HeaderValue = None
    headers: Sequence[Header] = ()
    last_header_counts: bool = False
    is_encoded: bool = False
    deaths: Sequence[HeaderMap] = ()
    implied: frozenset[str] = frozenset()

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def header_values(self) -> dict[str, HeaderValue]:
        """Return the headers by name, each with the value that counts."""
        return dict(self.headers if self.last_header_counts else reversed(self.headers))

    def routed(self) -> RoutedHeaders:
        """Return what exchanges route by."""
        return RoutedHeaders(self.header_values(), lambda: self)


class RoutedHeaders(dict[str, Any]):
    """Headers by name, and under the keys of `PROPERTY_KEYS` properties, read when they are asked for."""

    def __init__(
        self, headers: Mapping[str, Any] | Iterable[Header], read: Callable[[], MessageProperties]
    ) -> None:
        super().__init__(headers)
        self._read = read

    def __missing__(self, key: str) -> Any:
        attribute = _ROUTED.get(key)
        if attribute is None:
            raise KeyError(key)
        return getattr(self._read(), attribute)


_ROUTED: Final = {
    PROPERTY_KEYS["message_id"]: "message_id",
    PROPERTY_KEYS["correlation_id"]: "correlation_id",
    PROPERTY_KEYS["timestamp"]: "created_at_ms",
}
