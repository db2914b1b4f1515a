"""The fields of a message for filters: a mapping from field names to values.

The caller builds the mapping; it needs to hold only the fields in a filter's `names`. A field that is absent
or None is NULL. Values are `str`, `bool`, `int` (64 bits), `float` and `bytes`, never subclasses of these;
anything else (a list, a table) is a value that is not NULL and equals nothing. Times are ints, milliseconds
since 1970.

| field | value | NULL |
|---|---|---|
| `JMSMessageID`, `JMSCorrelationID`, `JMSType` | str | when the message has none |
| `JMSPriority` | int, 4 when the publisher set none | never |
| `JMSTimestamp` | int ms | when the message has none |
| `JMSDeliveryMode` | `"PERSISTENT"` or `"NON_PERSISTENT"` | never |
| `JMSXGroupID`, `JMSXUserID` | str | when the message has none |
| `JMSXGroupSeq` | int | when the message has none |
| `JMSXDeliveryCount` | int, 1 on the first delivery | never |
| any other name without a dot | the application property of that name | when the message has none |
| `properties.<field>` | that of the AMQP 1.0 properties section; user-id as str if it is UTF-8 | so |
| `header.priority` | int, 4 when the publisher set none | never |
| `application-properties.<key>` | the application property, whatever its key looks like | so |
| `UTC()` | int ms, the time of the evaluation | never |

JMS selectors name the first eight rows; property filters and the amqp-sql dialect name the others, where an
application property can be called `JMSPriority` or `header.priority` without being mistaken for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

Fields: TypeAlias = Mapping[str, object]

DELIVERY_COUNT: Final = "JMSXDeliveryCount"
NOW: Final = "UTC()"
HEADER_PRIORITY: Final = "header.priority"
PROPERTIES_PREFIX: Final = "properties."
APPLICATION_PREFIX: Final = "application-properties."

# Jakarta Messaging 3.1, 3.8.1.1: no other header may be named
JMS_HEADERS: Final = frozenset(
    {"JMSMessageID", "JMSCorrelationID", "JMSType", "JMSPriority", "JMSTimestamp", "JMSDeliveryMode"}
)
# AMQP 1.0, 3.2.4: the properties section
PROPERTY_FIELDS: Final = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)


class MessageFilter(Protocol):
    """The interface of every filter: selectors, property filters and combinations of filters."""

    @property
    def names(self) -> frozenset[str]:
        """The fields it looks at."""

    @property
    def equality(self) -> tuple[str, str] | None:
        """A field and the text it must have for the filter to match at all; None if there is no such pair."""

    @property
    def needs_delivery_count(self) -> bool:
        """Whether the answer for one message changes with its deliveries, so that it must not be kept."""

    @property
    def needs_now(self) -> bool:
        """Whether the answer for one message changes with time, so that it must not be kept."""

    def matches(self, fields: Fields, /) -> bool:
        """Return whether the message is selected. Never raises."""
