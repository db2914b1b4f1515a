"""Which messages a consumer wants: JMS selectors and AMQP property filters. Pure: no I/O, no clock.

`parse_selector(text)` gives a compiled `Selector`, `filters_from_arguments(table)` what an AMQP 0.9.1
consumer asks for; both raise a `FilterError`. `field_access` says what a message must look like for them.
"""

from queue_manager.filters.errors import FilterError, PropertyFilterError, SelectorError
from queue_manager.filters.field_access import Fields, MessageFilter
from queue_manager.filters.property_filters import (
    AllOf,
    PropertyFilter,
    Symbol,
    filters_from_arguments,
)
from queue_manager.filters.selector import Selector, parse_selector

__all__ = [
    "AllOf",
    "Fields",
    "FilterError",
    "MessageFilter",
    "PropertyFilter",
    "PropertyFilterError",
    "Selector",
    "SelectorError",
    "Symbol",
    "filters_from_arguments",
    "parse_selector",
]
